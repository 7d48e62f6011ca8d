//! `tollgate serve`, which is also what `tollgate` alone does.

use std::path::Path;
use std::process::ExitCode;

use clap::{ArgMatches, Command};

use super::{USAGE, complain, finish};
use crate::{app, config};

/// What the command is called.
pub(super) const NAME: &str = "serve";

/// The command and its flags, which are the settings.
pub(super) fn command() -> Command {
    config::command(Command::new(NAME))
        .about("Answer gateways: Envoy's protocol, HTTP and RESP. Also what `tollgate` alone does")
        .after_help(SOURCES)
}

const SOURCES: &str = "\
Each setting can also be an environment variable (TOLLGATE_GRPC_TLS_CERT for --grpc-tls-cert) or a key of the file
(grpc_tls_cert). A flag is stronger than a variable, a variable than the file. --print-config shows what came of it.
ADDR is host:port, unix:PATH or off. TIME is 250ms, 10s, 5m or 1h30m. SIZE is 64KiB, 1MiB or bytes. Lists have commas
between their values, or the flag is repeated.";

/// Gathers the settings and starts the server, or shows them.
pub(super) fn run(matches: &ArgMatches) -> ExitCode {
    let gathered = match config::gather(matches, std::env::vars_os(), Path::new("")) {
        Ok(gathered) => gathered,
        Err(problems) => {
            problems.iter().for_each(complain);
            return ExitCode::from(USAGE);
        }
    };
    if gathered.print_only {
        gathered.warnings.iter().for_each(complain);
        return finish(&gathered.print(), 0);
    }
    app::run(gathered.settings, gathered.warnings)
}
