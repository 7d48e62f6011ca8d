//! The binary `tollgate`.

mod cli;

fn main() -> std::process::ExitCode {
    cli::run()
}
