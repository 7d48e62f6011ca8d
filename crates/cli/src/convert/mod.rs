//! `tollgate convert`: rules from the configuration of other rate limiters.
//!
//! What has no counterpart is named in comments of the output and on standard error, and never dropped in silence.

mod express;
mod kong;
mod limitador;
mod nginx;
mod rule;
mod yaml_values;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use tollgate_rules::load::{MAX_FILE_BYTES, read_file};

use super::{EXIT_FAILURE, pluralize, print_error, write_output};
use rule::{ConvertedRule, Note};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tollgate convert --from nginx /etc/nginx/nginx.conf > rules.yaml\n  \
    tollgate convert --from kong kong.yaml > rules.yaml")]
pub(super) struct Convert {
    /// The program that the configuration is for
    #[arg(long, value_enum, value_name = "nginx|kong|limitador|express-rate-limit")]
    from: Origin,
    /// The configuration; - is standard input
    file: PathBuf,
}

/// A program whose limits can be converted.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Origin {
    /// limit_req and limit_conn of nginx
    Nginx,
    /// The plugins rate-limiting and rate-limiting-advanced, in Kong's declarative format
    Kong,
    /// The limits file of Limitador
    Limitador,
    /// JavaScript with calls of express-rate-limit
    ExpressRateLimit,
}

/// The rules of a configuration, and what could not be converted.
#[derive(Debug, Default)]
struct Conversion {
    rules: Vec<ConvertedRule>,
    notes: Vec<Note>,
}

/// The maximum number of rules and of notes.
const MAX_CONVERTED: usize = 10_000;

impl Convert {
    pub(super) fn run(&self) -> ExitCode {
        let text = match read(&self.file) {
            Ok(text) => text,
            Err(message) => {
                print_error(format_args!("error: {message}"));
                return ExitCode::from(EXIT_FAILURE);
            }
        };
        let mut conversion = match self.from {
            Origin::Nginx => nginx::convert(&text),
            Origin::Kong => kong::convert(&text),
            Origin::Limitador => limitador::convert(&text),
            Origin::ExpressRateLimit => express::convert(&text),
        };
        conversion.rules.truncate(MAX_CONVERTED);
        conversion.notes.truncate(MAX_CONVERTED);
        rule::name_apart(&mut conversion.rules);
        for note in &conversion.notes {
            print_error(note);
        }
        let (rules, notes) = (conversion.rules.len(), conversion.notes.len());
        if rules == 0 {
            print_error("error: there is no limit to convert; is --from right?");
            return ExitCode::from(EXIT_FAILURE);
        }
        print_error(format_args!("{} converted, {} not", pluralize(rules, "rule"), pluralize(notes, "setting")));
        write_output(&rule::to_yaml(self.from.name(), &conversion), 0)
    }
}

impl Origin {
    fn name(self) -> &'static str {
        match self {
            Origin::Nginx => "nginx",
            Origin::Kong => "kong",
            Origin::Limitador => "limitador",
            Origin::ExpressRateLimit => "express-rate-limit",
        }
    }
}

impl Conversion {
    fn note(&mut self, line: usize, text: impl Into<String>) {
        if self.notes.len() < MAX_CONVERTED {
            self.notes.push(Note { line, text: text.into() });
        }
    }
}

fn read(path: &Path) -> Result<String, String> {
    if path != Path::new("-") {
        return read_file(path).map(|file| file.text).map_err(|fault| format!("{}: {fault}", path.display()));
    }
    let mut text = String::new();
    let read = std::io::stdin().lock().take(MAX_FILE_BYTES as u64).read_to_string(&mut text);
    read.map(|_| text).map_err(|error| format!("standard input can't be read: {error}"))
}
