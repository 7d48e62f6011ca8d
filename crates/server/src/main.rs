//! The binary `tollgate`.
#![allow(dead_code, reason = "parts that are not joined yet")]

mod app;
mod cli;
mod config;
mod gate;
mod health;
mod net;
mod observe;
mod wire;

fn main() -> std::process::ExitCode {
    cli::run()
}
