//! `tollgate completions` and `tollgate man`: the command line as scripts and pages.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap_complete::Shell;

use super::{EXIT_FAILURE, NAME, print_error, write_output};

/// The directory of the pages is left to the caller: systems differ.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tollgate man | man -l -\n  \
    tollgate man ~/.local/share/man/man1")]
pub(super) struct ManPages {
    /// The directory for the pages of all commands; without it, the first page goes to standard output
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tollgate completions bash > ~/.local/share/bash-completion/completions/tollgate\n  \
    tollgate completions zsh > ~/.zfunc/_tollgate\n  \
    tollgate completions fish > ~/.config/fish/completions/tollgate.fish")]
pub(super) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub(super) fn run(&self, mut command: clap::Command) -> ExitCode {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, NAME, &mut script);
        write_output(&String::from_utf8_lossy(&script), 0)
    }
}

impl ManPages {
    pub(super) fn run(&self, command: clap::Command) -> ExitCode {
        match self.write(command) {
            Ok(text) => write_output(&text, 0),
            Err(message) => {
                print_error(format_args!("error: {message}"));
                ExitCode::from(EXIT_FAILURE)
            }
        }
    }

    /// Writes the pages; the text is for standard output.
    fn write(&self, command: clap::Command) -> Result<String, String> {
        let Some(directory) = &self.directory else {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(command).render(&mut page);
            return rendered.map(|()| String::from_utf8_lossy(&page).into_owned()).map_err(|error| error.to_string());
        };
        let failed = |error: io::Error| format!("the pages can't be written to {}: {error}", directory.display());
        fs::create_dir_all(directory).map_err(failed)?;
        clap_mangen::generate_to(command, directory).map_err(failed)?;
        Ok(format!("the pages are in {}\n", directory.display()))
    }
}
