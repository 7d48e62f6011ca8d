//! The binary `tollgate`.
#![allow(dead_code, reason = "parts that are not joined yet")]

mod cli;
mod gate;
mod health;
mod net;
mod observe;
mod snapshots;
mod wire;

fn main() -> std::process::ExitCode {
    cli::run()
}
