//! The rates of the busiest callers, in a table of a fixed size that many threads count in without locks.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{AVERAGED_SECONDS, MAX_TIERS};

/// The most callers that are counted. Beyond it the least busy ones are forgotten, and never refused.
pub const MAX_CALLERS: usize = SETS * WAYS;

const SETS: usize = 256;
/// Callers with the same set; the least busy of them makes room for another.
const WAYS: usize = 4;
/// How much larger the fair rate of a tier is than that of the tier below it.
const TIER_WEIGHT: f64 = 4.0;
/// How much more than what is admitted is fair: part of it is refused when requests come at the same time, and an upstream
/// that can do more has to show it.
const HEADROOM: f64 = 1.1;
/// A caller that is slower, in requests a second, is forgotten.
const FORGOTTEN: f32 = 0.01;
/// How many times the fair rate is approximated. Each time at least one caller more is below it, most often many.
const MAX_STEPS: usize = 30;

/// Counts and rates of callers.
pub(super) struct Callers(Box<[Set; SETS]>);

/// A set is on a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Set([Caller; WAYS]);

#[derive(Default)]
struct Caller {
    /// A part of the hash, and the tier; 0 if the place is free.
    key: AtomicU64,
    /// Requests since rates were averaged.
    count: AtomicU32,
    /// Requests a second, as bits of an `f32`.
    rate: AtomicU32,
}

/// What rates of callers come to. All in requests a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rates {
    /// Of all callers together.
    offered: f64,
    /// What the upstream admits of it.
    admitted: f64,
    /// Of the busiest caller of each tier.
    highest: [f64; MAX_TIERS],
    /// The fair rate of the lowest tier.
    fair: f64,
    callers: usize,
}

/// What happened since rates were averaged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    pub(super) seconds: f64,
    /// Requests.
    pub(super) offered: u64,
    /// Those that reached the upstream.
    pub(super) admitted: u64,
    /// Whether the upstream could have taken more.
    pub(super) has_room: bool,
}

impl Default for Rates {
    fn default() -> Rates {
        Rates { offered: 0.0, admitted: 0.0, highest: [0.0; MAX_TIERS], fair: f64::INFINITY, callers: 0 }
    }
}

impl Rates {
    /// The most that a caller of a tier may send if the tier is lowered so far: from the rate of its busiest caller down to
    /// the fair one, by equal factors, so that the busiest ones are lowered first.
    pub(super) fn ceiling(&self, tier: usize, lowered: f64) -> f64 {
        let (fair, highest) = (self.fair(tier), self.highest[tier.min(MAX_TIERS - 1)]);
        if lowered <= 0.0 || !(fair > 0.0 && fair < highest) {
            return f64::INFINITY;
        }
        highest * (fair / highest).powf(lowered)
    }

    /// The fair rate of a tier.
    pub(super) fn fair(&self, tier: usize) -> f64 {
        self.fair * weight(tier)
    }

    pub(super) fn callers(&self) -> usize {
        self.callers
    }
}

impl Callers {
    pub(super) fn new() -> Callers {
        Callers(Box::new(std::array::from_fn(|_| Set::default())))
    }

    /// Counts a request of a tier. The rate of its caller.
    #[inline]
    pub(super) fn count(&self, tier: usize, hash: u64) -> f32 {
        let (set, key) = (&self.0[(hash >> 56) as usize % SETS].0, Caller::key(tier, hash));
        match set.iter().find(|caller| caller.key.load(Ordering::Relaxed) == key) {
            Some(caller) => {
                caller.count.fetch_add(1, Ordering::Relaxed);
                caller.rate()
            }
            None => {
                Caller::replace(set, key);
                0.0
            }
        }
    }

    pub(super) fn clear(&self) {
        for caller in self.all() {
            caller.key.store(0, Ordering::Relaxed);
            caller.count.store(0, Ordering::Relaxed);
            caller.rate.store(0, Ordering::Relaxed);
        }
    }

    /// Averages the rates with the requests of some time.
    pub(super) fn average(&self, before: &Rates, past: Past) -> Rates {
        let Past { seconds, offered, admitted, has_room } = past;
        let weight = 1.0 - (-seconds / AVERAGED_SECONDS).exp();
        let average = |before: f64, count: f64| before + weight * (count / seconds - before);
        let (mut sum, mut highest, mut callers) = (0.0, [0.0_f64; MAX_TIERS], 0);
        for caller in self.used() {
            let count = caller.count.swap(0, Ordering::Relaxed);
            let rate = average(caller.rate().into(), count.into()) as f32;
            if rate < FORGOTTEN {
                caller.key.store(0, Ordering::Relaxed);
            }
            caller.rate.store(rate.to_bits(), Ordering::Relaxed);
            sum += f64::from(rate);
            let highest = &mut highest[caller.tier()];
            *highest = highest.max(rate.into());
            callers += 1;
        }
        let offered = average(before.offered, offered as f64);
        let admitted = average(before.admitted, admitted as f64);
        // Less is admitted because callers are lowered, not because the upstream can do less.
        let admitted = if has_room { admitted.max(before.admitted) } else { admitted };
        // What is offered by callers that are not in the table.
        let rest = (offered - sum).max(0.0);
        let fair = self.fair((HEADROOM * admitted - rest).max(0.0), sum, callers);
        Rates { offered, admitted, highest, fair, callers }
    }

    /// The rate such that callers who send no more than it, and the others as much as it, together send what is admitted: in
    /// the lowest tier, and times their weight in others.
    fn fair(&self, admitted: f64, offered: f64, callers: usize) -> f64 {
        if callers == 0 || offered <= admitted {
            return f64::INFINITY;
        }
        // Begins with the same for all, which is too low, and rises by what those below it leave.
        let all: f64 = self.used().map(|caller| weight(caller.tier())).sum();
        let mut fair = admitted / all;
        for _ in 0..MAX_STEPS {
            let (mut below, mut above) = (0.0, 0.0);
            for caller in self.used() {
                let (rate, weight) = (f64::from(caller.rate()), weight(caller.tier()));
                if rate <= fair * weight {
                    below += rate;
                } else {
                    above += weight;
                }
            }
            if above == 0.0 {
                break;
            }
            let next = (admitted - below) / above;
            if next <= fair * 1.001 {
                break;
            }
            fair = next;
        }
        fair
    }

    /// The callers that are in the table.
    fn used(&self) -> impl Iterator<Item = &Caller> {
        self.all().filter(|caller| caller.key.load(Ordering::Relaxed) != 0)
    }

    fn all(&self) -> impl Iterator<Item = &Caller> {
        self.0.iter().flat_map(|set| &set.0)
    }
}

fn weight(tier: usize) -> f64 {
    TIER_WEIGHT.powi(tier.min(MAX_TIERS - 1) as i32)
}

impl Caller {
    /// The last bits are the tier, and one that is never 0.
    #[inline]
    fn key(tier: usize, hash: u64) -> u64 {
        const TIERS: u64 = MAX_TIERS as u64;
        (hash & !(2 * TIERS - 1)) | TIERS | (tier as u64 % TIERS)
    }

    fn tier(&self) -> usize {
        (self.key.load(Ordering::Relaxed) % MAX_TIERS as u64) as usize
    }

    #[inline]
    fn rate(&self) -> f32 {
        f32::from_bits(self.rate.load(Ordering::Relaxed))
    }

    /// Puts a caller in the place of the least busy one. Two at the same time may count as one for a moment.
    #[cold]
    fn replace(set: &[Caller; WAYS], key: u64) {
        // What it would count until rates are averaged again, about.
        let busy = |caller: &Caller| caller.count.load(Ordering::Relaxed) as f32 + caller.rate() / 4.0;
        let free = set.iter().find(|caller| caller.key.load(Ordering::Relaxed) == 0);
        let Some(place) = free.or_else(|| set.iter().min_by(|one, other| busy(one).total_cmp(&busy(other)))) else {
            return;
        };
        place.key.store(key, Ordering::Relaxed);
        place.rate.store(0, Ordering::Relaxed);
        place.count.store(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spreads numbers over all hashes.
    fn hash(caller: u64) -> u64 {
        let mixed = (caller + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    fn past(offered: u64, admitted: u64) -> Past {
        Past { seconds: 0.25, offered, admitted, has_room: false }
    }

    /// Rates after a minute in which each caller sends so many requests in a quarter of a second.
    fn rates(callers: &Callers, counts: &[u64], admitted: u64) -> Rates {
        let mut rates = Rates::default();
        for _ in 0..240 {
            for (caller, count) in counts.iter().enumerate() {
                (0..*count).for_each(|_| {
                    callers.count(0, hash(caller as u64));
                });
            }
            rates = callers.average(&rates, past(counts.iter().sum(), admitted));
        }
        rates
    }

    #[test]
    fn the_fair_rate_is_max_min() {
        // Requests in a quarter of a second, what is admitted of them, and the fair rate in a second, with the headroom.
        let rows = [
            (&[10, 10, 10, 10][..], 20, 22.0),
            (&[100, 10, 10, 10], 50, 100.0),
            (&[100, 50, 10, 10], 80, 136.0),
            (&[100, 50, 2, 2], 20, 36.0),
        ];
        for (counts, admitted, fair) in rows {
            let found = rates(&Callers::new(), counts, admitted);
            assert!((found.fair(0) - fair).abs() < fair * 0.01, "{counts:?} {admitted}: {found:?}");
            assert_eq!(found.callers, counts.len());
        }
        let enough = rates(&Callers::new(), &[10, 20], 30);
        assert_eq!((enough.fair(0), enough.ceiling(0, 1.0)), (f64::INFINITY, f64::INFINITY));
    }

    #[test]
    fn a_tier_has_four_times_the_fair_rate_of_the_one_below() {
        let callers = Callers::new();
        let mut rates = Rates::default();
        for _ in 0..240 {
            for (caller, tier, count) in [(1, 0, 100), (2, 1, 100), (3, 2, 30)] {
                (0..count).for_each(|_| {
                    callers.count(tier, hash(caller));
                });
            }
            rates = callers.average(&rates, past(230, 70));
        }
        // Of 77, 30 of the third as it sends no more, 9.4 of the first and 37.6 of the second.
        assert!((37.0..38.5).contains(&rates.fair(0)) && (148.0..154.0).contains(&rates.fair(1)), "{rates:?}");
    }

    #[test]
    fn a_ceiling_falls_from_the_busiest_to_the_fair_rate() {
        let mut rates = Rates { fair: 10.0, ..Rates::default() };
        (rates.highest[0], rates.highest[1], rates.highest[2]) = (160.0, 640.0, 100.0);
        let rows = [(0.0, f64::INFINITY), (0.25, 80.0), (0.5, 40.0), (0.75, 20.0), (1.0, 10.0)];
        for (lowered, ceiling) in rows {
            assert_eq!(rates.ceiling(0, lowered), ceiling, "{lowered}");
            assert_eq!(rates.ceiling(1, lowered), 4.0 * ceiling, "{lowered}");
            assert_eq!(rates.ceiling(2, lowered), f64::INFINITY, "below the fair rate of its tier: {lowered}");
        }
    }

    #[test]
    fn busy_callers_are_counted_among_many_others() {
        let callers = Callers::new();
        let mut rates = Rates::default();
        for turn in 0..120u64 {
            // 20 busy ones, and each time 5,000 others that send one request.
            for request in 0..5_000 {
                callers.count(0, hash(1_000 + turn * 5_000 + request));
                if request % 50 == 0 {
                    (0..20).for_each(|busy| {
                        callers.count(0, hash(busy));
                    });
                }
            }
            rates = callers.average(&rates, past(7_000, 3_500));
        }
        for busy in 0..20 {
            let rate = callers.count(0, hash(busy));
            assert!((300.0..=400.0).contains(&rate), "{busy}: {rate}");
        }
        assert!(rates.callers <= MAX_CALLERS);
    }

    #[test]
    fn who_sends_no_more_is_forgotten() {
        let callers = Callers::new();
        let busy = rates(&callers, &[100], 50);
        assert_eq!(busy.callers, 1);
        let mut rates = busy;
        for _ in 0..400 {
            rates = callers.average(&rates, past(0, 0));
        }
        assert_eq!((rates.callers, callers.count(0, hash(0))), (0, 0.0));
    }
}
