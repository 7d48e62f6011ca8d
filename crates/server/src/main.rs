//! The binary `tollgate`.

mod admin;
mod app;
mod cli;
mod config;
mod control;
mod counters;
mod data_dir;
mod decisions;
mod gate;
mod health;
mod net;
mod observe;
mod receipts;
mod rules_watch;
mod snapshots;
mod tokens;
mod wire;
mod words;

/// A call makes some twenty short-lived allocations, and this allocator is the quicker one for them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cli::run()
}
