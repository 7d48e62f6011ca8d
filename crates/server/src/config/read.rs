//! Reads the texts of settings by their kinds, and keeps what is wrong with them.

use std::time::Duration;

use http::HeaderName;
use tollgate_rules::problem::Fault;

use super::origin::{Given, Problems};
use super::settings::Percent;
use super::table::Kind;
use super::text;
use super::values::Values;

/// Reads values. Every method that returns `None` has told why.
pub(super) struct Reader<'v> {
    pub(super) values: &'v Values,
    problems: &'v mut Problems,
}

impl<'v> Reader<'v> {
    pub(super) fn new(values: &'v Values, problems: &'v mut Problems) -> Reader<'v> {
        Reader { values, problems }
    }

    pub(super) fn switch(&mut self, name: &str) -> Option<bool> {
        self.read(name, |text, _| text::switch(text))
    }

    pub(super) fn count<N: TryFrom<u64>>(&mut self, name: &str) -> Option<N> {
        self.read(name, |text, kind| {
            let count = match kind {
                Kind::Number { least, most } => text::number(text, least, most)?,
                Kind::Size { least, most } => text::size(text, least, most)?,
                _ => return Err(mismatch()),
            };
            N::try_from(count).map_err(|_| Fault::new("it is too large for this machine", "write a smaller number"))
        })
    }

    pub(super) fn time(&mut self, name: &str) -> Option<Duration> {
        self.read(name, time_of)
    }

    pub(super) fn percent(&mut self, name: &str) -> Option<Percent> {
        self.read(name, |text, _| text::percent(text))
    }

    pub(super) fn header(&mut self, name: &str) -> Option<HeaderName> {
        self.read(name, |text, _| text::header(text))
    }

    /// The name of a header, as it was written.
    pub(super) fn header_text(&mut self, name: &str) -> Option<String> {
        self.read(name, |text, _| text::header(text).map(|_| text.to_owned()))
    }

    pub(super) fn word<T: Copy>(&mut self, name: &str, words: &[&'static str], meanings: &[T]) -> Option<T> {
        self.read(name, |text, _| {
            let place = text::word(text, words)?;
            meanings.get(place).copied().ok_or_else(mismatch)
        })
    }

    pub(super) fn list<T>(&mut self, name: &str, read: impl Fn(&str) -> Result<T, Fault>) -> Option<Vec<T>> {
        self.read(name, |text, _| text::list(text)?.into_iter().map(&read).collect())
    }

    /// A value, or the word that says that there is none.
    pub(super) fn or<T>(
        &mut self,
        name: &str,
        none: &str,
        read: impl FnOnce(&str, Kind) -> Result<T, Fault>,
    ) -> Option<Option<T>> {
        self.read(name, |text, kind| {
            if text == none {
                return Ok(None);
            }
            read(text, kind)
                .map(Some)
                .map_err(|fault| Fault::new(fault.message, format!("{}, or {none}", fault.remedy)))
        })
    }

    pub(super) fn read<T>(&mut self, name: &str, read: impl FnOnce(&str, Kind) -> Result<T, Fault>) -> Option<T> {
        let read = match self.values.find(name) {
            Some((setting, Given { text: Ok(text), .. })) => match text.trim() {
                "" => {
                    Err(Fault::new("it is empty", format!("write a value such as {}, or remove it", setting.default)))
                }
                text => read(text, setting.kind),
            },
            Some((_, Given { text: Err(fault), .. })) => Err(fault.clone()),
            None => Err(mismatch()),
        };
        match read {
            Ok(value) => Some(value),
            Err(Fault { message, remedy }) => {
                self.refuse(name, Fault::new(format!("`{name}`: {message}"), remedy));
                None
            }
        }
    }

    pub(super) fn refuse(&mut self, name: &str, fault: Fault) {
        let place = self.values.given(name).map_or_else(String::new, |given| given.origin.place());
        self.problems.error(place, fault);
    }
}

pub(super) fn time_of(text: &str, kind: Kind) -> Result<Duration, Fault> {
    match kind {
        Kind::Time { least, most, .. } => text::time(text, least, most),
        _ => Err(mismatch()),
    }
}

/// The table and its readers disagree. A test reads every setting, so nobody is told this.
pub(super) fn mismatch() -> Fault {
    Fault::new("the program does not know how to read it", "report this as a defect")
}
