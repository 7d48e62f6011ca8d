//! The command `tollgate serve`, which is also the default command.

use std::path::Path;
use std::process::ExitCode;

use clap::ArgMatches;
use tollgate_cli::{EXIT_USAGE, ServeCommand, print_error, write_output};

use crate::{app, config};

/// The command; its flags are the settings.
pub const COMMAND: ServeCommand =
    ServeCommand { add_flags: config::command, paths: config::PATHS, after_help: SETTINGS_HELP, run };

const SETTINGS_HELP: &str = "\
Each setting can also be an environment variable (TOLLGATE_GRPC_TLS_CERT for --grpc-tls-cert) or a \
key of the file (grpc_tls_cert). A flag overrides a variable, a variable overrides the file. \
--print-config shows the result.

ADDR is host:port, unix:PATH or off. TIME is 250ms, 10s, 5m or 1h30m. SIZE is 64KiB, 1MiB or bytes. \
The values of a list are separated by commas, or the flag is repeated.";

/// Reads the settings, then starts the server or prints them.
fn run(matches: &ArgMatches) -> ExitCode {
    let loaded = match config::load(matches, std::env::vars_os(), Path::new("")) {
        Ok(loaded) => loaded,
        Err(problems) => {
            problems.iter().for_each(print_error);
            return ExitCode::from(EXIT_USAGE);
        }
    };
    if loaded.print_only {
        loaded.warnings.iter().for_each(print_error);
        return write_output(&loaded.print(), 0);
    }
    app::run(loaded.settings, loaded.warnings)
}
