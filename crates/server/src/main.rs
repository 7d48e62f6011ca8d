//! The binary `tollgate`.

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
mod words;

fn main() -> std::process::ExitCode {
    cli::run()
}
