//! The tower layer: in process with manual clocks, and as a real service under load.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails may panic")]

mod axum_routes;
mod crowd;
mod delays;
mod grpc;
mod holds;
mod hyper_alone;
mod load;
mod once;
mod outcomes;
mod refusals;
mod replays;
mod running;
mod waiting;
mod world;

#[path = "../../examples/axum.rs"]
#[allow(dead_code, reason = "its `main` is the command line's")]
mod service;
