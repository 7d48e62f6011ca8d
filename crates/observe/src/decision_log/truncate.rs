//! Bounded texts.

/// The maximal length of a text in an entry, in bytes. Databases index callers and accept no longer ones.
pub const MAX_TEXT_BYTES: usize = 1_024;

/// Replaces the rest of a truncated text.
const ELLIPSIS: &str = "…";

/// Returns the text, truncated with an ellipsis if it is too long.
pub fn truncate(text: &str) -> String {
    if text.len() <= MAX_TEXT_BYTES {
        return text.to_owned();
    }
    let mut end = MAX_TEXT_BYTES - ELLIPSIS.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    [&text[..end], ELLIPSIS].concat()
}
