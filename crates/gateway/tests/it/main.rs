//! The gateway on real connections: clients and upstreams that behave, and such that do not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test reports a failure by panicking")]

mod connections;
mod event_streams;
mod forwarding;
mod framing_fuzz;
mod http2;
mod limits;
mod misbehaviour;
mod peers;
mod probe;
mod recorder;
mod shedding;
mod streams;
mod support;
mod tiers;
mod vectors;
