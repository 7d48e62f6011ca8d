//! The verdict: one answer from the readings of a claim.

use crate::claim::{Ask, Charge, Claim, Mode};
use crate::settle::{Reading, Settlement, Source, Vote};
use crate::time::{Span, Wait};

/// The meaning of a settlement for the request. Charges are given by their index in the claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the request may pass.
    pub allowed: bool,
    /// The charge that refuses the request: the one with the longest wait. Charges of mode `AnyOf` refuse only
    /// together; the one with the shortest wait represents them.
    pub denied_by: Option<usize>,
    /// How long the caller should wait before it retries.
    pub wait: Wait,
    /// The enforced charge with the fewest units left.
    pub tightest: Option<usize>,
    /// How long an allowed request should be delayed.
    pub delay: Span,
    /// The least certain source among the enforced readings.
    pub source: Source,
}

impl Verdict {
    /// The verdict on a settled claim.
    #[inline]
    pub fn reach(claim: &Claim<'_>, settlement: &Settlement) -> Verdict {
        let votes = || claim.charges.iter().zip(&settlement.readings).enumerate();
        let mut vote = Vote::default();
        let mut tightest = None;
        let (mut delay, mut source) = (Span::ZERO, Source::Store);
        for (at, (charge, reading)) in votes() {
            vote.count(charge.ask, charge.mode, reading.admits);
            if is_enforced(charge) {
                if tightest.is_none_or(|(fewest, _)| reading.remaining < fewest) {
                    tightest = Some((reading.remaining, at));
                }
                delay = delay.max(reading.delay);
                source = source.max(reading.source);
            }
        }
        let allowed = vote.passes();
        let denied_by = if allowed { None } else { denied_by(votes()) };
        let wait = denied_by.map_or(Wait::None, |at| settlement.readings[at].wait);
        Verdict { allowed, denied_by, wait, tightest: tightest.map(|(_, at)| at), delay, source }
    }

    /// The verdict on a claim that was settled before, by terms that are no longer available. It repeats the first
    /// verdict. The reading that refused is unknown; the longest finite wait is used in its place, or `Forever` if no
    /// wait is finite.
    pub fn from_replay(passed: bool, settlement: &Settlement) -> Verdict {
        let readings = || settlement.readings.iter();
        if passed {
            let delay = readings().map(|reading| reading.delay).max().unwrap_or_default();
            return Verdict { allowed: true, delay, ..Verdict::default() };
        }
        let waits = || readings().filter(|reading| !reading.admits).map(|reading| reading.wait);
        let ends = waits().filter(|wait| *wait != Wait::Forever && *wait != Wait::None).max();
        let wait = ends.or(waits().max()).filter(|wait| *wait != Wait::None);
        Verdict { allowed: false, wait: wait.unwrap_or(Wait::For(Reading::RETRY_AFTER)), ..Verdict::default() }
    }
}

fn is_enforced(charge: &Charge<'_>) -> bool {
    charge.ask == Ask::Exactly && matches!(charge.mode, Mode::Enforce | Mode::AnyOf)
}

#[inline(never)]
fn denied_by<'c, 'a: 'c>(votes: impl Iterator<Item = (usize, (&'c Charge<'a>, &'c Reading))>) -> Option<usize> {
    let mut longest: Option<(Wait, usize)> = None;
    let mut shortest: Option<(Wait, usize)> = None;
    let mut any_has_room = false;
    for (at, (charge, reading)) in votes.filter(|(_, (charge, _))| charge.ask == Ask::Exactly) {
        match charge.mode {
            Mode::Enforce if !reading.admits && longest.is_none_or(|(wait, _)| wait < reading.wait) => {
                longest = Some((reading.wait, at));
            }
            Mode::AnyOf if reading.admits => any_has_room = true,
            Mode::AnyOf if shortest.is_none_or(|(wait, _)| reading.wait < wait) => shortest = Some((reading.wait, at)),
            _ => {}
        }
    }
    let any_of = shortest.filter(|_| !any_has_room);
    match (longest, any_of) {
        (Some(one), Some(other)) if one.0 < other.0 => Some(other.1),
        (Some(one), _) => Some(one.1),
        (None, other) => other.map(|(_, at)| at),
    }
}
