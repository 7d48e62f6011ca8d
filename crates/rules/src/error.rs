//! What is wrong with a request.

use std::fmt;

use tollgate_core::Request;

use crate::problem::quoted;

/// Why a request can't be decided as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// There is no such domain.
    UnknownDomain,
    /// There are several domains and it names none.
    NoDomain,
    /// The domain has no rule of this name.
    UnknownRule(Box<str>),
    /// More descriptors, or entries in one, than are looked at.
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many are looked at.
        most: usize,
    },
    /// A name or a value is longer than is looked at.
    TooLong,
    /// The name under which it is to be decided once is empty, or longer than is looked at.
    BadOnce,
    /// A limit that came with the request counts over a length of time that none may.
    UnknownUnit,
    /// The cost is in an attribute that is not a whole number.
    BadCost(Box<BadCost>),
}

/// A cost that is not a whole number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadCost {
    /// The rule that needs it.
    pub rule: String,
    /// The attribute that it is in.
    pub attribute: String,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::UnknownDomain => write!(f, "there are no rules for this domain"),
            RequestError::NoDomain => write!(f, "the rules have several domains; name one"),
            RequestError::UnknownRule(name) => write!(f, "the domain has no rule {}", quoted(name)),
            RequestError::TooMany { what, most } => write!(f, "too many {what}; at most {most}"),
            RequestError::TooLong => {
                write!(f, "a name or value is too long; at most {} bytes", Request::LONGEST_TEXT)
            }
            RequestError::BadOnce => {
                write!(f, "an idempotency key has 1 to {} bytes", Request::LONGEST_ONCE)
            }
            RequestError::UnknownUnit => {
                write!(f, "a limit in the request counts by the second, minute, hour, day, week, month or year")
            }
            RequestError::BadCost(bad) => {
                let BadCost { rule, attribute } = &**bad;
                write!(f, "rule {rule} takes the cost from attribute {attribute}, which is not a whole number")
            }
        }
    }
}

impl std::error::Error for RequestError {}
