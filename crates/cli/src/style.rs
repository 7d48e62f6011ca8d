//! Colours of output for people. Programs, files and `NO_COLOR` get plain text.

use std::env;
use std::io::{self, IsTerminal as _};

/// The colours of one output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Palette {
    is_coloured: bool,
}

/// What a text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Bad,
    Unusual,
    /// Of less interest.
    Quiet,
    Heading,
}

impl Palette {
    /// The colours of standard output.
    pub(crate) fn of_stdout() -> Palette {
        let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
        let is_dumb = variable("TERM").is_none_or(|terminal| terminal == "dumb");
        Palette { is_coloured: io::stdout().is_terminal() && variable("NO_COLOR").is_none() && !is_dumb }
    }

    /// A text in the colour of its meaning.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        if !self.is_coloured || text.is_empty() {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Good => "32",
            Tone::Bad => "1;31",
            Tone::Unusual => "33",
            Tone::Quiet => "2",
            Tone::Heading => "1",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

#[cfg(test)]
mod tests {
    use super::{Palette, Tone};

    #[test]
    fn without_colours_texts_are_unchanged() {
        assert_eq!(Palette { is_coloured: false }.paint(Tone::Bad, "error"), "error");
        assert_eq!(Palette { is_coloured: true }.paint(Tone::Bad, "error"), "\u{1b}[1;31merror\u{1b}[0m");
    }
}
