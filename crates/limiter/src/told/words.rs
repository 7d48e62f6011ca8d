//! Limits and values as clients read them.

use std::borrow::Cow;

use tollgate_core::calendar::CalendarUnit;
use tollgate_core::{Algorithm, Limit};

/// `1m`, `30s`, `1d`; `month` where a calendar says when it ends; `concurrent` where none is meant.
pub fn window(limit: &Limit) -> Cow<'static, str> {
    const UNITS: [(&str, u64); 6] =
        [("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1)];
    if limit.algorithm() == Algorithm::Concurrency {
        return Cow::Borrowed("concurrent");
    }
    if let Some(calendar) = limit.period().as_calendar() {
        return Cow::Borrowed(match calendar.unit() {
            CalendarUnit::Day => "day",
            CalendarUnit::Week => "week",
            CalendarUnit::Month { .. } => "month",
            CalendarUnit::Year => "year",
        });
    }
    let micros = limit.period().span().as_micros();
    let whole = UNITS.into_iter().find(|(_, length)| micros.is_multiple_of(*length));
    let (unit, length) = whole.unwrap_or(("us", 1));
    Cow::Owned(format!("{}{unit}", micros / length))
}

/// Whether an attribute says what was asked for, and not who asked: its values are no secrets.
pub(super) fn is_what(attribute: &str) -> bool {
    matches!(attribute, "endpoint" | "method" | "path" | "remote_address")
}

/// The first characters of a value that may be a secret; none if it is too short to be one.
pub(super) fn shortened(value: &str) -> Option<&str> {
    const SHORT: usize = 8;
    const KEPT: usize = 4;
    value.char_indices().nth(SHORT)?;
    value.char_indices().nth(KEPT).map(|(end, _)| &value[..end])
}

/// At most so many bytes of a text, whole characters.
pub fn beginning(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}
