//! Decodes the answers of the script.

use std::ops::Range;

use smallvec::SmallVec;
use tollgate_core::algorithm::{Bucket, FixedWindow, SlidingWindow};
use tollgate_core::{
    Algorithm, Charge, Claim, CounterState, EXACT, Reading, Replay, Settlement, Source, Span, StateSlot, Timestamp,
    Wait, settle_into,
};

use super::record;
use tollgate_store::sharded::Failure;

/// The answer to a call.
#[derive(Debug)]
pub(crate) struct ScriptReply {
    /// The time of the settlement, by the script's clock.
    pub(crate) at: Timestamp,
    /// The number of stored values that were invalid and counted as fresh.
    pub(crate) unsound: u16,
    /// The range of the answer to each packet, in order.
    pub(crate) answers: Vec<Range<usize>>,
}

const FIRST: u8 = 0;
const AGAIN: u8 = 1;
const CONFLICT: u8 = 2;
const PENDING_VERDICT: u8 = 3;
/// Instead of readings: the previous value, the previous states in it, or several of these.
const BEFORE: u8 = 4;
const STATES_BEFORE: u8 = 5;
const SEVERAL_BEFORE: u8 = 6;
/// Nothing was settled, because the claim needs keys that it did not declare.
const LACKS_KEYS: u8 = 7;

/// The status of a reading. With any other status, there is no room now, but there will be soon.
pub(super) const ADMITS: u8 = 1;
pub(super) const LATER: u8 = 2;
pub(super) const NEVER: u8 = 4;

/// The bytes of a packed value before its names, and the bytes of a name.
const VALUE_HEAD: usize = 7;
const NAME: usize = 17;

/// An answer that cannot be read.
const UNREADABLE: &str = "the script's answer cannot be read: is the key prefix shared with another program?";

impl ScriptReply {
    /// Finds the answers. `None` if this is not the script's answer to this number of packets.
    pub(crate) fn parse(reply: &[u8], packets: usize) -> Option<ScriptReply> {
        let mut rest = ByteReader(reply);
        let (at, unsound) = (rest.number(8)?, rest.number(2)?);
        let mut answers = Vec::with_capacity(packets);
        for _ in 0..packets {
            let length = usize::try_from(rest.number(4)?).ok()?;
            let start = reply.len() - rest.0.len();
            // Plus the status.
            rest.take(length.checked_add(1)?)?;
            answers.push(start..start + 1 + length);
        }
        rest.0.is_empty().then_some(ScriptReply { at: Timestamp::from_micros(at), unsound: unsound as u16, answers })
    }
}

/// Whether the claim was not settled, because it needs the keys of its counters' own values.
pub(crate) fn lacks_keys(answer: &[u8]) -> bool {
    answer.first() == Some(&LACKS_KEYS)
}

/// Decodes the answer to a claim that was settled at this time.
pub(crate) fn read(
    at: Timestamp,
    answer: &[u8],
    claim: &Claim<'_>,
    settlement: &mut Settlement,
) -> Result<(), Failure> {
    settlement.readings.clear();
    settlement.at = at;
    let mut rest = ByteReader(answer);
    let read = match rest.number(1).map(|status| status as u8) {
        Some(FIRST) => {
            settlement.replay = Replay::First;
            in_ticks(&mut rest, claim, settlement)
        }
        Some(AGAIN) => record::read(&mut rest, settlement),
        Some(CONFLICT) => {
            *settlement = Settlement::conflict(claim, at);
            Some(())
        }
        Some(form @ (BEFORE | STATES_BEFORE | SEVERAL_BEFORE)) => from_before(form, rest, claim, settlement),
        Some(PENDING_VERDICT) => return Err(Failure::Pending),
        _ => None,
    };
    read.ok_or_else(|| Failure::Interrupted(UNREADABLE.to_owned()))
}

fn in_ticks(rest: &mut ByteReader<'_>, claim: &Claim<'_>, settlement: &mut Settlement) -> Option<()> {
    for charge in &claim.charges {
        let reading = reading_in_ticks(rest, charge, settlement.at)?;
        settlement.readings.push(reading);
    }
    rest.0.is_empty().then_some(())
}

/// Repeats the script's settlement on the previous states. The core computes the readings.
fn from_before(form: u8, mut rest: ByteReader<'_>, claim: &Claim<'_>, settlement: &mut Settlement) -> Option<()> {
    let mut slots = SmallVec::<[StateSlot; 4]>::new();
    if form == SEVERAL_BEFORE {
        let mut charges = &claim.charges[..];
        while !rest.0.is_empty() {
            let (form, count, length) = (rest.number(1)?, rest.number(1)?, rest.number(2)?);
            let (these, others) = charges.split_at_checked(count as usize)?;
            lend(form as u8, ByteReader(rest.take(length as usize)?), these, &mut slots)?;
            charges = others;
        }
    } else {
        lend(form, rest, &claim.charges, &mut slots)?;
    }
    if slots.len() != claim.charges.len() {
        return None;
    }
    settle_into(claim, &mut slots, settlement.at, settlement);
    Some(())
}

/// The slots of charges with these previous states. Without bytes there were no counters.
fn lend(
    form: u8,
    mut rest: ByteReader<'_>,
    charges: &[Charge<'_>],
    slots: &mut SmallVec<[StateSlot; 4]>,
) -> Option<()> {
    if rest.0.is_empty() {
        slots.extend(charges.iter().map(|_| StateSlot::default()));
        return Some(());
    }
    if form == BEFORE {
        rest.take(VALUE_HEAD + NAME * charges.len())?;
    }
    for charge in charges {
        let stale_at = Timestamp::from_secs(rest.number(5)?);
        slots.push(StateSlot::new(small_state(&mut rest, charge.limit.algorithm())?, stale_at));
    }
    rest.0.is_empty().then_some(())
}

/// The state of a packed counter.
fn small_state(rest: &mut ByteReader<'_>, algorithm: Algorithm) -> Option<CounterState> {
    let (one, two) = (rest.number(7)?, rest.number(7)?);
    Some(match algorithm {
        Algorithm::Bucket { .. } => CounterState::Bucket(Bucket { level: one, at: two }),
        Algorithm::FixedWindow => CounterState::FixedWindow(FixedWindow { start: one, used: two }),
        Algorithm::SlidingWindow { sub_windows: 1 } => {
            CounterState::SlidingWindow(SlidingWindow { start: one, counts: [two, rest.number(7)?] })
        }
        _ => return None,
    })
}

fn reading_in_ticks(rest: &mut ByteReader<'_>, charge: &Charge<'_>, now: Timestamp) -> Option<Reading> {
    let tick = charge.limit.period().tick();
    let status = rest.number(1)? as u8;
    let (taken, remaining) = (rest.units()?, rest.units()?);
    let until = |ticks: u64| tick.until(now, tick.at(now).saturating_add(ticks));
    let (wait, reset_after, delay) = (until(rest.number(7)?), until(rest.number(7)?), tick.span(rest.number(7)?));
    let wait = wait_from_status(status, wait);
    Some(Reading { admits: status == ADMITS, taken, remaining, wait, reset_after, delay, source: Source::Store })
}

pub(super) fn wait_from_status(status: u8, wait: Span) -> Wait {
    match status {
        LATER => Wait::For(wait),
        NEVER => Wait::Forever,
        _ => Wait::None,
    }
}

/// The rest of the bytes.
pub(super) struct ByteReader<'b>(pub(super) &'b [u8]);

impl<'b> ByteReader<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// A number of units.
    pub(super) fn units(&mut self) -> Option<u64> {
        self.number(7).filter(|units| *units < EXACT)
    }

    /// A number of this many bytes, at most eight.
    pub(super) fn number(&mut self, bytes: usize) -> Option<u64> {
        let mut number = [0; 8];
        number.get_mut(..bytes)?.copy_from_slice(self.take(bytes)?);
        Some(u64::from_le_bytes(number))
    }
}
