//! The binary `tollgate` as a process: its commands, its servers, and real clients of theirs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test reports a failure by panicking")]

mod cli;
mod clients;
mod control;
mod dashboard;
mod docs;
mod fleet;
mod http;
mod observability;
mod serve;
mod settle;
mod timing;

use tollgate_testing::{Server, ServerBuilder};

/// The server of this build, to be started.
fn new_server() -> ServerBuilder {
    Server::builder(env!("CARGO_BIN_EXE_tollgate"))
}
