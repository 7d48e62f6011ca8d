//! The current minute of one shard.
//!
//! Most keys are rare, and listing a key costs more than a decision. So after many decisions a new key that has nothing to
//! report but a decision has to pass a doorkeeper first: an array of small counters, indexed by a part of the hash. The
//! doorkeeper withholds at most its threshold of any key; that is added to what every key may have missed.

use std::sync::Arc;

use tollgate::{Charge, KeyPrivacy};

use super::key_name::KeyName;
use super::summary::{DECISIONS, Floor, KeyMap, KeyStats, KeyTerms, REFUSALS, Retention, Summary};

/// The keys of one shard in the current minute.
#[derive(Debug)]
pub(crate) struct CurrentMinute {
    minute: u64,
    totals: [u64; 2],
    floor: Floor,
    keys: KeyMap<KeyStats>,
    /// Decisions of unlisted keys, by a part of their hashes.
    doorkeeper: Box<[u8; DOORKEEPER_SLOTS]>,
    /// The largest of these counts.
    max_withheld: u8,
    /// A buffer for names.
    text: String,
    /// The form of private values in names.
    privacy: Arc<KeyPrivacy>,
}

/// The effect of a rollover.
#[derive(Debug)]
pub(crate) enum Rollover {
    /// The minute has not changed.
    None,
    /// This minute is complete, with its summary.
    Completed(u64, Summary),
    /// The clock was set back.
    ClockSetBack,
}

/// The result of one limit for one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation<'s, 'a> {
    pub(crate) charge: &'s Charge<'a>,
    /// The name of the rule. Its counters may be identified by another text, as those of a tree are by their path.
    pub(crate) rule: &'s str,
    /// The limit refused.
    pub(crate) refused: bool,
    /// Units over the limit.
    pub(crate) over: u64,
    /// Utilisation of the counter, per mille.
    pub(crate) used: Option<u32>,
    /// The tier, or its placeholder.
    pub(crate) tier: &'s str,
}

/// Keys retained by each measure when a shard is full.
pub(crate) const RETENTION: Retention = Retention { counted: 560, used: 256 };
/// Keys of a shard: a few hundred more than are retained by all measures. A hash table of this size has 2,048 slots.
pub(crate) const MAX_KEYS: usize = 1_792;
/// Counters of the doorkeeper.
const DOORKEEPER_SLOTS: usize = 16_384;
/// The threshold rises by one per this many decisions: half as fast as uniformly distributed keys would arrive.
const DECISIONS_PER_ADMISSION: u64 = 8_192;
/// From this utilisation on, per mille, a counter is near its limit.
pub(crate) const NEAR_LIMIT_PERMILLE: u32 = 800;
/// A clock may be behind by this many minutes before counting starts over.
const MAX_MINUTES_BEHIND: u64 = 10;

impl CurrentMinute {
    pub(crate) fn new(privacy: Arc<KeyPrivacy>) -> CurrentMinute {
        CurrentMinute {
            minute: 0,
            totals: [0; 2],
            floor: Floor::default(),
            keys: KeyMap::default(),
            doorkeeper: Box::new([0; DOORKEEPER_SLOTS]),
            max_withheld: 0,
            text: String::new(),
            privacy,
        }
    }

    /// Rolls over to this minute. A clock that is slightly behind changes nothing.
    #[inline]
    pub(crate) fn roll_over(&mut self, minute: u64) -> Rollover {
        if minute == self.minute {
            return Rollover::None;
        }
        self.roll_over_from(self.minute, minute)
    }

    #[cold]
    fn roll_over_from(&mut self, over: u64, minute: u64) -> Rollover {
        if minute < over && over - minute <= MAX_MINUTES_BEHIND {
            return Rollover::None;
        }
        let summary = self.take();
        self.minute = minute;
        if over < minute { Rollover::Completed(over, summary) } else { Rollover::ClockSetBack }
    }

    /// Counts the result of a limit.
    #[inline]
    pub(crate) fn count(&mut self, hash: u128, observation: Observation<'_, '_>) {
        self.totals[DECISIONS] += 1;
        let Some(stats) = self.keys.get_mut(&hash) else { return self.count_unlisted(hash, observation) };
        self.totals[REFUSALS] += u64::from(observation.refused);
        stats.count(observation);
    }

    /// Counts a blocked caller: no limit was evaluated.
    pub(crate) fn count_blocked(&mut self, hash: u128, name: impl FnOnce() -> KeyName) {
        self.totals[DECISIONS] += 1;
        self.totals[REFUSALS] += 1;
        self.make_room();
        let floor = self.floor;
        let stats = self.keys.entry(hash).or_insert_with(|| KeyStats::new(name(), &floor));
        stats.counted[DECISIONS] += 1;
        stats.counted[REFUSALS] += 1;
    }

    /// The summary so far.
    pub(crate) fn summary(&self) -> Summary {
        let keys = self.keys.iter().map(|(hash, stats)| (*hash, stats.without_terms())).collect();
        Summary { totals: self.totals, floor: self.floor, keys }.with_missed(self.max_withheld.into())
    }

    fn count_unlisted(&mut self, hash: u128, observation: Observation<'_, '_>) {
        if self.is_withheld(hash, &observation) {
            return;
        }
        self.list(hash, observation);
    }

    /// Whether the doorkeeper withholds an unlisted key.
    #[inline]
    fn is_withheld(&mut self, hash: u128, observation: &Observation<'_, '_>) -> bool {
        let threshold = self.threshold();
        let is_plain =
            !observation.refused && observation.over == 0 && !self.floor.is_below_fullness(hash, observation.used);
        if threshold == 0 || !is_plain {
            return false;
        }
        // The low half indexes the hash table.
        let withheld = &mut self.doorkeeper[(hash >> 64) as usize % DOORKEEPER_SLOTS];
        if u64::from(*withheld) >= threshold {
            return false;
        }
        *withheld += 1;
        self.max_withheld = self.max_withheld.max(*withheld);
        true
    }

    /// Decisions that the doorkeeper withholds of a key. It only rises.
    fn threshold(&self) -> u64 {
        (self.totals[DECISIONS] / DECISIONS_PER_ADMISSION).min(u8::MAX.into())
    }

    #[cold]
    fn list(&mut self, hash: u128, observation: Observation<'_, '_>) {
        self.totals[REFUSALS] += u64::from(observation.refused);
        self.make_room();
        let secret = self.privacy.log_secret();
        let mut stats = KeyStats::new(
            KeyName::from_key(&mut self.text, observation.rule, &observation.charge.key, secret),
            &self.floor,
        );
        stats.count(observation);
        self.keys.insert(hash, stats);
    }

    fn make_room(&mut self) {
        if self.keys.len() < MAX_KEYS {
            return;
        }
        self.floor.raise(RETENTION, self.keys.iter().map(|(hash, stats)| (*hash, stats)));
        let floor = self.floor;
        self.keys.retain(|hash, stats| floor.is_below(*hash, stats));
    }

    fn take(&mut self) -> Summary {
        let (keys, max_withheld) = (self.keys.drain().collect(), std::mem::take(&mut self.max_withheld));
        self.doorkeeper.fill(0);
        let (totals, floor) = (std::mem::take(&mut self.totals), std::mem::take(&mut self.floor));
        Summary { totals, floor, keys }.with_missed(max_withheld.into())
    }

    /// The memory in use, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        // A hash table has one slot in eight to spare, and a control byte per slot.
        let slots = (self.keys.capacity() * 8 / 7).next_power_of_two();
        let names = self.keys.values().map(KeyStats::bytes).sum::<usize>();
        size_of::<CurrentMinute>()
            + DOORKEEPER_SLOTS
            + slots * (size_of::<(u128, KeyStats)>() + 1)
            + names
            + self.text.capacity()
    }
}

impl KeyStats {
    #[inline]
    fn count(&mut self, observation: Observation<'_, '_>) {
        self.counted[DECISIONS] += 1;
        self.counted[REFUSALS] += u64::from(observation.refused);
        self.refused_units = self.refused_units.saturating_add(observation.over);
        if observation.used > self.used {
            self.used = observation.used;
            if self.near.is_none() && observation.used >= Some(NEAR_LIMIT_PERMILLE) {
                self.near =
                    Some(Box::new(KeyTerms { tier: observation.tier.into(), limit: observation.charge.limit.clone() }));
            }
        }
    }
}
