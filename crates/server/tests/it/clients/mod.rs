//! Real clients of a running server: Envoy, nginx, Caddy, redis-cli, a Redis library, schemathesis. The proxies run the
//! configurations that `deploy/` has for people, with other addresses in them.

mod application;
mod caddy;
pub(crate) mod envoy;
mod http;
mod nginx;
mod openapi;
mod process;
mod redis;
mod systemd;
mod tools;
