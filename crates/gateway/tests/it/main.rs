//! The gateway on real connections: clients and upstreams that behave, and such that do not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test reports a failure by panicking")]

mod caps;
mod connections;
mod credentials;
mod discovery;
mod event_streams;
mod forwarding;
mod framing_fuzz;
mod http1;
mod http2;
mod http2_clients;
mod http2_goodbyes;
mod http2_upstreams;
mod limits;
mod misbehaviour;
mod peers;
mod probe;
mod read_ahead;
mod recorder;
mod retries;
mod shedding;
#[path = "../../src/jwt/tests/signer.rs"]
#[allow(dead_code, reason = "unit tests use more of it")]
mod signer;
mod streams;
mod support;
mod tiers;
mod timeouts;
mod tls_upstreams;
mod tokens;
mod unreachable;
mod upstream_http1;
mod vectors;
mod waiting;
