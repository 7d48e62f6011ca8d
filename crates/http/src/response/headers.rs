//! Response headers, in every enabled dialect.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::HeaderName;
use siphasher::sip::SipHasher13;
use smallvec::SmallVec;
use tollgate_core::calendar::CalendarUnit;
use tollgate_core::{Algorithm, Limit, Reading, RegionLink, Request, Source, Timestamp, Wait};
use tollgate_rules::model::Headers;

use super::{Dialects, Jitter, display, shed};
use crate::writer::{ResponseWriter, field_text, number, plain_text};
use tollgate::{Decision, Outcome};

/// The limits that a response may show. A rule is visible in all dialects, in the standard one only, or not at all.
/// Each dialect shows its tightest visible limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct VisibleLimits<'d> {
    /// For the `X-RateLimit` headers.
    pub(super) full: Option<Outcome<'d>>,
    /// For the standard headers, and for bodies.
    pub(super) standard: Option<Outcome<'d>>,
}

/// A refusal, as reported to the client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Denial<'d> {
    /// The limit that refused; `None` for a replay of a decision by other rules.
    pub(super) by: Option<Outcome<'d>>,
    /// Seconds with jitter; `None` if no wait helps.
    pub(super) retry_after: Option<u64>,
    /// How other regions are doing.
    pub(super) link: RegionLink,
}

/// The largest number of policies in `RateLimit-Policy`; the tightest is always included.
const MAX_POLICIES: usize = 16;
/// The largest number of soft limits in a response.
const MAX_SIGNALS: usize = 16;
/// Integers in structured fields have at most 15 digits.
const MAX_INTEGER: u64 = 999_999_999_999_999;

static LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
static REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
static USED: HeaderName = HeaderName::from_static("x-ratelimit-used");
static RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
static X_POLICY: HeaderName = HeaderName::from_static("x-ratelimit-policy");
static BUCKET: HeaderName = HeaderName::from_static("x-ratelimit-bucket");
static DENIED_BY: HeaderName = HeaderName::from_static("x-ratelimit-denied-by");
/// Lists the soft limits that a request exceeded.
pub static SIGNAL: HeaderName = HeaderName::from_static("x-ratelimit-signal");
static POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(super) static RETRY_AFTER: HeaderName = HeaderName::from_static("retry-after");

impl<'d> VisibleLimits<'d> {
    pub(super) fn new(decision: &'d Decision) -> VisibleLimits<'d> {
        let tightest = decision.tightest();
        match tightest {
            Some(one) if one.rule.headers() == Headers::Full => {
                // Among equally tight limits, the one that refused matters to the client.
                let refused = decision
                    .denied_by()
                    .filter(|by| by.reading.remaining == one.reading.remaining && by.rule.headers() == Headers::Full);
                let shown = refused.or(tightest);
                VisibleLimits { full: shown, standard: shown }
            }
            None => VisibleLimits { full: None, standard: None },
            Some(_) => VisibleLimits {
                full: tightest_of(decision, |headers| headers == Headers::Full),
                standard: tightest_of(decision, |headers| headers != Headers::Hidden),
            },
        }
    }
}

impl<'d> Denial<'d> {
    /// The refusal of a decision, if it is one.
    pub(super) fn new(decision: &'d Decision, jitter: Jitter) -> Option<Denial<'d>> {
        if decision.allowed() {
            return None;
        }
        let by = decision.denied_by();
        let retry_after = match decision.wait() {
            _ if by.is_some_and(|by| by.rule.sheds()) => Some(shed::retry_after(jitter)),
            Wait::For(span) => Some(with_jitter(span.as_secs_ceil(), jitter, |most| fastrand::u64(0..=most))),
            Wait::None => Some(with_jitter(1, jitter, |most| fastrand::u64(0..=most))),
            Wait::Forever => None,
        };
        Some(Denial { by, retry_after, link: decision.region_link() })
    }

    /// Whether the counters are unknown: the server refused to protect itself.
    pub(super) fn is_assumed(&self) -> bool {
        is_assumed(self.source())
    }

    /// Whether a rule refused to protect the service.
    pub(super) fn is_shed(&self) -> bool {
        self.by.is_some_and(|by| by.rule.sheds())
    }

    /// The source of the refusing reading.
    pub(super) fn source(&self) -> Source {
        self.by.map_or(Source::Store, |by| by.reading.source)
    }

    /// The refusing limit, if it is visible to the client.
    pub(super) fn shown(&self) -> Option<&Outcome<'d>> {
        self.by.as_ref().filter(|by| by.rule.headers() != Headers::Hidden)
    }

    /// The rule's label in responses. A hidden rule has one only if it is configured.
    pub(super) fn label(&self) -> Option<&'d str> {
        let rule = self.by?.rule;
        match rule.headers() {
            Headers::Hidden => rule.given_label(),
            Headers::Full | Headers::Standard => Some(rule.label()),
        }
    }
}

/// A `Retry-After` in seconds, with jitter. `draw` returns a random number from 0 to its argument.
pub fn with_jitter(wait: u64, jitter: Jitter, draw: impl FnOnce(u64) -> u64) -> u64 {
    match jitter {
        Jitter::Off => wait,
        Jitter::Bps(bps) => wait.saturating_add(draw((wait.saturating_mul(u64::from(bps)) / 10_000).max(1))),
    }
}

pub(super) fn is_assumed(source: Source) -> bool {
    matches!(source, Source::Assumed | Source::Shed)
}

/// The time at which the quota is replenished, in Unix seconds, if the counter was read.
pub fn reset_at(reading: &Reading, at: Timestamp) -> Option<u64> {
    let known = !is_assumed(reading.source);
    known.then(|| at.after(reading.reset_after).as_micros().div_ceil(1_000_000))
}

/// The window in whole seconds, if the limit has one. A calendar period counts with its longest length, a bucket with
/// the time in which its burst refills.
fn window_seconds(limit: &Limit) -> Option<u64> {
    const DAY: u64 = 86_400;
    if let Some(calendar) = limit.period().as_calendar() {
        return Some(match calendar.unit() {
            CalendarUnit::Day => DAY,
            CalendarUnit::Week => 7 * DAY,
            CalendarUnit::Month { .. } => 31 * DAY,
            CalendarUnit::Year => 366 * DAY,
        });
    }
    let micros = display::rounded_refill_time(limit).as_micros();
    let is_window = limit.algorithm() != Algorithm::Concurrency && micros.is_multiple_of(1_000_000);
    is_window.then_some(micros / 1_000_000)
}

/// Writes every header that the dialects and the rules allow.
pub(super) fn write(
    writer: &mut ResponseWriter,
    dialects: Dialects,
    request: &Request<'_>,
    decision: &Decision,
    visible: &VisibleLimits<'_>,
    denial: Option<&Denial<'_>>,
) {
    if let Some(denial) = denial.filter(|denial| denial.is_shed()) {
        shed::write_headers(writer, denial);
        return;
    }
    let assumed = denial.is_some_and(Denial::is_assumed);
    if let Some(one) = visible.full.as_ref().filter(|_| !assumed) {
        write_x_ratelimit(writer, dialects, decision, one);
    }
    if dialects.ratelimit && !assumed {
        write_standard(writer, request, decision, visible, denial);
    }
    if dialects.signal && signals(decision).next().is_some() {
        writer.field(&SIGNAL, |out| {
            for (at, name) in signals(decision).enumerate() {
                out.extend_from_slice(if at > 0 { b", " } else { b"" });
                plain_text(out, name);
            }
        });
    }
    let Some(denial) = denial else { return };
    if let Some(seconds) = denial.retry_after {
        writer.field(&RETRY_AFTER, |out| number(out, seconds));
    }
    if let Some(label) = denial.label().filter(|_| dialects.denied_by && !assumed) {
        writer.field(&DENIED_BY, |out| plain_text(out, label));
    }
}

/// The visible soft limits that a request exceeded.
pub fn signals(decision: &Decision) -> impl Iterator<Item = &str> {
    let shown = decision.signals().filter(|one| one.rule.headers() != Headers::Hidden);
    shown.map(|one| one.rule.name()).take(MAX_SIGNALS)
}

fn write_x_ratelimit(writer: &mut ResponseWriter, dialects: Dialects, decision: &Decision, one: &Outcome<'_>) {
    // The policy is that of all regions together; what is used and left is counted here.
    let (quota, remaining) = (one.whole_limit.quota(), one.reading.remaining);
    if dialects.x_ratelimit {
        writer.field(&LIMIT, |out| number(out, quota));
        writer.field(&REMAINING, |out| number(out, remaining));
        writer.field(&USED, |out| number(out, one.used()));
        if let Some(at) = reset_at(one.reading, decision.at()) {
            writer.field(&RESET, |out| number(out, at));
        }
    }
    if dialects.policy {
        writer.field(&X_POLICY, |out| {
            out.push(b'"');
            number(out, quota);
            write_parameter(out, b";w=", window_seconds(one.limit));
            out.push(b'"');
        });
    }
    if dialects.bucket {
        let hash = bucket(decision.domain().name(), one.rule.name());
        writer.field(&BUCKET, |out| {
            for shift in (0..16).rev() {
                out.push(b"0123456789abcdef"[(hash >> (shift * 4)) as usize & 15]);
            }
        });
    }
}

/// Draft 11 of the IETF `RateLimit` fields. A later draft with other parameter names would be another function.
fn write_standard(
    writer: &mut ResponseWriter,
    request: &Request<'_>,
    decision: &Decision,
    visible: &VisibleLimits<'_>,
    denial: Option<&Denial<'_>>,
) {
    let Some(tightest) = &visible.standard else { return };
    writer.field(&POLICY, |out| {
        write_policy(out, tightest);
        let mut listed: SmallVec<[(usize, u64); MAX_POLICIES]> = SmallVec::new();
        listed.push((tightest.rule.number(), tightest.whole_limit.quota()));
        for other in decision.outcomes().filter(Outcome::is_enforced) {
            let same = (other.rule.number(), other.whole_limit.quota());
            if listed.len() < MAX_POLICIES && other.rule.headers() != Headers::Hidden && !listed.contains(&same) {
                listed.push(same);
                out.extend_from_slice(b", ");
                write_policy(out, &other);
            }
        }
    });
    let (one, t) = match denial {
        Some(denial) => match denial.shown() {
            Some(by) => (by, denial.retry_after),
            // A hidden rule must not be shown, and other rules are not the reason.
            None => return,
        },
        None => (tightest, Some(tightest.reading.reset_after.as_secs_ceil())),
    };
    writer.field(&RATELIMIT, |out| {
        field_text(out, one.rule.name());
        write_parameter(out, b";r=", Some(one.reading.remaining));
        write_parameter(out, b";t=", t.filter(|seconds| *seconds > 0));
        write_partition(out, request, one);
    });
}

/// Writes the partition key: which of the rule's counters the numbers are of. It is an opaque digest of the key's values,
/// the same on every server.
fn write_partition(out: &mut Vec<u8>, request: &Request<'_>, one: &Outcome<'_>) {
    let Some(digest) = one.rule.partition_of(request, one.touches) else { return };
    out.extend_from_slice(b";pk=:");
    let mut encoded = [0; 12];
    if let Ok(length) = BASE64.encode_slice(digest.to_be_bytes(), &mut encoded) {
        out.extend_from_slice(&encoded[..length]);
    }
    out.push(b':');
}

fn write_policy(out: &mut Vec<u8>, one: &Outcome<'_>) {
    field_text(out, one.rule.name());
    write_parameter(out, b";q=", Some(one.whole_limit.quota()));
    if one.limit.algorithm() == Algorithm::Concurrency {
        out.extend_from_slice(b";qu=\"concurrent-requests\"");
    }
    write_parameter(out, b";w=", window_seconds(one.limit));
}

fn write_parameter(out: &mut Vec<u8>, name: &[u8], value: Option<u64>) {
    if let Some(value) = value {
        out.extend_from_slice(name);
        number(out, value.min(MAX_INTEGER));
    }
}

/// An opaque name of the rule's counters, the same on every server.
fn bucket(domain: &str, rule: &str) -> u64 {
    // Not a secret: the key only has to be the same everywhere.
    let mut named: SmallVec<[u8; 128]> = SmallVec::from_slice(domain.as_bytes());
    named.push(0);
    named.extend_from_slice(rule.as_bytes());
    SipHasher13::new_with_keys(0x746f_6c6c_6761_7465, 0x6275_636b_6574_2f31).hash(&named)
}

fn tightest_of(decision: &Decision, may: impl Fn(Headers) -> bool) -> Option<Outcome<'_>> {
    let allowed = decision.outcomes().filter(|one| one.is_enforced() && may(one.rule.headers()));
    allowed.min_by_key(|one| one.reading.remaining)
}
