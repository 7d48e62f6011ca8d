//! Limits and values as text.

use std::borrow::Cow;

use tollgate_core::{Algorithm, Limit};

/// The window of a limit: `1m`, `30s`, `1d`; the calendar unit, such as `month`; `concurrent` for limits of requests in
/// flight.
pub fn window(limit: &Limit) -> Cow<'static, str> {
    const UNITS: [(&str, u64); 6] =
        [("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1)];
    if limit.algorithm() == Algorithm::Concurrency {
        return Cow::Borrowed("concurrent");
    }
    if let Some(calendar) = limit.period().as_calendar() {
        return Cow::Borrowed(calendar.unit().name());
    }
    let micros = limit.period().span().as_micros();
    let whole = UNITS.into_iter().find(|(_, length)| micros.is_multiple_of(*length));
    let (unit, length) = whole.unwrap_or(("us", 1));
    Cow::Owned(format!("{}{unit}", micros / length))
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
