//! Limits and values as text.

use std::borrow::Cow;

use tollgate_core::{Algorithm, Limit, Span};

/// The window of a limit: `1m`, `30s`, `1d`; for a bucket the time in which its burst refills; the calendar unit, such as
/// `month`; `concurrent` for limits of requests in flight.
pub fn window(limit: &Limit) -> Cow<'static, str> {
    span_text(limit, rounded_refill_time(limit))
}

/// The period of a limit, in the same form.
pub fn period(limit: &Limit) -> Cow<'static, str> {
    span_text(limit, limit.period().span())
}

fn span_text(limit: &Limit, span: Span) -> Cow<'static, str> {
    const UNITS: [(&str, u64); 6] =
        [("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1)];
    if limit.algorithm() == Algorithm::Concurrency {
        return Cow::Borrowed("concurrent");
    }
    if let Some(calendar) = limit.period().as_calendar() {
        return Cow::Borrowed(calendar.unit().name());
    }
    let micros = span.as_micros();
    let whole = UNITS.into_iter().find(|(_, length)| micros.is_multiple_of(*length));
    let (unit, length) = whole.unwrap_or(("us", 1));
    Cow::Owned(format!("{}{unit}", micros / length))
}

/// The time in which the quota of a limit is replenished. That of a bucket whose burst is not its amount is rounded up to
/// whole seconds, or below a second to milliseconds.
pub(super) fn rounded_refill_time(limit: &Limit) -> Span {
    const MILLISECOND: u64 = 1_000;
    const SECOND: u64 = 1_000_000;
    let time = limit.refill_time();
    if limit.quota() == limit.amount() {
        return time;
    }
    let unit = if time.as_micros() < SECOND { MILLISECOND } else { SECOND };
    Span::from_micros(time.as_micros().div_ceil(unit).saturating_mul(unit))
}

/// Whether an attribute describes the request, not the caller: its values are not secret.
pub(super) fn is_public(attribute: &str) -> bool {
    matches!(attribute, "endpoint" | "method" | "path" | "remote_address")
}

/// The first characters of a value that may be secret; `None` if it is too short to be one.
pub(super) fn shorten(value: &str) -> Option<&str> {
    const NOT_SECRET: usize = 8;
    const SHOWN: usize = 4;
    value.char_indices().nth(NOT_SECRET)?;
    value.char_indices().nth(SHOWN).map(|(end, _)| &value[..end])
}

/// The longest prefix of at most `most` bytes that ends at a character boundary.
pub fn truncate(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}
