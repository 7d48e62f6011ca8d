//! The binary `tollgate`.
#![allow(dead_code, reason = "parts that are not joined yet")]

mod admin;
mod cli;
mod gate;
mod health;
mod net;
mod observe;
mod wire;

fn main() -> std::process::ExitCode {
    cli::run()
}
