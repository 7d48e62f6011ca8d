//! Keys that have been near their limit for several minutes, and the tier that would fit them.

use std::collections::VecDeque;

use tollgate::{Algorithm, Limit, Span, Timestamp};

use super::current::NEAR_LIMIT_PERMILLE;
use super::key_name::KeyName;
use super::summary::{KeyMap, KeyStats, KeyTerms, Summary};

/// A key that has been near its limit for several minutes.
#[derive(Clone, Debug, PartialEq)]
pub struct SustainedKey {
    /// The name of the key.
    pub name: KeyName,
    /// Its tier and limit.
    pub terms: KeyTerms,
    /// Utilisation in the last minute, per mille.
    pub used_permille: u32,
    /// Demand per period of its limit: used and refused units.
    pub demand: u64,
    /// The start of the first minute of the streak.
    pub since: Timestamp,
}

/// A tier that may fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TierFit<'t> {
    /// Its name.
    pub tier: &'t str,
    /// Its limit; `None` is unlimited.
    pub limit: Option<&'t Limit>,
}

/// For how long each key has been near its limit.
#[derive(Debug, Default)]
pub(crate) struct Streaks {
    keys: KeyMap<Streak>,
    /// The first minute that was not evaluated yet.
    next: u64,
    /// The latest keys that became sustained, newest last, and how many there were in all.
    recent: VecDeque<SustainedKey>,
    events: u64,
}

#[derive(Debug)]
struct Streak {
    name: KeyName,
    terms: KeyTerms,
    used: u32,
    since: u64,
    /// Refused units of each of the last minutes.
    refused: [u64; SUSTAINED_MINUTES as usize],
    last: u64,
}

/// Minutes after which a streak is sustained.
const SUSTAINED_MINUTES: u64 = 5;
/// Minutes that can be evaluated late.
const MAX_LATE_MINUTES: u64 = 6;
/// Retained events.
const MAX_EVENTS: usize = 256;
const MINUTE: Span = Span::from_secs(60);

impl Streaks {
    /// Evaluates all minutes before this one.
    pub(crate) fn roll_over<'s>(&mut self, minute: u64, over: impl Fn(u64) -> Option<&'s Summary>) {
        if minute + 2 * MAX_LATE_MINUTES < self.next {
            // The clock was set back.
            self.keys.clear();
            self.next = minute;
        }
        for minute in self.next.max(minute.saturating_sub(MAX_LATE_MINUTES))..minute {
            for (hash, stats) in over(minute).into_iter().flat_map(Summary::stats) {
                self.evaluate(minute, *hash, stats);
            }
            self.keys.retain(|_, streak| streak.last == minute);
            self.next = minute + 1;
        }
    }

    fn evaluate(&mut self, minute: u64, hash: u128, stats: &KeyStats) {
        let (Some(used), Some(terms)) = (stats.used.filter(|used| *used >= NEAR_LIMIT_PERMILLE), &stats.near) else {
            return;
        };
        let streak = self.keys.entry(hash).or_insert_with(|| Streak {
            name: stats.name.clone(),
            terms: (**terms).clone(),
            used,
            since: minute,
            refused: [0; SUSTAINED_MINUTES as usize],
            last: minute,
        });
        if streak.last + 1 < minute {
            (streak.since, streak.refused) = (minute, [0; SUSTAINED_MINUTES as usize]);
        }
        if streak.terms != **terms {
            streak.terms = (**terms).clone();
        }
        (streak.used, streak.last) = (used, minute);
        streak.refused[(minute % SUSTAINED_MINUTES) as usize] = stats.refused_units;
        if minute - streak.since + 1 == SUSTAINED_MINUTES {
            self.events += 1;
            self.recent.push_back(streak.to_sustained());
            if self.recent.len() > MAX_EVENTS {
                self.recent.pop_front();
            }
        }
    }

    /// Keys whose streak is sustained and not over, longest first.
    pub(crate) fn sustained(&self, minute: u64) -> Vec<SustainedKey> {
        let long = |streak: &&Streak| streak.last - streak.since + 1 >= SUSTAINED_MINUTES && streak.last + 1 >= minute;
        let mut all: Vec<_> = self.keys.values().filter(long).map(Streak::to_sustained).collect();
        all.sort_unstable_by(|one, other| {
            let order = |one: &SustainedKey| (one.since, std::cmp::Reverse(one.used_permille));
            order(one).cmp(&order(other)).then_with(|| one.name.key().cmp(other.name.key()))
        });
        all
    }

    /// Keys that became sustained after event number `event`, and the number of the last event.
    pub(crate) fn since(&self, event: u64) -> (u64, Vec<SustainedKey>) {
        let new = usize::try_from(self.events.saturating_sub(event)).unwrap_or(usize::MAX).min(self.recent.len());
        (self.events, self.recent.iter().skip(self.recent.len() - new).cloned().collect())
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The memory in use, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let keys = self.keys.values().map(|streak| streak.name.bytes() + streak.terms.tier.len());
        let recent = self.recent.iter().map(|recent| recent.name.bytes() + recent.terms.tier.len());
        keys.chain(recent).sum::<usize>()
            + self.keys.capacity() * (size_of::<(u128, Streak)>() + 1)
            + self.recent.capacity() * size_of::<SustainedKey>()
    }
}

impl Streak {
    fn to_sustained(&self) -> SustainedKey {
        let refused = self.refused.iter().fold(0u64, |sum, units| sum.saturating_add(*units));
        SustainedKey {
            name: self.name.clone(),
            demand: demand(&self.terms.limit, self.used, refused),
            terms: self.terms.clone(),
            used_permille: self.used,
            since: Timestamp::from_micros(self.since * MINUTE.as_micros()),
        }
    }
}

/// Demand for a limit per period: used units, and a period's share of the units refused in the last minutes. For requests in
/// flight the demand is unknown: at least one more.
fn demand(limit: &Limit, used_permille: u32, refused: u64) -> u64 {
    let used = share_rounded_up(limit.quota(), u64::from(used_permille), 1_000);
    let observed_for = SUSTAINED_MINUTES * MINUTE.as_micros();
    match limit.algorithm() {
        Algorithm::Concurrency => used.saturating_add(refused.min(1)),
        _ => used.saturating_add(share_rounded_up(
            refused,
            limit.period().span().as_micros().min(observed_for),
            observed_for,
        )),
    }
}

/// `parts` of `whole` of a number, rounded up.
fn share_rounded_up(number: u64, parts: u64, whole: u64) -> u64 {
    let share = (u128::from(number) * u128::from(parts)).div_ceil(u128::from(whole.max(1)));
    u64::try_from(share).unwrap_or(u64::MAX)
}

impl SustainedKey {
    /// The tier with the smallest limit of which the caller would use less than four fifths. Unlimited best_fit everyone and is the
    /// largest. `tiers` are those of its rule.
    pub fn best_fit<'t>(&self, tiers: impl IntoIterator<Item = TierFit<'t>>) -> Option<TierFit<'t>> {
        let current = &self.terms.limit;
        let is_concurrency = |limit: &Limit| limit.algorithm() == Algorithm::Concurrency;
        let room = |fit: &TierFit<'_>| {
            let Some(limit) = fit.limit else { return Some(u128::MAX) };
            if is_concurrency(limit) != is_concurrency(current) {
                return None;
            }
            // Per period of the current limit, so that limits per second and per minute compare.
            let (quota, period) = (u128::from(limit.quota()), u128::from(limit.period().span().as_micros().max(1)));
            Some(match is_concurrency(limit) {
                true => quota,
                false => quota * u128::from(current.period().span().as_micros()) / period,
            })
        };
        let fitting = tiers.into_iter().filter_map(|fit| Some((room(&fit)?, fit)));
        let fitting = fitting
            .filter(|(room, _)| room.saturating_mul(u128::from(NEAR_LIMIT_PERMILLE)) > u128::from(self.demand) * 1_000);
        fitting.min_by_key(|(room, _)| *room).map(|(_, fit)| fit)
    }

    /// Describes it in a sentence, with these texts for the caller, the limit and the time; `fit` is a tier and its limit.
    pub fn describe(&self, who: &str, current: &str, since: &str, fit: Option<(&str, &str)>) -> String {
        let (rule, tier, percent) = (self.name.rule(), &self.terms.tier, self.used_permille / 10);
        let who = if who.is_empty() { "the counter that all callers share" } else { who };
        let demand = match self.terms.limit.algorithm() {
            Algorithm::Concurrency => format!("{} at once", self.demand),
            _ => format!("about {} in that time", self.demand),
        };
        let remedy = match fit {
            Some((tier, limit)) => format!("tier {tier} ({limit}) would fit"),
            None => "no tier of the rule would fit".to_owned(),
        };
        format!(
            "{who} has used 80 % or more of {current} (rule {rule}, tier {tier}) in every minute since {since}, {percent} % in the \
             last one, and requests {demand}: {remedy}"
        )
    }
}

#[cfg(test)]
mod tests;
