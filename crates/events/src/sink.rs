//! Where lines go.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tollgate_core::Span;

/// A line of JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkLine {
    /// Receivers recognise by it what they have already.
    pub id: Arc<str>,
    pub text: Arc<str>,
}

/// The number of lines that were taken, from the first on.
pub type Sending<'a> = Pin<Box<dyn Future<Output = Result<usize, SinkError>> + Send + 'a>>;

/// Where lines of JSON go: webhooks, files, standard output.
pub trait Sink: fmt::Debug + Send + Sync {
    /// What it is: `webhook`, `files`, `stdout`.
    fn kind(&self) -> &'static str;

    /// The most lines that it takes at once.
    fn max_lines(&self) -> usize;

    /// Sends lines in their order.
    fn send<'a>(&'a self, lines: &'a [SinkLine]) -> Sending<'a>;
}

/// Why lines were not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkError {
    /// They may be later; if the receiver says so, after that time.
    Retry { why: String, after: Option<Span> },
    /// They never will be; others may.
    Permanent(String),
    /// The receiver takes no more.
    Gone,
}

impl fmt::Display for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SinkError::Retry { why, .. } | SinkError::Permanent(why) => f.write_str(why),
            SinkError::Gone => f.write_str("the receiver takes no more (410)"),
        }
    }
}
