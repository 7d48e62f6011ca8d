//! Encodes and decodes idempotency records.
//!
//! A record is self-contained, because the rules may change while it lasts: each reading includes the tick of its
//! limit, and omits fields that are zero. The record of a claim over several locations is in microseconds.

use tollgate_core::{Claim, Reading, Replay, Settlement, Source, Span, Tick, Timestamp, Wait};

use super::answer::{ADMITS, ByteReader, LATER, NEVER, wait_from_status};
use super::{MAX_UNITS, seven};

/// The script's code for a claim that passed.
const PASSED: u64 = 2;

/// The status of a reading has three bits, the tick has two more, and one bit says that there is a delay.
const STATUS: u8 = 7;
const TICK: u8 = 24;
const MILLI: u8 = 8;
const SECOND: u8 = 16;
const DELAYED: u8 = 32;

/// The readings of a claim over several locations, as the script would record them.
pub(super) fn readings(settlement: &Settlement) -> Vec<u8> {
    let mut record = Vec::with_capacity(22 * settlement.readings.len());
    for reading in &settlement.readings {
        let (status, wait) = match (reading.admits, reading.wait) {
            (true, _) => (ADMITS, None),
            (false, Wait::None) => (0, None),
            (false, Wait::For(span)) => (LATER, Some(span)),
            (false, Wait::Forever) => (NEVER, None),
        };
        let delay = Some(reading.delay).filter(|delay| *delay > Span::ZERO);
        record.push(status | if delay.is_some() { DELAYED } else { 0 });
        record.extend_from_slice(&seven(reading.taken));
        record.extend_from_slice(&seven(reading.remaining));
        for span in [Some(reading.reset_after), wait, delay].into_iter().flatten() {
            record.extend_from_slice(&seven(span.as_micros().min(MAX_UNITS)));
        }
    }
    record
}

/// Decodes the first answer: whether the claim passed, its terms, its time and its readings. If the readings were
/// corrupted, there are none.
pub(super) fn read(rest: &mut ByteReader<'_>, settlement: &mut Settlement) -> Option<()> {
    let (passed, terms) = (rest.number(1)? == PASSED, rest.number(8)?);
    settlement.at = Timestamp::from_micros(rest.number(7)?);
    settlement.replay = Replay::Again { terms, passed };
    while !rest.0.is_empty() {
        match reading(rest, settlement.at).filter(|_| settlement.readings.len() < Claim::MAX_CHARGES) {
            Some(reading) => settlement.readings.push(reading),
            None => {
                settlement.readings.clear();
                break;
            }
        }
    }
    Some(())
}

fn reading(rest: &mut ByteReader<'_>, settled_at: Timestamp) -> Option<Reading> {
    let head = rest.number(1)? as u8;
    let tick = match head & TICK {
        0 => Tick::Micro,
        MILLI => Tick::Milli,
        SECOND => Tick::Second,
        _ => return None,
    };
    let until = |ticks: u64| tick.until(settled_at, tick.at(settled_at).saturating_add(ticks));
    let status = head & STATUS;
    let (taken, remaining, reset_after) = (rest.units()?, rest.units()?, until(rest.number(7)?));
    let wait = if status == LATER { until(rest.number(7)?) } else { Span::ZERO };
    let delay = if head & DELAYED == 0 { Span::ZERO } else { tick.span(rest.number(7)?) };
    let wait = wait_from_status(status, wait);
    Some(Reading { admits: status == ADMITS, taken, remaining, wait, reset_after, delay, source: Source::Store })
}
