//! What a caller asks, in whatever protocol it came.

use crate::claim::ClaimId;
use crate::limit::Limit;

/// A request to be decided. It borrows from whatever the wire parsed.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Whose rules; `None` where the rules have a single domain.
    pub domain: Option<&'a str>,
    /// Who and what, in one or several lists.
    pub descriptors: &'a [Descriptor<'a>],
    /// What it costs where no descriptor says otherwise. 0 is a look.
    pub cost: u64,
    /// The caller's own name for the claim, where it needs one to release or extend what it holds.
    pub claim: Option<ClaimId>,
}

/// One list of attributes, in the order that the caller gave.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'a> {
    /// Names and values.
    pub entries: &'a [(&'a str, &'a str)],
    /// What it costs, where that differs from the request's cost.
    pub hits: Option<u64>,
    /// A limit that came with the request, in place of those that the descriptor leads to in a tree.
    pub limit: Option<&'a Limit>,
}

impl<'a> Descriptor<'a> {
    /// A list of attributes and nothing else.
    pub const fn new(entries: &'a [(&'a str, &'a str)]) -> Descriptor<'a> {
        Descriptor { entries, hits: None, limit: None }
    }
}

impl Request<'_> {
    /// The most descriptors that a request may have.
    pub const MOST_DESCRIPTORS: usize = 64;
    /// The most entries that a descriptor may have.
    pub const MOST_ENTRIES: usize = 32;
    /// The longest name or value, in bytes.
    pub const LONGEST_TEXT: usize = 4096;
}
