//! The binary `tollgate` as a process: its commands, its servers, and real clients of them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test reports a failure by panicking")]

mod cli;
mod clients;
mod control;
mod dashboard;
mod docs;
mod events;
mod fleet;
mod gateway;
mod http;
mod observability;
mod regions;
mod serve;
mod settle;
mod timing;

use std::path::{Path, PathBuf};

use tollgate_testing::{Server, ServerBuilder};

/// A server of this build.
fn new_server() -> ServerBuilder {
    Server::builder(env!("CARGO_BIN_EXE_tollgate"))
}

/// A path in the repository.
fn repository_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap().join(name)
}
