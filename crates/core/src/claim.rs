//! Everything that can be asked of counters: a request, a look, a lease, a debit, a refund, the release of a slot, a credit, a fresh start.

use smallvec::SmallVec;

use crate::key::Key;
use crate::limit::Limit;
use crate::time::{Span, Timestamp};

/// A set of charges that are settled together, atomically.
#[derive(Clone, Debug)]
pub struct Claim<'a> {
    /// Names the holds that it takes.
    pub id: ClaimId,
    /// What it asks, of which counters.
    pub charges: SmallVec<[Charge<'a>; 4]>,
    /// Settled at most once under this name.
    pub once: Option<Once<'a>>,
    /// How long whoever asks waits for the answer. A store that can't answer by then says so before.
    pub patience: Option<Span>,
}

impl Claim<'_> {
    /// The most charges of one claim.
    pub const MOST_CHARGES: usize = 512;
}

/// What a claim asks of one counter.
#[derive(Clone, Debug)]
pub struct Charge<'a> {
    /// Which counter.
    pub key: Key<'a>,
    /// What it is held to.
    pub limit: &'a Limit,
    /// What is asked.
    pub ask: Ask,
    /// Of how many units. For concurrency none is a look and any other number is one.
    pub units: u64,
    /// What follows if there is no room.
    pub mode: Mode,
    /// What follows if the store can't say.
    pub on_failure: OnFailure,
    /// Only the store itself may answer: budgets, and what may be given back, are never remembered, leased or approximated.
    pub strict: bool,
}

/// What is asked of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The units or nothing. No units are a look.
    Exactly,
    /// As many as there are, at most the units: a lease. It has no vote.
    UpTo,
    /// Spent elsewhere already: recorded even past the limit, and even if the claim does not pass.
    Regardless,
    /// Given back, as far as it still matters.
    Return {
        /// When they were taken.
        taken_at: Timestamp,
    },
    /// Given back, whenever it was taken and as many as there are: the newest first. Holds are not.
    Credit,
    /// Forgotten, whatever was counted and whoever holds something: the counter becomes one that nobody ever used. The units do not
    /// matter.
    Reset,
}

impl Ask {
    /// Whether it is somebody's order, not a request nor a fact: it is done now or not at all. Later it would change what nobody meant.
    pub fn is_order(self) -> bool {
        matches!(self, Ask::Credit | Ask::Reset)
    }
}

/// What a charge without room means for the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The claim does not pass.
    Enforce,
    /// The claim does not pass if all charges of this mode are without room.
    AnyOf,
    /// It passes and this charge takes nothing: it only says what it would have done.
    Shadow,
    /// It passes and this charge is paid past its limit.
    Soft,
}

/// What a charge becomes when the store fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Counted in local memory, at this server's share of the limit.
    Local,
    /// As if there were room.
    Allow,
    /// As if there were none.
    Deny,
}

/// Names a claim; no two claims of a fleet share one unless the caller means the same claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClaimId(pub u128);

/// Makes a claim idempotent: while the record lasts, the same name answers what was answered first and changes nothing.
#[derive(Clone, Debug)]
pub struct Once<'a> {
    /// The name, in a scope of its own and in the caller's partition.
    pub key: Key<'a>,
    /// A digest of what was asked: the same name with another one is a conflict.
    pub body: u64,
    /// A digest of the terms by which it is decided. They may change while the record lasts: it is handed back with the record, and
    /// means nothing to a store.
    pub terms: u64,
    /// How long the record of a passed claim lasts; one that was refused lasts only as long as its wait. With none at all the claim
    /// leaves no record: it is settled unless another was under this name.
    pub keep: Span,
}
