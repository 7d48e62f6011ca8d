//! How many units to take, and how long to leave the store alone after it had none. Pure arithmetic; the reasons for
//! the constants are the simulator's figures in docs/leases.md.

use tollgate_core::{Algorithm, Limit, Span};

use super::demand::seconds;

/// What a server knows of a key when it takes units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlook {
    /// Units a second that the requests of this server take.
    pub(super) rate: f64,
    /// The share of the last requests that were refused.
    pub(super) refused: f64,
    /// The units that the store had left when it last answered.
    pub(super) remaining: u64,
    /// The time to the end of the part.
    pub(super) left: Span,
    /// The time for which units must last so that the next ones arrive in time.
    pub(super) lead: f64,
    /// The factor of [`stretched`](LeasePolicy::stretched).
    pub(super) stretch: f64,
}

/// The weight of one call in the time that calls take, which changes little.
const RTT_WEIGHT: f64 = 1.0 / 8.0;
/// While leases are off, a pool is retained for this time after its last request: requests in progress may put back units.
pub(super) const UNUSED: Span = Span::from_secs(5);

/// The constants of leases. The simulator has a test for each of them: a figure gets worse without it. Servers use the
/// default; times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeasePolicy {
    /// The longest time for which units are taken. A setting.
    pub max_time: f64,
    /// Units are taken for at most this share of the period …
    pub period_share: f64,
    /// … and at most this share of a part, so that little is left when it ends …
    pub part_share: f64,
    /// … but not for less than this time.
    pub min_time: f64,
    /// The most of a quota that one chunk has.
    pub quota_share: f64,
    /// With at most this share of the quota left, chunks are smaller: units that one server holds are missed by others.
    pub scarce: f64,
    /// The smallest share of the usual time for which units are taken then. The share grows with refusals: when most
    /// requests are refused, who holds units matters less than how often the store is called.
    pub min_scarce_time: f64,
    /// The share grows by this much of the share of refused requests.
    pub refused_gain: f64,
    /// The weight of one request in the share of refused ones.
    pub refused_weight: f64,
    /// Of the expected demand until the end of the part, this many times its root is not taken: units that are left over
    /// at the end are lost to all servers.
    pub deviations: f64,
    /// The level to which leases raise a bucket that is less than half full, as a share of the burst. Units drain while
    /// they are held: at a lower level they would drain before they are spent.
    pub bucket_share: f64,
    /// The share of the usual time for which the store is left alone when it had no units.
    pub pace_share: f64,
    /// The first pause when a fixed window is used up, doubled with each refusal. It rarely gets units before its end.
    pub fixed_pause: f64,
    /// The longest such pause.
    pub max_fixed_pause: f64,
    /// Units are taken ahead of demand when those that are held last no longer than this …
    pub ahead: f64,
    /// … or than this many calls take, if the store is far away …
    pub ahead_calls: f64,

    /// … and that is at least so many units.
    pub min_ahead: f64,
    /// A key is idle after this many times the usual gap between requests …
    pub idle_gaps: f64,
    /// … and at least this time …
    pub min_idle: f64,
    /// … and at most this time.
    pub max_idle: f64,
    /// No lease before this many requests: the rate of fewer is mostly chance.
    pub min_requests: u64,
    /// When the store does not answer a call for units, the next one comes after this time.
    pub unanswered_pause: f64,
    /// A key gets a pool at this count of requests, which is halved …
    pub door_threshold: u8,
    /// … at this interval: from about 0.2 requests a second on. Rarer keys would give back what they take.
    pub door_interval: f64,
    /// Units are not spent in this last share of their life, because the clocks of server and store may run apart …
    pub drift: f64,
    /// … nor in this time before its end, because clocks are read at slightly different moments.
    pub margin: f64,
}

impl Default for LeasePolicy {
    fn default() -> LeasePolicy {
        LeasePolicy {
            max_time: 5.0,
            period_share: 1.0 / 12.0,
            part_share: 1.0 / 4.0,
            min_time: 0.25,
            quota_share: 1.0 / 8.0,
            scarce: 0.03,
            min_scarce_time: 1.0 / 8.0,
            refused_gain: 4.0,
            refused_weight: 1.0 / 32.0,
            deviations: 2.0,
            bucket_share: 1.0 / 50.0,
            pace_share: 1.0 / 4.0,
            fixed_pause: 1.0,
            max_fixed_pause: 10.0,
            ahead: 0.02,
            ahead_calls: 3.0,
            min_ahead: 1.0,
            idle_gaps: 10.0,
            min_idle: 1.0,
            max_idle: 60.0,
            min_requests: 4,
            unanswered_pause: 0.1,
            door_threshold: 3,
            door_interval: 8.0,
            drift: 0.001,
            margin: 0.001,
        }
    }
}

impl LeasePolicy {
    /// The usual time for which units are taken.
    fn usual_time(&self, limit: &Limit) -> f64 {
        let period = seconds(limit.period().span());
        let time = (period * self.period_share).max(self.min_time).min(self.max_time);
        time.min(seconds(limit.part()) * self.part_share)
    }

    /// The time in which a bucket drains the level to which leases raise it.
    fn raised_time(&self, limit: &Limit) -> f64 {
        (seconds(limit.refill_time()) * self.bucket_share).min(self.usual_time(limit))
    }

    /// The share of the usual time for which units are taken when few are left.
    fn scarce_share(&self, refused: f64) -> f64 {
        (self.refused_gain * refused).clamp(self.min_scarce_time, 1.0)
    }

    /// The time for which units must last when others are taken, if calls take this long.
    pub(super) fn lead(&self, rtt: f64) -> f64 {
        (rtt * self.ahead_calls).max(self.ahead)
    }

    /// The time that calls take, after one that took this long. The first call says it alone.
    pub(super) fn smoothed_rtt(&self, rtt: f64, took: Span) -> f64 {
        let took = seconds(took);
        if rtt == 0.0 { took } else { rtt + (took - rtt) * RTT_WEIGHT }
    }

    /// How many units to take ahead of demand. Zero if that is not worth it.
    pub(super) fn chunk(&self, limit: &Limit, outlook: &Outlook) -> u64 {
        let quota = limit.quota() as f64;
        let is_calm = is_calm(limit, outlook.remaining);
        if is_bucket(limit) && is_calm {
            let units = outlook.rate * self.raised_time(limit) * outlook.stretch;
            return units.ceil().min((quota * self.bucket_share).max(1.0)) as u64;
        }
        let mut units = outlook.rate * self.usual_time(limit);
        if outlook.remaining as f64 <= quota * self.scarce {
            units *= self.scarce_share(outlook.refused);
        }
        if !is_bucket(limit) {
            let left = seconds(outlook.left);
            let expected = outlook.rate * left;
            units = match is_calm {
                // They would end before they are needed.
                _ if left < self.ahead + outlook.lead => 0.0,
                // Nobody misses a unit more, nor units that are left over at the end of the part.
                true => units.min(expected).ceil(),
                false => units.min(expected - self.deviations * expected.sqrt()),
            };
        }
        units.min(quota * self.quota_share).max(0.0) as u64
    }

    /// The factor by which the next chunk of a bucket exceeds the demand, when its level lasts for `level` after this
    /// one. All servers of a key see the same level, so that together they raise it to
    /// [`bucket_share`](Self::bucket_share) of the burst and no more.
    pub(super) fn stretched(&self, limit: &Limit, stretch: f64, level: Span) -> f64 {
        if !is_bucket(limit) {
            return 1.0;
        }
        let missing = self.raised_time(limit) / seconds(level).max(1e-6);
        (stretch * missing.clamp(0.5, 2.0)).min(limit.quota() as f64).max(1.0)
    }

    /// How long the store is left alone after it refused, or had fewer units than a chunk. `random` is from ½ to 1½, so
    /// that servers do not call at the same moment.
    pub(super) fn pace(&self, limit: &Limit, refused: f64, refusals: u32, wait: Option<Span>, random: f64) -> Span {
        let pause = match limit.algorithm() {
            Algorithm::FixedWindow => {
                let doubled = self.fixed_pause * f64::from(2u32.saturating_pow(refusals.saturating_sub(1)));
                // The window's end is when there is room for all.
                let end = wait.unwrap_or(Span::from_micros(u64::MAX));
                return span(doubled.min(self.max_fixed_pause) * random).min(end);
            }
            _ => self.usual_time(limit) * self.scarce_share(refused) * self.pace_share * random,
        };
        span(pause).max(wait.unwrap_or(Span::ZERO))
    }

    /// When a key without requests is idle.
    pub(super) fn idle(&self, rate: f64) -> Span {
        span((self.idle_gaps / rate.max(1e-6)).max(self.min_idle).min(self.max_idle))
    }
}

/// Whether more than half of the quota is left, so that nobody misses what is held.
pub(super) fn is_calm(limit: &Limit, remaining: u64) -> bool {
    remaining > limit.quota() / 2
}

fn is_bucket(limit: &Limit) -> bool {
    matches!(limit.algorithm(), Algorithm::Bucket { .. })
}

/// The units that a counter has left some time after it had `remaining`, if nobody took any since.
pub(super) fn remaining(limit: &Limit, remaining: u64, reset_after: Span, elapsed: Span) -> u64 {
    let is_over = elapsed >= reset_after;
    match limit.algorithm() {
        Algorithm::Bucket { .. } => {
            let drained = seconds(elapsed) * limit.amount() as f64 / seconds(limit.period().span());
            remaining.saturating_add(drained as u64).min(limit.quota())
        }
        Algorithm::FixedWindow if is_over => limit.quota(),
        _ => remaining,
    }
}

/// A time, of seconds.
pub(super) fn span(seconds: f64) -> Span {
    Span::from_micros((seconds * 1e6) as u64)
}
