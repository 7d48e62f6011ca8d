//! What was meant by a text that is not a limit: `100 per minute`, `10k/minute`, `0.5/second`.
//!
//! Files have one spelling of a limit, so a guess is never used: the error names it, and the author writes it.

use super::{DAY, HOUR, MILLISECOND, MINUTE, SECOND};
use super::{parse, unit_micros};
use crate::problem::{TextFault, quoted};

/// What other programs write for no limit.
const UNLIMITED: [&str; 7] = ["none", "no limit", "infinite", "infinity", "inf", "∞", "-1"];

/// What is counted, between the number and the period.
const NOUNS: [&str; 9] = ["requests", "request", "reqs", "req", "calls", "hits", "tokens", "r", "q"];

/// What other programs write for concurrent requests.
const CONCURRENT: [&str; 6] = ["concurrent", "concurrency", "parallel", "at once", "in flight", "inflight"];

/// Words between the number and the period.
const SEPARATORS: [&str; 6] = ["/", "per", "every", "each", "an", "a"];

/// Rates in one word, and their periods.
const RATES: [(&str, &str); 9] = [
    ("rps", "second"),
    ("qps", "second"),
    ("tps", "second"),
    ("rpm", "minute"),
    ("qpm", "minute"),
    ("tpm", "minute"),
    ("rph", "hour"),
    ("rpd", "day"),
    ("tpd", "day"),
];

/// The short names of units, longest first.
const SHORT_UNITS: [(&str, u64); 6] =
    [("w", 7 * DAY), ("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND), ("ms", MILLISECOND)];

/// The error for a text with a better remedy, if it can be guessed what was meant.
pub(super) fn explain(text: &str, fault: TextFault) -> TextFault {
    if let Some(positive) = text.strip_prefix('-').filter(|positive| parse(positive).is_ok()) {
        let block = match positive.split_once('/') {
            Some((_, period)) => format!(", or 0/{period} to block everything"),
            None => String::new(),
        };
        return TextFault::new(format!("{} is negative", quoted(text)), format!("write {positive}{block}"));
    }
    match guess(text) {
        Some(guess) => TextFault::new(fault.message, format!("did you mean `{guess}`?")),
        None => fault,
    }
}

/// The valid text that this one probably means.
fn guess(text: &str) -> Option<String> {
    let text = text.to_lowercase();
    if UNLIMITED.contains(&text.as_str()) {
        return Some("unlimited".to_owned());
    }
    let (parts, whole, rest) = amount(&text)?;
    let rest = NOUNS.iter().find_map(|noun| after_word(rest, noun)).unwrap_or(rest);
    let guess = concurrent(parts, whole, rest).or_else(|| rate(parts, whole, rest))?;
    parse(&guess).is_ok().then_some(guess)
}

/// The number at the beginning, as a fraction, and the text after it.
fn amount(text: &str) -> Option<(u64, u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | ',' | '_')).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let (thousands, rest) = ["k", "m"]
        .iter()
        .zip([1_000, 1_000_000])
        .find_map(|(letter, factor)| {
            let rest = rest.strip_prefix(letter)?;
            (!rest.starts_with(|c: char| c.is_alphanumeric()) && !rest.is_empty()).then_some((factor, rest))
        })
        .unwrap_or((1, rest));
    // A comma groups three digits; anything else may be a decimal comma.
    let is_grouped = number.split(',').skip(1).all(|group| group.len() == 3);
    if !is_grouped {
        return None;
    }
    let (parts, whole) = super::decimal(&number.replace(',', ""), super::MULTIPLE_DECIMALS)?;
    let parts = parts.checked_mul(thousands)?;
    let divisor = greatest_common_divisor(parts, whole);
    Some((parts / divisor, whole / divisor, rest.trim_start()))
}

fn concurrent(parts: u64, whole: u64, rest: &str) -> Option<String> {
    let rest = rest.trim_start_matches(['/', ' ']);
    let is_concurrent = CONCURRENT.iter().any(|word| rest.starts_with(word));
    (whole == 1 && is_concurrent).then(|| format!("{parts} concurrent"))
}

fn rate(parts: u64, whole: u64, rest: &str) -> Option<String> {
    let period = match RATES.iter().find(|(word, _)| *word == rest) {
        Some((_, period)) => *period,
        None => {
            let period = SEPARATORS.iter().find_map(|separator| after_word(rest, separator))?;
            after_word(period, "per").unwrap_or(period)
        }
    };
    let period = period.trim_end_matches('.');
    let (count, unit) = super::counted(period);
    match (whole, unit) {
        (1, "") if !count.is_empty() => Some(format!("{parts}/{count}s")),
        (1, _) => Some(format!("{parts}/{period}")),
        // A fraction of a unit is a whole unit in a longer period.
        _ => {
            let count = if count.is_empty() { 1 } else { super::number(count).ok()? };
            let length = count.checked_mul(unit_micros(unit)?)?.checked_mul(whole)?;
            let (unit, micros) = SHORT_UNITS.iter().find(|(_, micros)| length.is_multiple_of(*micros))?;
            Some(format!("{parts}/{}{unit}", length / micros))
        }
    }
}

/// The text after a word, which does not end in the middle of another word.
fn after_word<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let rest = text.strip_prefix(word)?;
    let continues = word.ends_with(char::is_alphabetic) && rest.starts_with(char::is_alphabetic);
    (!continues).then(|| rest.trim_start())
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}
