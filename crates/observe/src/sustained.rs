//! Keys that have been near their limit for long, and the tier that would fit them.

use std::collections::VecDeque;

use tollgate::{Algorithm, Limit, Span, Timestamp};

use crate::hitters::{ByHash, Cell, NEAR, Name, Summary, Terms};

/// A key that has been near its limit for long.
#[derive(Clone, Debug, PartialEq)]
pub struct Sustained {
    /// Whose.
    pub name: Name,
    /// What it is held to.
    pub terms: Terms,
    /// How full its counter was in the last minute, in thousandths.
    pub used_of_1_000: u32,
    /// What it asked for in a period of its limit: what it used, and what it was refused.
    pub asked: u64,
    /// The first minute in which it was near, without an end since.
    pub since: Timestamp,
}

/// A tier that would fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit<'t> {
    /// Its name.
    pub tier: &'t str,
    /// Its limit; `None` is unlimited.
    pub limit: Option<&'t Limit>,
}

/// How long each key has been near its limit.
#[derive(Debug, Default)]
pub(crate) struct Streaks {
    keys: ByHash<Streak>,
    /// The first minute that was not looked at.
    next: u64,
    /// Those that became long, the newest last, and how many there were in all.
    begun: VecDeque<Sustained>,
    events: u64,
}

#[derive(Debug)]
struct Streak {
    name: Name,
    terms: Terms,
    used: u32,
    since: u64,
    /// Units that were refused in each of the last minutes.
    refused: [u64; LONG as usize],
    last: u64,
}

/// So many minutes are long.
const LONG: u64 = 5;
/// Minutes that may be looked at late.
const LATE: u64 = 6;
/// How many that became long are remembered.
const MOST_BEGUN: usize = 256;
const MINUTE: Span = Span::from_secs(60);

impl Streaks {
    /// Looks at all minutes before this one.
    pub(crate) fn turn<'s>(&mut self, minute: u64, over: impl Fn(u64) -> Option<&'s Summary>) {
        if minute + 2 * LATE < self.next {
            // The clock was set back.
            self.keys.clear();
            self.next = minute;
        }
        for minute in self.next.max(minute.saturating_sub(LATE))..minute {
            for (hash, cell) in over(minute).into_iter().flat_map(Summary::cells) {
                self.look(minute, *hash, cell);
            }
            self.keys.retain(|_, streak| streak.last == minute);
            self.next = minute + 1;
        }
    }

    fn look(&mut self, minute: u64, hash: u128, cell: &Cell) {
        let (Some(used), Some(terms)) = (cell.used.filter(|used| *used >= NEAR), &cell.near) else { return };
        let streak = self.keys.entry(hash).or_insert_with(|| Streak {
            name: cell.name.clone(),
            terms: (**terms).clone(),
            used,
            since: minute,
            refused: [0; LONG as usize],
            last: minute,
        });
        if streak.last + 1 < minute {
            (streak.since, streak.refused) = (minute, [0; LONG as usize]);
        }
        if streak.terms != **terms {
            streak.terms = (**terms).clone();
        }
        (streak.used, streak.last) = (used, minute);
        streak.refused[(minute % LONG) as usize] = cell.refused_units;
        if minute - streak.since + 1 == LONG {
            self.events += 1;
            self.begun.push_back(streak.told());
            if self.begun.len() > MOST_BEGUN {
                self.begun.pop_front();
            }
        }
    }

    /// Those that are near now and have been for long, the longest first.
    pub(crate) fn sustained(&self, minute: u64) -> Vec<Sustained> {
        let long = |streak: &&Streak| streak.last - streak.since + 1 >= LONG && streak.last + 1 >= minute;
        let mut all: Vec<_> = self.keys.values().filter(long).map(Streak::told).collect();
        all.sort_unstable_by(|one, other| {
            let told = |one: &Sustained| (one.since, std::cmp::Reverse(one.used_of_1_000));
            told(one).cmp(&told(other)).then_with(|| one.name.key().cmp(other.name.key()))
        });
        all
    }

    /// Those that became long after the event of this number, and the number of the last one.
    pub(crate) fn since(&self, event: u64) -> (u64, Vec<Sustained>) {
        let new = usize::try_from(self.events.saturating_sub(event)).unwrap_or(usize::MAX).min(self.begun.len());
        (self.events, self.begun.iter().skip(self.begun.len() - new).cloned().collect())
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let keys = self.keys.values().map(|streak| streak.name.bytes() + streak.terms.tier.len());
        let begun = self.begun.iter().map(|begun| begun.name.bytes() + begun.terms.tier.len());
        keys.chain(begun).sum::<usize>()
            + self.keys.capacity() * (size_of::<(u128, Streak)>() + 1)
            + self.begun.capacity() * size_of::<Sustained>()
    }
}

impl Streak {
    fn told(&self) -> Sustained {
        let refused = self.refused.iter().fold(0u64, |sum, units| sum.saturating_add(*units));
        Sustained {
            name: self.name.clone(),
            asked: asked(&self.terms.limit, self.used, refused),
            terms: self.terms.clone(),
            used_of_1_000: self.used,
            since: Timestamp::from_micros(self.since * MINUTE.as_micros()),
        }
    }
}

/// What was asked of a limit in a period of it: what was used, and the share of what was refused in the last minutes that falls on a
/// period. Of requests in flight it is not known how many there would have been: one more at least.
fn asked(limit: &Limit, used_of_1_000: u32, refused: u64) -> u64 {
    let used = of(limit.quota(), u64::from(used_of_1_000), 1_000);
    let seen_for = LONG * MINUTE.as_micros();
    match limit.algorithm() {
        Algorithm::Concurrency => used.saturating_add(refused.min(1)),
        _ => used.saturating_add(of(refused, limit.period().span().as_micros().min(seen_for), seen_for)),
    }
}

/// So many parts of a number, rounded up.
fn of(number: u64, parts: u64, whole: u64) -> u64 {
    let share = (u128::from(number) * u128::from(parts)).div_ceil(u128::from(whole.max(1)));
    u64::try_from(share).unwrap_or(u64::MAX)
}

impl Sustained {
    /// The tier with the smallest limit of which the caller would use less than four fifths. Unlimited fits everybody, and is the
    /// largest of all. `tiers` are those of its rule.
    pub fn fits<'t>(&self, tiers: impl IntoIterator<Item = Fit<'t>>) -> Option<Fit<'t>> {
        let held_to = &self.terms.limit;
        let is_held = |limit: &Limit| limit.algorithm() == Algorithm::Concurrency;
        let room = |fit: &Fit<'_>| {
            let Some(limit) = fit.limit else { return Some(u128::MAX) };
            if is_held(limit) != is_held(held_to) {
                return None;
            }
            // In periods of the limit that it has now, so that limits by the second and by the minute can be told apart.
            let (quota, period) = (u128::from(limit.quota()), u128::from(limit.period().span().as_micros().max(1)));
            Some(match is_held(limit) {
                true => quota,
                false => quota * u128::from(held_to.period().span().as_micros()) / period,
            })
        };
        let fitting = tiers.into_iter().filter_map(|fit| Some((room(&fit)?, fit)));
        let fitting =
            fitting.filter(|(room, _)| room.saturating_mul(u128::from(NEAR)) > u128::from(self.asked) * 1_000);
        fitting.min_by_key(|(room, _)| *room).map(|(_, fit)| fit)
    }

    /// All of it in a sentence, in these words for who it is, what it is held to and since when; `fit` is a tier and its limit.
    pub fn says(&self, who: &str, held_to: &str, since: &str, fit: Option<(&str, &str)>) -> String {
        let (rule, tier, percent) = (self.name.rule(), &self.terms.tier, self.used_of_1_000 / 10);
        let who = if who.is_empty() { "one counter for all" } else { who };
        let asked = match self.terms.limit.algorithm() {
            Algorithm::Concurrency => format!("{} at once", self.asked),
            _ => format!("about {} in that time", self.asked),
        };
        let remedy = match fit {
            Some((tier, limit)) => format!("the tier {tier} ({limit}) would fit"),
            None => "no tier of the rule would fit".to_owned(),
        };
        format!(
            "{who} has used 80 % or more of {held_to} (rule {rule}, tier {tier}) in every minute since {since}, {percent} % in the \
             last one, and asks for {asked}: {remedy}"
        )
    }
}

#[cfg(test)]
mod tests;
