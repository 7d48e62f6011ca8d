//! Errors of requests.

use std::fmt;

use tollgate_core::Request;

use crate::problem::quoted;

/// Why a request cannot be decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The domain does not exist.
    UnknownDomain,
    /// There are several domains and the request names none.
    NoDomain,
    /// The domain has no rule of this name.
    UnknownRule(Box<str>),
    /// Too many descriptors, entries or limits.
    TooMany {
        /// The items.
        what: &'static str,
        /// The maximum.
        max: usize,
    },
    /// A name or a value is too long.
    TooLong,
    /// The idempotency key is empty or too long.
    BadOnce,
    /// A limit that came with the request has an unsupported period.
    UnknownUnit,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::UnknownDomain => write!(f, "there are no rules for this domain"),
            RequestError::NoDomain => write!(f, "the rules have several domains; name one"),
            RequestError::UnknownRule(name) => write!(f, "the domain has no rule {}", quoted(name)),
            RequestError::TooMany { what, max } => write!(f, "too many {what}; at most {max}"),
            RequestError::TooLong => {
                write!(f, "a name or value is too long; at most {} bytes", Request::MAX_TEXT_BYTES)
            }
            RequestError::BadOnce => {
                write!(f, "an idempotency key has 1 to {} bytes", Request::MAX_ONCE_BYTES)
            }
            RequestError::UnknownUnit => {
                write!(f, "a limit in the request counts by the second, minute, hour, day, week, month or year")
            }
        }
    }
}

impl std::error::Error for RequestError {}
