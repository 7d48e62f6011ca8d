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
    /// The factor of [`stretched`].
    pub(super) stretch: f64,
}

/// Units are taken for at most this share of the period …
const PERIOD_SHARE: f64 = 1.0 / 12.0;
/// … and at most this share of a part, so that little is left when it ends …
const PART_SHARE: f64 = 1.0 / 4.0;
/// … but not for less than this, in seconds.
const MIN_TIME: f64 = 0.25;
/// The most of a quota that one chunk has.
const QUOTA_SHARE: u64 = 8;
/// With at most this share of the quota left, chunks are smaller: units that one server holds are missed by others.
const SCARCE: f64 = 0.03;
/// The smallest share of the usual time for which units are taken then. The share grows with refusals: when most requests
/// are refused, who holds units matters less than how often the store is called.
const MIN_SCARCE_TIME: f64 = 1.0 / 8.0;
/// The share grows by this much of the share of refused requests.
const REFUSED_WEIGHT: f64 = 4.0;
/// How much of the expected demand until the end of the part is taken, less [`DEVIATIONS`] of its root: units that are
/// left over at the end are lost to all servers.
const EXPECTED_SHARE: f64 = 7.0 / 8.0;
const DEVIATIONS: f64 = 2.0;
/// The level to which leases raise a bucket that is less than half full, as a share of the burst. Units drain while they
/// are held: at a lower level they would drain before they are spent.
const BUCKET_SHARE: f64 = 1.0 / 50.0;
/// The largest factor by which chunks of a bucket exceed the demand.
const MAX_STRETCH: f64 = 64.0;
/// The share of the usual time for which the store is left alone when it had no units.
const PACE_SHARE: f64 = 1.0 / 4.0;
/// The first pause when a fixed window is used up, doubled with each refusal. It rarely gets units before its end.
const FIXED_PAUSE: f64 = 1.0;
/// The longest such pause.
const MAX_FIXED_PAUSE: f64 = 10.0;
/// Units are taken ahead of demand when those that are held last no longer than this, in seconds …
pub(super) const AHEAD: f64 = 0.02;
/// … and that is at least a unit.
pub(super) const MIN_AHEAD: f64 = 1.0;
/// A key is idle after this many times the usual gap between requests …
const IDLE_GAPS: f64 = 6.0;
/// … and at least this time, in seconds.
const MIN_IDLE: f64 = 1.0;
/// … and at most this time.
const MAX_IDLE: f64 = 60.0;

/// While leases are off, a pool is retained for this time after its last request: requests in progress may put back units.
pub(super) const UNUSED: Span = Span::from_secs(5);

/// The usual time for which units are taken, in seconds. `max` is a setting.
fn usual_time(limit: &Limit, max: Span) -> f64 {
    let period = seconds(limit.period().span());
    let time = (period * PERIOD_SHARE).max(MIN_TIME).min(seconds(max));
    time.min(seconds(limit.part()) * PART_SHARE)
}

/// The time in which a bucket drains the level to which leases raise it, in seconds.
fn raised_time(limit: &Limit, max: Span) -> f64 {
    (seconds(limit.refill_time()) * BUCKET_SHARE).min(usual_time(limit, max))
}

fn is_bucket(limit: &Limit) -> bool {
    matches!(limit.algorithm(), Algorithm::Bucket { .. })
}

/// The share of the usual time for which units are taken when few are left.
fn scarce_share(refused: f64) -> f64 {
    (REFUSED_WEIGHT * refused).clamp(MIN_SCARCE_TIME, 1.0)
}

/// How many units to take ahead of demand. Zero if that is not worth it.
pub(super) fn chunk(limit: &Limit, max: Span, outlook: &Outlook) -> u64 {
    let quota = limit.quota();
    let is_calm = is_bucket(limit) && outlook.remaining > quota / 2;
    let mut time = if is_calm { raised_time(limit, max) * outlook.stretch } else { usual_time(limit, max) };
    if outlook.remaining as f64 <= quota as f64 * SCARCE {
        time *= scarce_share(outlook.refused);
    }
    let mut units = outlook.rate * time;
    if !is_bucket(limit) {
        let expected = outlook.rate * seconds(outlook.left);
        units = units.min(EXPECTED_SHARE * expected - DEVIATIONS * expected.sqrt());
    }
    (units.max(0.0) as u64).min(quota / QUOTA_SHARE)
}

/// The factor by which the next chunk of a bucket exceeds the demand, when its level lasts for `level` after this one.
/// All servers of a key see the same level, so that together they raise it to [`BUCKET_SHARE`] of the burst and no more.
pub(super) fn stretched(limit: &Limit, max: Span, stretch: f64, level: Span) -> f64 {
    if !is_bucket(limit) {
        return 1.0;
    }
    let missing = raised_time(limit, max) / seconds(level).max(1e-6);
    (stretch * missing.clamp(0.5, 2.0)).clamp(1.0, MAX_STRETCH)
}

/// How long the store is left alone after it refused, or had fewer units than a chunk. `random` is from ½ to 1½, so that
/// servers do not call at the same moment.
pub(super) fn pace(limit: &Limit, max: Span, refused: f64, refusals: u32, wait: Option<Span>, random: f64) -> Span {
    let pause = match limit.algorithm() {
        Algorithm::FixedWindow => {
            let pause = (FIXED_PAUSE * f64::from(2u32.saturating_pow(refusals.saturating_sub(1)))).min(MAX_FIXED_PAUSE);
            // The window's end is when there is room for all.
            return span(pause * random).min(wait.unwrap_or(Span::from_micros(u64::MAX)));
        }
        _ => usual_time(limit, max) * scarce_share(refused) * PACE_SHARE * random,
    };
    span(pause).max(wait.unwrap_or(Span::ZERO))
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

/// When a key without requests is idle.
pub(super) fn idle(rate: f64) -> Span {
    span((IDLE_GAPS / rate.max(1e-6)).clamp(MIN_IDLE, MAX_IDLE))
}

fn span(seconds: f64) -> Span {
    Span::from_micros((seconds * 1e6) as u64)
}
