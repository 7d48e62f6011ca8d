//! What a caller asks, in whatever protocol it came.

use crate::claim::{Ask, ClaimId};
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
    /// What it asks of the limits that it meets: room, a debit of what was spent already, a refund, a credit, a fresh start.
    ///
    /// Under the caller's own name for the claim a `Return` releases what that claim holds, and without one it gives units back.
    /// A debit takes no hold; under that name it releases the claim's too, since who knows what a request cost knows its end.
    pub ask: Ask,
    /// Whether the caller can be told what was taken, so that it can settle that when the request has ended. One who can't, and
    /// has no name for the claim either, could not release a hold: limits on requests in flight do not apply to it.
    pub receipt: ReceiptWish,
    /// The caller's name for the request, under which it is decided once.
    pub once: Option<&'a str>,
}

/// Whether a caller wants a receipt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiptWish {
    /// Not even if there is something to settle.
    Never,
    /// If there is something to settle.
    #[default]
    IfNeeded,
    /// In any case.
    Always,
}

impl Default for Request<'_> {
    /// A check of cost 1 that says nothing.
    fn default() -> Self {
        Request {
            domain: None,
            descriptors: &[],
            cost: 1,
            claim: None,
            ask: Ask::Exactly,
            receipt: ReceiptWish::default(),
            once: None,
        }
    }
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
    /// The longest name under which a request is decided once, in bytes.
    pub const LONGEST_ONCE: usize = 255;
}
