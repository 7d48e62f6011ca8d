//! Claims: the operations on counters. A claim can be a request, a peek, a lease, a debit, a refund, the release of a
//! hold, a credit or a reset.

use smallvec::SmallVec;

use crate::key::{Key, OwnedKey};
use crate::limit::Limit;
use crate::time::{Span, Timestamp};

/// A set of charges that are settled together, atomically.
#[derive(Clone, Debug)]
pub struct Claim<'a> {
    /// Identifies the holds that the claim takes.
    pub id: ClaimId,
    /// One charge for each counter.
    pub charges: SmallVec<[Charge<'a>; 4]>,
    /// If set, the claim is settled at most once under this key.
    pub once: Option<Once<'a>>,
    /// How long the caller waits for the answer. A store that cannot answer within this time returns a failure
    /// earlier.
    pub timeout: Option<Span>,
}

impl Claim<'_> {
    /// The maximum number of charges in a claim.
    pub const MAX_CHARGES: usize = 512;
}

/// One operation on one counter.
#[derive(Clone, Debug)]
pub struct Charge<'a> {
    /// The counter.
    pub key: Key<'a>,
    /// The limit that applies to the counter.
    pub limit: &'a Limit,
    /// The operation.
    pub ask: Ask,
    /// The number of units. For concurrency limits, 0 is a peek and any other number counts as 1.
    pub units: u64,
    /// The effect on the claim if there is no room.
    pub mode: Mode,
    /// The answer if the store is unavailable.
    pub on_failure: OnFailure,
    /// Who may answer instead of the store.
    pub shortcuts: Shortcuts,
}

impl Charge<'_> {
    /// Whether what the charge takes is debited in other regions: its counter is in the region of this process, and others
    /// count the same key.
    pub fn is_global(&self) -> bool {
        self.key.region().is_here() && self.key.scope().global().is_some()
    }
}

/// A [`Charge`] that owns its data, for claims that outlive their requests.
#[derive(Clone, Debug)]
pub struct OwnedCharge {
    /// The counter.
    pub key: OwnedKey,
    /// The limit that applies to the counter.
    pub limit: Limit,
    /// The operation.
    pub ask: Ask,
    /// The number of units.
    pub units: u64,
    /// The effect on the claim if there is no room.
    pub mode: Mode,
    /// The answer if the store is unavailable.
    pub on_failure: OnFailure,
    /// Who may answer instead of the store.
    pub shortcuts: Shortcuts,
}

impl OwnedCharge {
    /// The borrowed form.
    pub fn charge(&self) -> Charge<'_> {
        Charge {
            key: self.key.key(),
            limit: &self.limit,
            ask: self.ask,
            units: self.units,
            mode: self.mode,
            on_failure: self.on_failure,
            shortcuts: self.shortcuts,
        }
    }
}

impl From<&Charge<'_>> for OwnedCharge {
    fn from(charge: &Charge<'_>) -> OwnedCharge {
        OwnedCharge {
            key: OwnedKey::from(&charge.key),
            limit: charge.limit.clone(),
            ask: charge.ask,
            units: charge.units,
            mode: charge.mode,
            on_failure: charge.on_failure,
            shortcuts: charge.shortcuts,
        }
    }
}

/// The operation that a charge performs on a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Takes all of the units or none. With 0 units it is a peek.
    Exactly,
    /// A lease: takes as many units as are available, up to `units`. Has no vote.
    UpTo,
    /// Records units that were already spent elsewhere, even past the limit and even if the claim does not pass.
    Regardless,
    /// Gives back units, as far as they still count.
    Return {
        /// When the units were taken.
        taken_at: Timestamp,
    },
    /// Gives back up to `units`, newest first, regardless of when they were taken. Does not release holds.
    Credit,
    /// Clears the counter, including all holds. `units` is ignored.
    Reset,
}

impl Ask {
    /// Whether this is an operator's order, as opposed to a request or a fact. An order is carried out now or not at
    /// all: applied later, it could change a counter in a way that nobody intended.
    pub fn is_order(self) -> bool {
        matches!(self, Ask::Credit | Ask::Reset)
    }

    /// Whether it asks for units, rather than giving them back or recording them.
    pub fn is_request(self) -> bool {
        matches!(self, Ask::Exactly | Ask::UpTo)
    }
}

/// The effect of a charge without room on the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The claim is refused.
    Enforce,
    /// The claim is refused if all charges of this mode are without room.
    AnyOf,
    /// The claim passes and the charge takes nothing. The reading shows what enforcement would have done.
    Shadow,
    /// The claim passes and the charge takes its units past the limit.
    Soft,
}

impl Mode {
    /// The name in rule files and answers.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Enforce => "enforce",
            Mode::AnyOf => "any_of",
            Mode::Shadow => "shadow",
            Mode::Soft => "soft",
        }
    }
}

/// The answers that a server may give from its own memory while the store is available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shortcuts {
    /// None: only the store answers. For budgets, and for charges that may be given back.
    None,
    /// A refusal that the store gave before, until its wait is over.
    #[default]
    Refusals,
    /// As `Refusals`, and units that the server took from the counter ahead of requests.
    Leases,
    /// As `Leases`, and units that the store counts a moment later: all servers together may exceed the limit by this part
    /// of the quota, in basis points.
    Ahead(u16),
    /// The server counts the claim's hold by itself, and admits against the sum of what all servers count.
    Summed,
}

impl Shortcuts {
    /// Whether a server may answer from units that it took ahead of requests.
    #[inline]
    pub fn has_leases(self) -> bool {
        matches!(self, Shortcuts::Leases | Shortcuts::Ahead(_))
    }

    /// Those of a charge that changes the same counter and is not a request: the store applies it, or the servers that
    /// count by themselves do.
    #[must_use]
    pub fn of_changes(self) -> Shortcuts {
        if self == Shortcuts::Summed { Shortcuts::Summed } else { Shortcuts::None }
    }
}

/// The answer for a charge while the store is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Count in local memory, with this server's share of the limit.
    Local,
    /// Admit.
    Allow,
    /// Refuse.
    Deny,
}

/// Identifies a claim. Unique in the fleet, unless a caller deliberately repeats the same claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClaimId(pub u128);

impl ClaimId {
    /// Begins every generated id. An id that is a digest of a caller's name begins like this once in four billion times.
    const GENERATED: u128 = 0x746f_6c6c << 96;
    /// The number of bits of the number within a process.
    const NUMBER_BITS: u32 = 48;

    /// An id that no caller chose and that is never used for another claim. `process` distinguishes processes, `number`
    /// the claims of one.
    pub const fn generated(process: u64, number: u64) -> ClaimId {
        let mask = (1 << Self::NUMBER_BITS) - 1;
        let (process, number) = ((process & mask) as u128, (number & mask) as u128);
        ClaimId(Self::GENERATED | process << Self::NUMBER_BITS | number)
    }

    /// Whether the id is generated. What such a claim took may be returned at any later time: a caller that repeats its
    /// request gets another id, so it cannot lose what the repetition took.
    pub const fn is_generated(self) -> bool {
        self.0 & (u128::MAX << 96) == Self::GENERATED
    }
}

/// Makes a claim idempotent. While the record lasts, a claim with the same key gets the first answer again and
/// changes nothing.
#[derive(Clone, Debug)]
pub struct Once<'a> {
    /// The key of the record, in a scope of its own and in the caller's partition.
    pub key: Key<'a>,
    /// A digest of the request. The same key with a different digest is a conflict.
    pub body: u64,
    /// A digest of the terms by which the claim is decided. The terms may change while the record lasts: the store
    /// returns this value with the record and does not interpret it.
    pub terms: u64,
    /// How long the record of a passed claim lasts. The record of a refused claim lasts only for its wait. If zero,
    /// the claim leaves no record: it is settled unless a record with this key exists.
    pub keep: Span,
}
