//! Requests that say two things of their caller.

use std::fmt;

use http::HeaderName;

/// Where a request has several different values, of which servers read one or another: the answer is 400.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmbiguousSource(String);

impl AmbiguousSource {
    pub(super) fn header(name: &HeaderName) -> AmbiguousSource {
        AmbiguousSource(format!("header `{name}`"))
    }

    pub(super) fn parameter(name: &str) -> AmbiguousSource {
        AmbiguousSource(format!("query parameter `{name}`"))
    }

    pub(super) fn cookie(name: &str) -> AmbiguousSource {
        AmbiguousSource(format!("cookie `{name}`"))
    }
}

impl fmt::Display for AmbiguousSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "The {} has several different values, and servers differ in which of them they read; send one.",
            self.0
        )
    }
}
