//! The binary `tollgate`.
#![allow(dead_code, reason = "parts that are not joined yet")]

mod admin;
mod app;
mod cli;
mod config;
mod data_dir;
mod gate;
mod health;
mod net;
mod observe;
mod rules_watch;
mod snapshots;
mod wire;

fn main() -> std::process::ExitCode {
    cli::run()
}
