//! Real clients of a running server: Envoy, nginx, Caddy, redis-cli, a Redis library, schemathesis. The proxies run the
//! configurations in `deploy/`, with other addresses.

mod application;
mod caddy;
pub(crate) mod deploy;
pub(crate) mod envoy;
pub(crate) mod http;
mod kubernetes;
mod nginx;
mod openapi;
mod process;
mod redis;
mod systemd;
