//! The headers of an answer: what a limiter tells HTTP clients, in every dialect that is switched on.

use http::HeaderName;
use siphasher::sip::SipHasher13;
use smallvec::SmallVec;
use tollgate_core::calendar::CalendarUnit;
use tollgate_core::{Algorithm, Limit, Mode, Reading, Source, Timestamp, Wait};
use tollgate_rules::model::Headers;

use super::sheet::{Sheet, field_text, number, plain_text};
use super::{Dialects, Jitter};
use crate::{Decision, Outcome};

/// What of a decision may be shown. A rule is shown in all dialects, in the standard's alone, or not at all; each dialect has the
/// tightest reading of those that it may show.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown<'d> {
    /// For the `X-RateLimit` headers.
    pub(super) full: Option<Outcome<'d>>,
    /// For the standard's, and for bodies.
    pub(super) standard: Option<Outcome<'d>>,
}

/// A refusal as it is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal<'d> {
    /// None if other rules did, which are not known any more.
    pub(super) by: Option<Outcome<'d>>,
    /// Seconds, jitter included; none if no wait helps.
    pub(super) retry_after: Option<u64>,
}

/// The most policies that `RateLimit-Policy` names; the tightest is always among them.
const MOST_POLICIES: usize = 16;
/// The most soft limits that an answer names.
const MOST_SIGNALS: usize = 16;
/// Integers of structured fields have at most 15 digits.
const MOST_INTEGER: u64 = 999_999_999_999_999;

static LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
static REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
static USED: HeaderName = HeaderName::from_static("x-ratelimit-used");
static RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
static X_POLICY: HeaderName = HeaderName::from_static("x-ratelimit-policy");
static BUCKET: HeaderName = HeaderName::from_static("x-ratelimit-bucket");
static DENIED_BY: HeaderName = HeaderName::from_static("x-ratelimit-denied-by");
/// Names the soft limits that a request went past.
pub static SIGNAL: HeaderName = HeaderName::from_static("x-ratelimit-signal");
static POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
static RETRY_AFTER: HeaderName = HeaderName::from_static("retry-after");

impl<'d> Shown<'d> {
    pub(super) fn of(decision: &'d Decision) -> Shown<'d> {
        let tightest = decision.tightest();
        match tightest {
            Some(one) if one.rule.headers() == Headers::Full => {
                // Where several are as tight, the one that refused is what matters to the client.
                let refused = decision
                    .denied_by()
                    .filter(|by| by.reading.remaining == one.reading.remaining && by.rule.headers() == Headers::Full);
                let told = refused.or(tightest);
                Shown { full: told, standard: told }
            }
            None => Shown { full: None, standard: None },
            Some(_) => Shown {
                full: tightest_of(decision, |headers| headers == Headers::Full),
                standard: tightest_of(decision, |headers| headers != Headers::Hidden),
            },
        }
    }
}

impl<'d> Refusal<'d> {
    /// What refused, if something did.
    pub(super) fn of(decision: &'d Decision, jitter: Jitter) -> Option<Refusal<'d>> {
        if decision.allowed() {
            return None;
        }
        let retry_after = match decision.wait() {
            Wait::For(span) => Some(later(span.as_secs_ceil(), jitter, |most| fastrand::u64(0..=most))),
            Wait::None => Some(later(1, jitter, |most| fastrand::u64(0..=most))),
            Wait::Forever => None,
        };
        Some(Refusal { by: decision.denied_by(), retry_after })
    }

    /// Whether nobody knows if the caller is over its limit: the server refused to protect itself.
    pub(super) fn is_assumed(&self) -> bool {
        is_assumed(self.source())
    }

    /// Who says so.
    pub(super) fn source(&self) -> Source {
        self.by.map_or(Source::Store, |by| by.reading.source)
    }

    /// What refused, where the client may see it.
    pub(super) fn shown(&self) -> Option<&Outcome<'d>> {
        self.by.as_ref().filter(|by| by.rule.headers() != Headers::Hidden)
    }

    /// How the rule is named to the client: a hidden one only if it was given a label for that.
    pub(super) fn label(&self) -> Option<&'d str> {
        let rule = self.by?.rule;
        match rule.headers() {
            Headers::Hidden => rule.given_label(),
            Headers::Full | Headers::Standard => Some(rule.label()),
        }
    }
}

/// The seconds that a client is told to stay away: `draw` gives a number from 0 to its argument.
pub fn later(wait: u64, jitter: Jitter, draw: impl FnOnce(u64) -> u64) -> u64 {
    match jitter {
        Jitter::Off => wait,
        Jitter::Of10000(parts) => wait.saturating_add(draw((wait.saturating_mul(u64::from(parts)) / 10_000).max(1))),
    }
}

pub(super) fn is_assumed(source: Source) -> bool {
    matches!(source, Source::Assumed | Source::Shed)
}

/// Unix seconds at which a reading's quota is back, if its counter was read.
pub fn reset_at(reading: &Reading, at: Timestamp) -> Option<u64> {
    let known = !is_assumed(reading.source);
    known.then(|| at.after(reading.reset_after).as_micros().div_ceil(1_000_000))
}

/// The period in whole seconds, where it has that and is one. Calendar periods differ in length: the longest counts.
fn window(limit: &Limit) -> Option<u64> {
    const DAY: u64 = 86_400;
    if let Some(calendar) = limit.period().as_calendar() {
        return Some(match calendar.unit() {
            CalendarUnit::Day => DAY,
            CalendarUnit::Week => 7 * DAY,
            CalendarUnit::Month { .. } => 31 * DAY,
            CalendarUnit::Year => 366 * DAY,
        });
    }
    let micros = limit.period().span().as_micros();
    let is_window = limit.algorithm() != Algorithm::Concurrency && micros.is_multiple_of(1_000_000);
    is_window.then_some(micros / 1_000_000)
}

/// Writes every header that the settings and the rules allow.
pub(super) fn write(
    sheet: &mut Sheet,
    dialects: Dialects,
    decision: &Decision,
    shown: &Shown<'_>,
    refusal: Option<&Refusal<'_>>,
) {
    let assumed = refusal.is_some_and(Refusal::is_assumed);
    if let Some(one) = shown.full.as_ref().filter(|_| !assumed) {
        x_ratelimit(sheet, dialects, decision, one);
    }
    if dialects.ratelimit && !assumed {
        standard(sheet, decision, shown, refusal);
    }
    if dialects.signal && signals(decision).next().is_some() {
        sheet.field(&SIGNAL, |out| {
            for (at, name) in signals(decision).enumerate() {
                out.extend_from_slice(if at > 0 { b", " } else { b"" });
                plain_text(out, name);
            }
        });
    }
    let Some(refusal) = refusal else { return };
    if let Some(seconds) = refusal.retry_after {
        sheet.field(&RETRY_AFTER, |out| number(out, seconds));
    }
    if let Some(label) = refusal.label().filter(|_| dialects.denied_by && !assumed) {
        sheet.field(&DENIED_BY, |out| plain_text(out, label));
    }
}

/// The soft limits that a request went past, as far as they may be shown.
pub fn signals(decision: &Decision) -> impl Iterator<Item = &str> {
    let shown = decision.signals().filter(|one| one.rule.headers() != Headers::Hidden);
    shown.map(|one| one.rule.name()).take(MOST_SIGNALS)
}

fn x_ratelimit(sheet: &mut Sheet, dialects: Dialects, decision: &Decision, one: &Outcome<'_>) {
    let (amount, remaining) = (one.limit.amount(), one.reading.remaining);
    if dialects.x_ratelimit {
        sheet.field(&LIMIT, |out| number(out, amount));
        sheet.field(&REMAINING, |out| number(out, remaining));
        // A bucket's burst may leave more than the amount.
        sheet.field(&USED, |out| number(out, amount.saturating_sub(remaining)));
        if let Some(at) = reset_at(one.reading, decision.at()) {
            sheet.field(&RESET, |out| number(out, at));
        }
    }
    if dialects.policy {
        sheet.field(&X_POLICY, |out| {
            out.push(b'"');
            number(out, amount);
            parameter(out, b";w=", window(one.limit));
            out.push(b'"');
        });
    }
    if dialects.bucket {
        let hash = bucket(decision.domain().name(), one.rule.name());
        sheet.field(&BUCKET, |out| {
            for shift in (0..16).rev() {
                out.push(b"0123456789abcdef"[(hash >> (shift * 4)) as usize & 15]);
            }
        });
    }
}

/// Draft 11 of the IETF's `RateLimit` fields. A later one may name the parameters differently: it would be another function.
fn standard(sheet: &mut Sheet, decision: &Decision, shown: &Shown<'_>, refusal: Option<&Refusal<'_>>) {
    let Some(tightest) = &shown.standard else { return };
    sheet.field(&POLICY, |out| {
        policy(out, tightest);
        let mut told: SmallVec<[(usize, u64); MOST_POLICIES]> = SmallVec::new();
        told.push((tightest.rule.number(), tightest.limit.amount()));
        for other in decision.outcomes().filter(is_enforced) {
            let same = (other.rule.number(), other.limit.amount());
            if told.len() < MOST_POLICIES && other.rule.headers() != Headers::Hidden && !told.contains(&same) {
                told.push(same);
                out.extend_from_slice(b", ");
                policy(out, &other);
            }
        }
    });
    let (one, t) = match refusal {
        Some(refusal) => match refusal.shown() {
            Some(by) => (by, refusal.retry_after),
            // What a hidden rule says is not told, and what others say would not be the reason.
            None => return,
        },
        None => (tightest, Some(tightest.reading.reset_after.as_secs_ceil())),
    };
    sheet.field(&RATELIMIT, |out| {
        field_text(out, one.rule.name());
        parameter(out, b";r=", Some(one.reading.remaining));
        parameter(out, b";t=", t.filter(|seconds| *seconds > 0));
    });
}

fn policy(out: &mut Vec<u8>, one: &Outcome<'_>) {
    field_text(out, one.rule.name());
    parameter(out, b";q=", Some(one.limit.amount()));
    if one.limit.algorithm() == Algorithm::Concurrency {
        out.extend_from_slice(b";qu=\"concurrent-requests\"");
    }
    parameter(out, b";w=", window(one.limit));
}

fn parameter(out: &mut Vec<u8>, name: &[u8], value: Option<u64>) {
    if let Some(value) = value {
        out.extend_from_slice(name);
        number(out, value.min(MOST_INTEGER));
    }
}

/// A name for the rule's counters that says nothing of it: the same on every server, always.
fn bucket(domain: &str, rule: &str) -> u64 {
    // Not a secret: it only has to be the same everywhere.
    let mut named: SmallVec<[u8; 128]> = SmallVec::from_slice(domain.as_bytes());
    named.push(0);
    named.extend_from_slice(rule.as_bytes());
    SipHasher13::new_with_keys(0x746f_6c6c_6761_7465, 0x6275_636b_6574_2f31).hash(&named)
}

fn is_enforced(outcome: &Outcome<'_>) -> bool {
    matches!(outcome.mode, Mode::Enforce | Mode::AnyOf)
}

fn tightest_of(decision: &Decision, may: impl Fn(Headers) -> bool) -> Option<Outcome<'_>> {
    let allowed = decision.outcomes().filter(|one| is_enforced(one) && may(one.rule.headers()));
    allowed.min_by_key(|one| one.reading.remaining)
}
