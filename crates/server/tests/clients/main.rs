//! Real clients of a running server: Envoy, nginx, Caddy, redis-cli, a Redis library, schemathesis. The proxies run the
//! configurations that `deploy/` has for people, with other addresses in them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test says what it expects by failing.

mod application;
mod caddy;
mod envoy;
mod http;
mod nginx;
mod openapi;
mod process;
mod redis;
#[allow(dead_code, reason = "what these tests do not need, others do")]
#[path = "../serve/server.rs"]
mod server;
mod systemd;
mod tools;
