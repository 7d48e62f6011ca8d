//! The command `tollgate serve`, which is also the default command.

use std::ffi::OsString;
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

/// The name under which the binary replaces envoyproxy/ratelimit, whose deployments start `/bin/ratelimit`.
const RATELIMIT: &str = "ratelimit";
const ENVOY_ENV: &str = "TOLLGATE_ENVOY_ENV";

/// The environment, in which the name of the program stands for `--envoy-env`.
fn with_name(program: &Path, mut variables: Vec<(OsString, OsString)>) -> Vec<(OsString, OsString)> {
    let is_set = variables.iter().any(|(name, _)| name == ENVOY_ENV);
    if !is_set && program.file_name().is_some_and(|name| name == RATELIMIT) {
        variables.push((ENVOY_ENV.into(), "1".into()));
    }
    variables
}

/// Reads the settings, then starts the server or prints them.
fn run(matches: &ArgMatches) -> ExitCode {
    let program = std::env::args_os().next().unwrap_or_default();
    let variables = with_name(Path::new(&program), std::env::vars_os().collect());
    let loaded = match config::load(matches, variables, Path::new("")) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_ratelimit_it_reads_that_environment() {
        let added = |program: &str, variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
            let all = with_name(Path::new(program), variables);
            all.into_iter().map(|(_, value)| value.into_string().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(added("/bin/ratelimit", &[]), ["1"]);
        assert_eq!(added("/bin/ratelimit", &[(ENVOY_ENV, "0")]), ["0"]);
        assert_eq!(added("/bin/tollgate", &[("PORT", "80")]), ["80"]);
        assert_eq!(added("", &[]), [""; 0]);
    }
}
