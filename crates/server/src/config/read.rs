//! Parses the texts of settings by their kinds and collects the problems.

use std::time::Duration;

use http::HeaderName;
use tollgate_rules::problem::TextFault;

use super::origin::{ConfigProblems, SettingValue};
use super::settings::Percent;
use super::table::SettingKind;
use super::text;
use super::values::Values;

/// Parses values. Every method that returns `None` has reported an error.
pub(super) struct SettingsReader<'v> {
    pub(super) values: &'v Values,
    problems: &'v mut ConfigProblems,
}

impl<'v> SettingsReader<'v> {
    pub(super) fn new(values: &'v Values, problems: &'v mut ConfigProblems) -> SettingsReader<'v> {
        SettingsReader { values, problems }
    }

    pub(super) fn switch(&mut self, name: &str) -> Option<bool> {
        self.read(name, |text, _| text::switch(text))
    }

    pub(super) fn count<N: TryFrom<u64>>(&mut self, name: &str) -> Option<N> {
        self.read(name, |text, kind| {
            let count = match kind {
                SettingKind::Number { min, max } => text::number(text, min, max)?,
                SettingKind::Size { min, max } => text::size(text, min, max)?,
                _ => return Err(mismatch()),
            };
            N::try_from(count).map_err(|_| TextFault::new("it is too large for this machine", "write a smaller number"))
        })
    }

    pub(super) fn time(&mut self, name: &str) -> Option<Duration> {
        self.read(name, parse_time)
    }

    pub(super) fn percent(&mut self, name: &str) -> Option<Percent> {
        self.read(name, |text, _| text::percent(text))
    }

    pub(super) fn header(&mut self, name: &str) -> Option<HeaderName> {
        self.read(name, |text, _| text::header(text))
    }

    /// The name of a header, with its capitals.
    pub(super) fn header_text(&mut self, name: &str) -> Option<String> {
        self.read(name, |text, _| text::header(text).map(|_| text.to_owned()))
    }

    pub(super) fn word<T: Copy>(&mut self, name: &str, words: &[&'static str], values: &[T]) -> Option<T> {
        self.read(name, |text, _| {
            let position = text::word(text, words)?;
            values.get(position).copied().ok_or_else(mismatch)
        })
    }

    pub(super) fn list<T>(&mut self, name: &str, read: impl Fn(&str) -> Result<T, TextFault>) -> Option<Vec<T>> {
        self.read(name, |text, _| text::list(text)?.into_iter().map(&read).collect())
    }

    /// A value, or `None` for the word `none`.
    pub(super) fn or<T>(
        &mut self,
        name: &str,
        none: &str,
        read: impl FnOnce(&str, SettingKind) -> Result<T, TextFault>,
    ) -> Option<Option<T>> {
        self.read(name, |text, kind| {
            if text == none {
                return Ok(None);
            }
            read(text, kind)
                .map(Some)
                .map_err(|fault| TextFault::new(fault.message, format!("{}, or {none}", fault.remedy)))
        })
    }

    pub(super) fn read<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str, SettingKind) -> Result<T, TextFault>,
    ) -> Option<T> {
        let read = match self.values.find(name) {
            Some((setting, SettingValue { text: Ok(text), .. })) => match text.trim() {
                "" => Err(TextFault::new(
                    "it is empty",
                    format!("write a value such as {}, or remove it", setting.default),
                )),
                text => read(text, setting.kind),
            },
            Some((_, SettingValue { text: Err(fault), .. })) => Err(fault.clone()),
            None => Err(mismatch()),
        };
        match read {
            Ok(value) => Some(value),
            Err(TextFault { message, remedy }) => {
                self.reject(name, TextFault::new(format!("`{name}`: {message}"), remedy));
                None
            }
        }
    }

    pub(super) fn reject(&mut self, name: &str, fault: TextFault) {
        let place = self.values.get(name).map_or_else(String::new, |value| value.origin.place());
        self.problems.error(place, fault);
    }
}

pub(super) fn parse_time(text: &str, kind: SettingKind) -> Result<Duration, TextFault> {
    match kind {
        SettingKind::Time { min, max, .. } => text::time(text, min, max),
        _ => Err(mismatch()),
    }
}

/// The table and the parsers disagree. A test parses every setting, so users never get this error.
pub(super) fn mismatch() -> TextFault {
    TextFault::new("the program can't parse it", "report this as a bug")
}
