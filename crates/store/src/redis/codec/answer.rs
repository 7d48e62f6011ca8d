//! What the script answers.

use std::ops::Range;

use smallvec::SmallVec;
use tollgate_core::algorithm::{Bucket, FixedWindow, SlidingWindow};
use tollgate_core::{
    Algorithm, Charge, Claim, EXACT, Reading, Replay, Settlement, Slot, Source, Span, State, Timestamp, Wait,
    settle_into,
};

use super::record;
use crate::sharded::Failure;

/// The answer to a call.
#[derive(Debug)]
pub(in crate::redis) struct Reply {
    /// When it was settled, by the script's clock.
    pub(in crate::redis) at: Timestamp,
    /// How many values were not what they should be, and counted as fresh.
    pub(in crate::redis) unsound: u16,
    /// Where the answer to each packet is, in their order.
    pub(in crate::redis) answers: Vec<Range<usize>>,
}

const FIRST: u8 = 0;
const AGAIN: u8 = 1;
const CONFLICT: u8 = 2;
const UNDER_WAY: u8 = 3;
/// Not readings but what the value was, or the states in it, or several of these.
const BEFORE: u8 = 4;
const STATES_BEFORE: u8 = 5;
const SEVERAL_BEFORE: u8 = 6;

/// What a reading says. Whatever else it is: there is no room now, and there will be soon.
pub(super) const ADMITS: u8 = 1;
pub(super) const LATER: u8 = 2;
pub(super) const NEVER: u8 = 4;

/// Bytes of a packed value before its names, and of a name.
const VALUE_HEAD: usize = 7;
const NAME: usize = 17;

/// An answer that can't be read.
const GARBLED: &str = "the script's answer can't be read: is the key prefix shared with another program?";

impl Reply {
    /// Finds the answers. `None` if that is not what the script answers to so many packets.
    pub(in crate::redis) fn of(reply: &[u8], packets: usize) -> Option<Reply> {
        let mut rest = Bytes(reply);
        let (at, unsound) = (rest.number(8)?, rest.number(2)?);
        let mut answers = Vec::with_capacity(packets);
        for _ in 0..packets {
            let length = usize::try_from(rest.number(4)?).ok()?;
            let start = reply.len() - rest.0.len();
            // And the status.
            rest.take(length.checked_add(1)?)?;
            answers.push(start..start + 1 + length);
        }
        rest.0.is_empty().then_some(Reply { at: Timestamp::from_micros(at), unsound: unsound as u16, answers })
    }
}

/// Reads the answer to a claim that was settled at this moment.
pub(in crate::redis) fn read(
    at: Timestamp,
    answer: &[u8],
    claim: &Claim<'_>,
    settlement: &mut Settlement,
) -> Result<(), Failure> {
    settlement.readings.clear();
    settlement.at = at;
    let mut rest = Bytes(answer);
    let read = match rest.number(1).map(|status| status as u8) {
        Some(FIRST) => {
            settlement.replay = Replay::First;
            in_ticks(&mut rest, claim, settlement)
        }
        Some(AGAIN) => record::read(&mut rest, settlement),
        Some(CONFLICT) => {
            conflict(claim, settlement);
            Some(())
        }
        Some(form @ (BEFORE | STATES_BEFORE | SEVERAL_BEFORE)) => from_before(form, rest, claim, settlement),
        Some(UNDER_WAY) => return Err(Failure::Pending),
        _ => None,
    };
    read.ok_or_else(|| Failure::Refused(GARBLED.to_owned()))
}

fn in_ticks(rest: &mut Bytes<'_>, claim: &Claim<'_>, settlement: &mut Settlement) -> Option<()> {
    for charge in &claim.charges {
        let reading = reading_in_ticks(rest, charge, settlement.at)?;
        settlement.readings.push(reading);
    }
    rest.0.is_empty().then_some(())
}

/// Does what the script did, on what the counters were: the core says what that means for every charge.
fn from_before(form: u8, mut rest: Bytes<'_>, claim: &Claim<'_>, settlement: &mut Settlement) -> Option<()> {
    let mut slots = SmallVec::<[Slot; 4]>::new();
    if form == SEVERAL_BEFORE {
        let mut charges = &claim.charges[..];
        while !rest.0.is_empty() {
            let (form, count, length) = (rest.number(1)?, rest.number(1)?, rest.number(2)?);
            let (these, others) = charges.split_at_checked(count as usize)?;
            lend(form as u8, Bytes(rest.take(length as usize)?), these, &mut slots)?;
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

/// The slots of charges whose counters were these. No bytes are no counters.
fn lend(form: u8, mut rest: Bytes<'_>, charges: &[Charge<'_>], slots: &mut SmallVec<[Slot; 4]>) -> Option<()> {
    if rest.0.is_empty() {
        slots.extend(charges.iter().map(|_| Slot::default()));
        return Some(());
    }
    if form == BEFORE {
        rest.take(VALUE_HEAD + NAME * charges.len())?;
    }
    for charge in charges {
        let stale_at = Timestamp::from_secs(rest.number(5)?);
        slots.push(Slot::new(small_state(&mut rest, charge.limit.algorithm())?, stale_at));
    }
    rest.0.is_empty().then_some(())
}

/// The state of a counter that is packed with others.
fn small_state(rest: &mut Bytes<'_>, algorithm: Algorithm) -> Option<State> {
    let (one, two) = (rest.number(7)?, rest.number(7)?);
    Some(match algorithm {
        Algorithm::Bucket { .. } => State::Bucket(Bucket { level: one, at: two }),
        Algorithm::FixedWindow => State::FixedWindow(FixedWindow { start: one, used: two }),
        Algorithm::SlidingWindow { sub_windows: 1 } => {
            State::SlidingWindow(SlidingWindow { start: one, counts: [two, rest.number(7)?] })
        }
        _ => return None,
    })
}

fn conflict(claim: &Claim<'_>, settlement: &mut Settlement) {
    settlement.replay = Replay::Conflict;
    settlement.readings.extend(claim.charges.iter().map(|_| Reading {
        admits: false,
        taken: 0,
        remaining: 0,
        wait: Wait::Forever,
        reset_after: Span::ZERO,
        delay: Span::ZERO,
        source: Source::Store,
    }));
}

fn reading_in_ticks(rest: &mut Bytes<'_>, charge: &Charge<'_>, now: Timestamp) -> Option<Reading> {
    let tick = charge.limit.period().tick();
    let said = rest.number(1)? as u8;
    let (taken, remaining) = (rest.units()?, rest.units()?);
    let until = |ticks: u64| tick.until(now, tick.at(now).saturating_add(ticks));
    let (wait, reset_after, delay) = (until(rest.number(7)?), until(rest.number(7)?), tick.span(rest.number(7)?));
    let wait = wait_said(said, wait);
    Some(Reading { admits: said == ADMITS, taken, remaining, wait, reset_after, delay, source: Source::Store })
}

pub(super) fn wait_said(said: u8, wait: Span) -> Wait {
    match said {
        LATER => Wait::For(wait),
        NEVER => Wait::Forever,
        _ => Wait::None,
    }
}

/// What is left to read.
pub(super) struct Bytes<'b>(pub(super) &'b [u8]);

impl<'b> Bytes<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// A number of units.
    pub(super) fn units(&mut self) -> Option<u64> {
        self.number(7).filter(|units| *units < EXACT)
    }

    /// A number of so many bytes, at most eight.
    pub(super) fn number(&mut self, bytes: usize) -> Option<u64> {
        let mut number = [0; 8];
        number.get_mut(..bytes)?.copy_from_slice(self.take(bytes)?);
        Some(u64::from_le_bytes(number))
    }
}
