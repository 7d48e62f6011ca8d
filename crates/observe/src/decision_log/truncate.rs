//! Bounded texts.

/// The maximal length of a text in an entry, in bytes. Databases index callers and accept no longer ones.
pub const MAX_TEXT_BYTES: usize = 1_024;

/// Replaces the rest of a truncated text.
const ELLIPSIS: &str = "…";

/// Returns the text, truncated with an ellipsis if it is too long.
pub fn truncate(text: &str) -> String {
    truncate_to(text, MAX_TEXT_BYTES)
}

/// The same for a text of at most `max` bytes.
pub(super) fn truncate_to(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mut end = max.saturating_sub(ELLIPSIS.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    [&text[..end], ELLIPSIS].concat()
}
