//! The command line as a whole: commands, and the server's flags and rule files without a command.

use std::path::Path;

use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Subcommand as _};
use tollgate_rules::problem::nearest;
use tollgate_rules::quoted;

use super::{Cli, Command, ServeCommand};

/// The name of [`ServeCommand`] on the command line.
const SERVE: &str = "serve";

/// A parsed command line.
pub(super) enum Invocation {
    /// `serve`, with its flags.
    Serve(ArgMatches),
    Other(Box<Command>),
}

impl Invocation {
    /// Parses the arguments of the process.
    pub(super) fn parse(serve: ServeCommand) -> Result<Invocation, clap::Error> {
        let mut command = command(serve);
        let matches = command.try_get_matches_from_mut(std::env::args_os())?;
        match matches.subcommand() {
            None => match mistaken_command(&command, &matches, serve.paths) {
                Some(message) => Err(command.error(ErrorKind::InvalidSubcommand, message)),
                None => Ok(Invocation::Serve(matches)),
            },
            Some((SERVE, flags)) => Ok(Invocation::Serve(flags.clone())),
            Some(_) => Command::from_arg_matches(&matches).map(|command| Invocation::Other(Box::new(command))),
        }
    }
}

/// All commands. Without one, the flags of `serve` are accepted but not shown.
pub(super) fn command(serve: ServeCommand) -> clap::Command {
    let root = (serve.add_flags)(Cli::command()).mut_args(|flag| flag.hide(true)).args_conflicts_with_subcommands(true);
    let serve = (serve.add_flags)(clap::Command::new(SERVE))
        .about("Run the server: Envoy's protocol, HTTP and RESP. This is the default command")
        .after_help(serve.after_help);
    Command::augment_subcommands(root.subcommand(serve))
}

/// The error for a word that is taken as a rule file, but is a misspelt or misplaced command.
fn mistaken_command(command: &clap::Command, matches: &ArgMatches, paths: &str) -> Option<String> {
    let mut words = matches.get_many::<String>(paths)?;
    let word = words.find(|word| !word.contains(['.', '/', ',']) && !Path::new(word).exists())?;
    let names = || command.get_subcommands().filter(|command| !command.is_hide_set()).map(clap::Command::get_name);
    let shown = quoted(word);
    // Swapped letters are more likely than others: `lnit` is lint, not init.
    let letters = |word: &str| {
        let mut letters: Vec<char> = word.chars().collect();
        letters.sort_unstable();
        letters
    };
    let anagram = names().find(|name| letters(name) == letters(word));
    Some(match anagram.or_else(|| nearest(word, names())) {
        Some(name) if name == word => {
            format!(
                "the command {shown} comes first, and before it there can't be flags of the server: `tollgate {name}`"
            )
        }
        Some(name) => format!("there is no command {shown}; did you mean `{name}`?"),
        None => format!(
            "there is no command {shown}, and no file or directory of that name; `tollgate help` lists the commands"
        ),
    })
}
