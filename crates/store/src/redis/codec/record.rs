//! What is recorded of a claim that is settled once, and what comes back of it.
//!
//! A record says all that is needed to read it, since the rules may have changed meanwhile: each reading has the tick that its limit
//! counted in, and leaves out what is nothing anyway. A claim over several places is recorded in microseconds.

use tollgate_core::{Claim, Reading, Replay, Settlement, Source, Span, Tick, Timestamp, Wait};

use super::answer::{ADMITS, Bytes, LATER, NEVER, wait_said};
use super::{MOST_UNITS, seven};

/// What the script says of a claim that passed.
const PASSED: u64 = 2;

/// What a reading says has three bits, the tick two more, and then there is one for a delay.
const SAID: u8 = 7;
const TICK: u8 = 24;
const MILLI: u8 = 8;
const SECOND: u8 = 16;
const DELAYED: u8 = 32;

/// The readings of a claim over several places, as the script would record them.
pub(super) fn readings(settlement: &Settlement) -> Vec<u8> {
    let mut record = Vec::with_capacity(22 * settlement.readings.len());
    for reading in &settlement.readings {
        let (said, wait) = match (reading.admits, reading.wait) {
            (true, _) => (ADMITS, None),
            (false, Wait::None) => (0, None),
            (false, Wait::For(span)) => (LATER, Some(span)),
            (false, Wait::Forever) => (NEVER, None),
        };
        let delay = Some(reading.delay).filter(|delay| *delay > Span::ZERO);
        record.push(said | if delay.is_some() { DELAYED } else { 0 });
        record.extend_from_slice(&seven(reading.taken));
        record.extend_from_slice(&seven(reading.remaining));
        for span in [Some(reading.reset_after), wait, delay].into_iter().flatten() {
            record.extend_from_slice(&seven(span.as_micros().min(MOST_UNITS)));
        }
    }
    record
}

/// What was answered the first time: whether the claim passed, its terms, when that was, and its readings. A record whose readings
/// somebody else has spoilt has none.
pub(super) fn read(rest: &mut Bytes<'_>, settlement: &mut Settlement) -> Option<()> {
    let (passed, terms) = (rest.number(1)? == PASSED, rest.number(8)?);
    settlement.at = Timestamp::from_micros(rest.number(7)?);
    settlement.replay = Replay::Again { terms, passed };
    while !rest.0.is_empty() {
        match reading(rest, settlement.at).filter(|_| settlement.readings.len() < Claim::MOST_CHARGES) {
            Some(reading) => settlement.readings.push(reading),
            None => {
                settlement.readings.clear();
                break;
            }
        }
    }
    Some(())
}

fn reading(rest: &mut Bytes<'_>, made: Timestamp) -> Option<Reading> {
    let head = rest.number(1)? as u8;
    let tick = match head & TICK {
        0 => Tick::Micro,
        MILLI => Tick::Milli,
        SECOND => Tick::Second,
        _ => return None,
    };
    let until = |ticks: u64| tick.until(made, tick.at(made).saturating_add(ticks));
    let said = head & SAID;
    let (taken, remaining, reset_after) = (rest.units()?, rest.units()?, until(rest.number(7)?));
    let wait = if said == LATER { until(rest.number(7)?) } else { Span::ZERO };
    let delay = if head & DELAYED == 0 { Span::ZERO } else { tick.span(rest.number(7)?) };
    let wait = wait_said(said, wait);
    Some(Reading { admits: said == ADMITS, taken, remaining, wait, reset_after, delay, source: Source::Store })
}
