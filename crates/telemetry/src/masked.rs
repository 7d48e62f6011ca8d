//! Masking of callers' values in logs.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

use siphasher::sip::SipHasher24;

/// A caller's value (an API key, an address, a user) for a log or an error: `sk_l…3f9c02ab`.
///
/// The first characters help people to recognise a value, and the hash distinguishes values with the same beginning. A short value
/// shows only its hash. The hash is keyed with a secret of this process, so that values can't be found by brute force: the same
/// value is masked the same way until a restart.
#[derive(Clone, Copy)]
pub struct Masked<'a>(pub &'a str);

/// The leading characters that are shown.
const SHOWN: usize = 4;
/// The shortest value whose leading characters are shown.
const MIN_SHOWN_LENGTH: usize = 12;

static SECRET: LazyLock<(u64, u64)> =
    LazyLock::new(|| (RandomState::new().hash_one(0_u8), RandomState::new().hash_one(1_u8)));

impl Masked<'_> {
    fn hash(self) -> u32 {
        let (first, second) = *SECRET;
        let mut hasher = SipHasher24::new_with_keys(first, second);
        hasher.write(self.0.as_bytes());
        (hasher.finish() >> 32) as u32
    }
}

impl fmt::Display for Masked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.chars().nth(MIN_SHOWN_LENGTH - 1).is_some() {
            for shown in self.0.chars().take(SHOWN) {
                // Control characters and direction marks are escaped.
                write!(f, "{}", shown.escape_debug())?;
            }
        }
        write!(f, "…{:08x}", self.hash())
    }
}

/// The same as `Display`, so that `?value` in a log event is masked too.
impl fmt::Debug for Masked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(value: &str) -> String {
        let shown = Masked(value).to_string();
        assert_eq!(shown, format!("{:?}", Masked(value)));
        shown
    }

    /// The part before the hash.
    fn start(value: &str) -> String {
        let shown = masked(value);
        let (start, hash) = shown.rsplit_once('…').unwrap();
        assert!(hash.len() == 8 && hash.bytes().all(|digit| digit.is_ascii_hexdigit()), "{shown}");
        start.to_owned()
    }

    #[test]
    fn a_long_value_shows_its_first_characters_and_a_short_one_nothing() {
        assert_eq!(start("sk_live_4242424242"), "sk_l");
        assert_eq!(start("123456789012"), "1234");
        assert_eq!(start("12345678901"), "");
        assert_eq!(start("käßeß-grüßt-süß"), "käße");
        // Twelve bytes, but only six characters.
        assert_eq!(start("üüüüüü"), "");
        assert_eq!(start(""), "");
    }

    #[test]
    fn values_that_differ_look_different_and_the_same_value_the_same() {
        assert_eq!(masked("sk_live_4242424242"), masked("sk_live_4242424242"));
        assert_ne!(masked("sk_live_4242424242"), masked("sk_live_4242424243"));
        assert_ne!(masked("a"), masked("b"));
    }

    #[test]
    fn the_hash_is_keyed() {
        let mut plain = SipHasher24::new_with_keys(0, 0);
        plain.write(b"sk_live_4242424242");
        assert_ne!(Masked("sk_live_4242424242").hash(), (plain.finish() >> 32) as u32);
        assert_ne!(SECRET.0, SECRET.1);
    }

    #[test]
    fn nothing_that_a_terminal_obeys_comes_through_and_the_length_is_bounded() {
        assert_eq!(start("\u{1b}[2J\n and more"), "\\u{1b}[2J");
        assert_eq!(start("\r\n\t\u{202e}… and more"), "\\r\\n\\t\\u{202e}");
        let longest = masked(&"\u{10ffff}".repeat(100_000));
        assert!(longest.len() < 64, "{longest}");
    }
}
