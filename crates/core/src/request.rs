//! A request to be decided, independent of the wire protocol.

use crate::claim::{Ask, ClaimId};
use crate::limit::Limit;

/// A request to be decided. It borrows from the wire's parsed message.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The domain whose rules apply. `None` if the rules have a single domain.
    pub domain: Option<&'a str>,
    /// The attributes of the request, in one or several lists.
    pub descriptors: &'a [Descriptor<'a>],
    /// The cost, unless a descriptor has its own. 0 is a peek.
    pub cost: u64,
    /// The caller's own claim id, which it needs to release or extend a hold.
    pub claim: Option<ClaimId>,
    /// The operation on the matching limits: take units, debit units that were already spent, refund, credit, or
    /// reset.
    ///
    /// With a claim id, a `Return` releases the holds of that claim; without one, it gives back units. A debit takes
    /// no hold; with a claim id it also releases the holds of that claim, because a caller that knows the final cost
    /// knows that the request has ended.
    pub ask: Ask,
    /// Whether the caller can accept a receipt for the units taken, to settle it when the request has ended. A caller
    /// that accepts no receipt and has no claim id could not release a hold: limits on requests in flight do not
    /// apply to it.
    pub receipt: ReceiptWish,
    /// The idempotency key of the request.
    pub once: Option<&'a str>,
}

/// Whether a caller accepts a receipt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiptWish {
    /// No receipt, even if there is something to settle.
    Never,
    /// A receipt if there is something to settle.
    #[default]
    IfNeeded,
    /// A receipt in any case.
    Always,
}

impl Default for Request<'_> {
    /// A check of cost 1 without attributes.
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

/// One list of attributes, in the caller's order.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'a> {
    /// Names and values.
    pub entries: &'a [(&'a str, &'a str)],
    /// The cost, if it differs from the request's cost.
    pub hits: Option<u64>,
    /// A limit that came with the request. It replaces the limits that the descriptor matches in a tree.
    pub limit: Option<&'a Limit>,
}

impl<'a> Descriptor<'a> {
    /// A list of attributes without a cost or limit of its own.
    pub const fn new(entries: &'a [(&'a str, &'a str)]) -> Descriptor<'a> {
        Descriptor { entries, hits: None, limit: None }
    }
}

impl<'a> Request<'a> {
    /// The names of its attributes, descriptor by descriptor.
    pub fn attribute_names(&self) -> impl Iterator<Item = &'a str> {
        self.descriptors.iter().flat_map(|descriptor| descriptor.entries).map(|(name, _)| *name)
    }

    /// The maximum number of descriptors in a request.
    pub const MAX_DESCRIPTORS: usize = 64;
    /// The maximum number of entries in a descriptor.
    pub const MAX_ENTRIES: usize = 32;
    /// The maximum length of a name or value, in bytes.
    pub const MAX_TEXT_BYTES: usize = 4096;
    /// The maximum length of an idempotency key, in bytes.
    pub const MAX_ONCE_BYTES: usize = 255;
}
