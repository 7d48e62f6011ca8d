//! Texts of others, never longer than a bound.

/// The longest text of an entry, in bytes. Databases index callers, and take no longer ones.
pub const LONGEST_TEXT: usize = 1_024;

/// What stands for the rest of a text.
const REST: &str = "…";

/// A text, or as much of it as fits and a sign that there was more.
pub fn cut(text: &str) -> String {
    if text.len() <= LONGEST_TEXT {
        return text.to_owned();
    }
    let mut end = LONGEST_TEXT - REST.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    [&text[..end], REST].concat()
}
