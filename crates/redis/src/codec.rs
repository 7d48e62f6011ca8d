//! Encodes claims for the script, and decodes its answers.
//!
//! All numbers are little-endian with as many bytes as they need: units and ticks seven (they are below 2^53),
//! lengths two or four. A call is a header (the clock, if it is set by hand; the number of limits and claims), the
//! limits, each once, the keys of long values, and the claims. An answer has a reading of fixed size for each charge.

mod answer;
mod call;
mod record;

use foldhash::fast::FixedState;
use smallvec::SmallVec;
use std::hash::BuildHasher;
use tollgate_core::{Algorithm, Ask, Charge, Claim, Key, Limit, Mode, Once, Span, Timestamp};

use super::names::{self, CounterId, Names};
use tollgate_store::sharded::OnceRecord;

pub(super) use answer::{ScriptReply, lacks_keys, read};
pub(super) use call::ScriptCall;

/// A claim as it is sent: everything that a call needs.
#[derive(Debug)]
pub(super) struct Packet {
    /// The keys of its values, each once.
    keys: SmallVec<[Box<[u8]>; 1]>,
    /// The keys of the values that its packed counters may have of their own, if they are declared.
    own_keys: Vec<Box<[u8]>>,
    /// The encoded limits.
    limits: SmallVec<[LimitCode; 1]>,
    charges: SmallVec<[ChargeCode; 1]>,
    flags: u8,
    claim: u128,
    once: Option<OnceCode>,
}

/// An encoded limit.
type LimitCode = SmallVec<[u8; 32]>;

#[derive(Clone, Copy, Debug)]
struct ChargeCode {
    /// The index of its value in `keys`.
    key: u16,
    limit: u16,
    operation: u8,
    units: u64,
    id: CounterId,
    /// Whether the id depends on the request.
    varies: bool,
    /// Whether the value may be so long that the script reads only parts of it.
    is_long: bool,
    /// For a `Return`, in microseconds: returns of one moment are combined, but not all returns of one tick.
    taken_at: Option<u64>,
}

#[derive(Debug)]
struct OnceCode {
    op: u8,
    key: u16,
    body: u64,
    terms: u64,
    keep: Span,
    verdict: Option<VerdictCode>,
}

/// The verdict on a claim over several locations.
#[derive(Debug)]
struct VerdictCode {
    passed: bool,
    settled_at: Timestamp,
    readings: Vec<u8>,
}

/// Charges interact: on one key, or because they do more than ask.
const INTERACTING: u8 = 1;
/// The claim's id is included: holds need it.
const WITH_ID: u8 = 2;
const ONCE: u8 = 4;
/// The same units of a few small counters in one value, as in most claims.
const SIMPLE: u8 = 8;
/// The same in several values, one after the other.
const SEVERAL: u8 = 16;
/// The claim is on one counter whose slot is being moved: its packed value and its own value may be on two nodes.
const APART: u8 = 32;
/// The maximum number of charges of a simple claim.
const MAX_SIMPLE_CHARGES: usize = 32;

/// The smallest amount of a limit whose log may be long.
const MIN_LONG_LOG: u64 = 300;

/// The largest meaningful number of units: more than any limit has, and exact.
const MAX_UNITS: u64 = tollgate_core::EXACT - 1;

impl Packet {
    /// Encodes a claim. Its calendar periods are those around `now`.
    pub(super) fn new(claim: &Claim<'_>, record: OnceRecord<'_>, names: &Names, now: Timestamp) -> Packet {
        let mut packet = Packet {
            keys: SmallVec::new(),
            own_keys: Vec::new(),
            limits: SmallVec::new(),
            charges: SmallVec::new(),
            flags: 0,
            claim: claim.id.0,
            once: None,
        };
        let mut before: Option<(&Key<'_>, u16)> = None;
        for charge in &claim.charges {
            let is_packed = is_packed(charge.limit);
            let key = match before {
                Some((other, key)) if is_packed && charge.key.shares_partition_with(other) => key,
                _ if is_packed => packet.name(names.packed(&charge.key)),
                _ => packet.name(names.own(&charge.key)),
            };
            if is_packed {
                before = Some((&charge.key, key));
            }
            packet.add(charge, key, names.id(&charge.key), now);
        }
        if let Some(once) = &claim.once {
            packet.record(once, record, names);
        }
        if packet.is_simple(claim) {
            packet.flags = if packet.keys.len() == 1 { SIMPLE } else { SEVERAL };
        }
        packet
    }

    /// The approximate number of bytes that it adds to a call.
    pub(super) fn size(&self) -> usize {
        let keys: usize = self.keys.iter().chain(&self.own_keys).map(|key| key.len() + 16).sum();
        let verdict = self.once.as_ref().and_then(|once| once.verdict.as_ref());
        let readings = verdict.map_or(0, |verdict| verdict.readings.len());
        keys + 40 * (self.limits.len() + self.charges.len() + 1) + readings
    }

    /// The same for claims on the same counters, so that they can be sent together.
    pub(super) fn partition(&self) -> u64 {
        FixedState::default().hash_one(self.keys.first())
    }

    /// Declares the keys of the values that its packed counters may have of their own.
    pub(super) fn declare_own_keys(&mut self) {
        self.own_keys = self.packed_charges().map(|charge| self.own_key(charge)).collect();
    }

    /// Whether it needs only one key, apart from the own value of a single packed counter.
    pub(super) fn has_one_key(&self) -> bool {
        let mut packed = self.packed_charges().map(|charge| charge.id);
        let first = packed.next();
        self.keys.len() == 1 && packed.all(|id| Some(id) == first)
    }

    /// Settles a claim with one key in its packed value, if the counter is there, or announces its own value there.
    pub(super) fn set_apart(&mut self) {
        if self.packed_charges().next().is_some() {
            self.flags = self.flags & !(SIMPLE | SEVERAL) | APART;
        }
    }

    /// Settles a claim with one key in the counter's own value.
    pub(super) fn use_own_key(&mut self) {
        let own = self.packed_charges().next().map(|charge| self.own_key(charge));
        if let Some(key) = own {
            self.keys = SmallVec::from_iter([key]);
        }
    }

    fn packed_charges(&self) -> impl Iterator<Item = &ChargeCode> {
        self.charges.iter().filter(|charge| {
            let kind = self.limits.get(usize::from(charge.limit)).and_then(|limit| limit.first());
            kind.is_some_and(|kind| *kind <= LAST_PACKED_KIND)
        })
    }

    /// The key of a counter's own value: that of the packed value, followed by its id.
    fn own_key(&self, charge: &ChargeCode) -> Box<[u8]> {
        let packed = self.keys.get(usize::from(charge.key)).map_or(&[][..], |key| key);
        [packed, &charge.id].concat().into()
    }

    fn is_simple(&self, claim: &Claim<'_>) -> bool {
        let units = self.charges.first().map(|charge| charge.units);
        self.flags == 0
            && self.charges.is_sorted_by_key(|charge| charge.key)
            && (1..=MAX_SIMPLE_CHARGES).contains(&self.charges.len())
            && self.charges.iter().all(|charge| Some(charge.units) == units)
            && claim.charges.iter().all(|charge| is_packed(charge.limit))
    }

    fn name(&mut self, name: String) -> u16 {
        let existing = self.keys.iter().position(|key| **key == *name.as_bytes());
        // A claim has at most `Claim::MAX_CHARGES` charges.
        existing.unwrap_or_else(|| {
            self.keys.push(name.into_bytes().into());
            self.keys.len() - 1
        }) as u16
    }

    fn add(&mut self, charge: &Charge<'_>, key: u16, id: CounterId, now: Timestamp) {
        let (units, is_hold) = match charge.limit.algorithm() {
            Algorithm::Concurrency => (charge.units.min(1), true),
            _ => (charge.units.min(MAX_UNITS), false),
        };
        let taken_at = match charge.ask {
            Ask::Return { taken_at } => Some(taken_at.as_micros()),
            _ => None,
        };
        let code = ChargeCode {
            key,
            limit: self.limit(charge.limit, now),
            operation: 4 * ask(charge.ask) + mode(charge.mode),
            units,
            id,
            varies: names::varies(&charge.key),
            is_long: charge.limit.algorithm() == Algorithm::SlidingLog && charge.limit.amount() >= MIN_LONG_LOG,
            taken_at,
        };
        let meets = |other: &ChargeCode| other.key == code.key && other.id == code.id;
        if charge.ask != Ask::Exactly || self.charges.iter().any(meets) {
            self.flags |= INTERACTING;
        }
        if is_hold {
            self.flags |= WITH_ID;
        }
        self.charges.push(code);
    }

    fn limit(&mut self, limit: &Limit, now: Timestamp) -> u16 {
        let code = limit_code(limit, now);
        let existing = self.limits.iter().position(|other| *other == code);
        existing.unwrap_or_else(|| {
            self.limits.push(code);
            self.limits.len() - 1
        }) as u16
    }

    fn record(&mut self, once: &Once<'_>, record: OnceRecord<'_>, names: &Names) {
        let (op, keep, verdict) = match record {
            OnceRecord::Whole | OnceRecord::Part(_) => (1, once.keep, None),
            OnceRecord::Pending => (2, once.keep, None),
            OnceRecord::Verdict { settlement, passed, keep } => {
                let readings = record::readings(settlement);
                (3, keep, Some(VerdictCode { passed, settled_at: settlement.at, readings }))
            }
        };
        self.flags |= ONCE;
        let key = self.name(match record {
            OnceRecord::Part(name) => names.part(&once.key, name),
            OnceRecord::Whole | OnceRecord::Pending | OnceRecord::Verdict { .. } => names.once(&once.key),
        });
        self.once = Some(OnceCode { op, key, body: once.body, terms: once.terms, keep, verdict });
    }
}

/// Whether a limit's counters are small and share a value with others of their partition.
fn is_packed(limit: &Limit) -> bool {
    matches!(
        limit.algorithm(),
        Algorithm::Bucket { .. } | Algorithm::FixedWindow | Algorithm::SlidingWindow { sub_windows: 1 }
    )
}

fn ask(ask: Ask) -> u8 {
    match ask {
        Ask::Exactly => 0,
        Ask::UpTo => 1,
        Ask::Regardless => 2,
        Ask::Return { .. } => 3,
        Ask::Reset => 4,
        Ask::Credit => 5,
    }
}

fn mode(mode: Mode) -> u8 {
    match mode {
        Mode::Enforce => 0,
        Mode::AnyOf => 1,
        Mode::Shadow => 2,
        Mode::Soft => 3,
    }
}

/// The kinds up to this one are packed.
const LAST_PACKED_KIND: u8 = 3;

/// The script's number for an algorithm.
fn kind(algorithm: Algorithm) -> u8 {
    match algorithm {
        Algorithm::Bucket { .. } => 1,
        Algorithm::FixedWindow => 2,
        Algorithm::SlidingWindow { sub_windows: 1 } => 3,
        Algorithm::SlidingWindow { .. } => 4,
        Algorithm::SlidingLog => 5,
        Algorithm::Concurrency => 6,
    }
}

fn limit_code(limit: &Limit, now: Timestamp) -> LimitCode {
    let (paced, parts) = match limit.algorithm() {
        Algorithm::Bucket { paced, .. } => (u8::from(paced), 0),
        // At most `Limit::MAX_SUB_WINDOWS`.
        Algorithm::SlidingWindow { sub_windows } => (0, sub_windows as u8),
        _ => (0, 0),
    };
    let period = limit.period();
    let boundaries = period.as_calendar().map(|calendar| calendar.boundaries(now.as_micros() / 1_000_000));
    let boundaries = boundaries.as_ref().map_or(&[][..], |boundaries| &boundaries[..]);
    let mut code = LimitCode::new();
    code.push(kind(limit.algorithm()));
    code.extend_from_slice(&(period.tick().micros() as u32).to_le_bytes());
    code.extend_from_slice(&[paced, parts, boundaries.len() as u8]);
    for number in [limit.amount(), limit.quota(), period.ticks()].iter().chain(boundaries) {
        code.extend_from_slice(&seven(*number));
    }
    code
}

fn seven(number: u64) -> [u8; 7] {
    let [a, b, c, d, e, f, g, _] = number.to_le_bytes();
    [a, b, c, d, e, f, g]
}

#[cfg(test)]
mod tests;
