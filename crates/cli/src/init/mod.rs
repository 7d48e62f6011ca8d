//! `tollgate init`: writes a first rule file.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::{EXIT_FAILURE, print_error, write_output};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tollgate init\n  tollgate init logins --file logins.yaml")]
pub(super) struct Init {
    /// What the rules are for
    #[arg(value_enum, default_value = "api-keys")]
    case: Case,
    /// The file to write; - is standard output
    #[arg(long, value_name = "FILE", default_value = "rules.yaml")]
    file: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

/// A rule file to start with.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Case {
    /// An API whose callers have keys and tiers
    ApiKeys,
    /// Logins: guessed passwords
    Logins,
    /// Requests and tokens of a language model
    LlmTokens,
    /// A tree of descriptors for Envoy, in the format of envoyproxy/ratelimit
    Envoy,
}

/// The file name in the texts, which is replaced by the one that is written.
const WRITTEN_NAME: &str = "rules.yaml";

impl Init {
    pub(super) fn run(&self) -> ExitCode {
        let name = self.file.to_string_lossy();
        if name == "-" {
            return write_output(self.case.text(), 0);
        }
        let text = self.case.text().replace(WRITTEN_NAME, &name);
        if let Err(message) = write(&self.file, &text, self.force) {
            print_error(format_args!("error: {message}"));
            return ExitCode::from(EXIT_FAILURE);
        }
        let next = format!("{name} is written. Start a server with it:\n\n  tollgate {name}\n\n");
        let example =
            format!("And try it from another terminal:\n\n  {}\n", self.case.example().replace(WRITTEN_NAME, &name));
        write_output(&format!("{next}{example}"), 0)
    }
}

impl Case {
    fn text(self) -> &'static str {
        match self {
            Case::ApiKeys => include_str!("api-keys.yaml"),
            Case::Logins => include_str!("logins.yaml"),
            Case::LlmTokens => include_str!("llm-tokens.yaml"),
            Case::Envoy => include_str!("envoy.yaml"),
        }
    }

    /// A command that shows a limit of the file.
    fn example(self) -> &'static str {
        match self {
            Case::ApiKeys => {
                "curl localhost:8080/v1/ratelimit/check -d '{\"api_key\": \"ada\", \"endpoint\": \"POST /orders\"}'"
            }
            Case::Logins => {
                "curl localhost:8080/v1/ratelimit/check \\\n    \
                 -d '{\"remote_address\": \"192.0.2.7\", \"user\": \"ada\", \"endpoint\": \"POST /login\"}'"
            }
            Case::LlmTokens => {
                "curl localhost:8080/v1/ratelimit/check -d '{\"api_key\": \"ada\", \"tokens\": \"1500\"}'"
            }
            Case::Envoy => "curl localhost:8080/v1/ratelimit/check -d '{\"route\": \"orders\", \"api_key\": \"ada\"}'",
        }
    }
}

fn write(path: &Path, text: &str, force: bool) -> Result<(), String> {
    let mut options = OpenOptions::new();
    options.write(true);
    match force {
        true => options.create(true).truncate(true),
        false => options.create_new(true),
    };
    let file = options.open(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            format!("{} exists; write --force to replace it, or --file FILE for another name", path.display())
        }
        _ => format!("{} can't be written: {error}", path.display()),
    });
    file?.write_all(text.as_bytes()).map_err(|error| format!("{} can't be written: {error}", path.display()))
}
