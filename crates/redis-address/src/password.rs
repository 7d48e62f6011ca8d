//! A password that is never printed.

use std::fmt;

/// A password. Formats as three stars.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// The text, to be sent to Redis.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Password {
    fn from(text: String) -> Password {
        Password(text)
    }
}

impl From<&str> for Password {
    fn from(text: &str) -> Password {
        Password(text.to_owned())
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
