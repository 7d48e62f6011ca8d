//! The small texts of settings: `250ms`, `256KiB`, `10%`, `true`, `X-Api-Key`. Each is read exactly, or refused with a
//! sentence that says what to write.

use std::fmt::Write;
use std::time::Duration;

use http::HeaderName;
use tollgate_rules::limit_text;
use tollgate_rules::problem::{Fault, choose, quoted};

use super::settings::Percent;
use crate::wire::http::{AttributeSource, AuthorizeAttribute};

/// The units of time, longest first, in milliseconds.
const TIMES: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The units of size, largest first.
const SIZES: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// The most values of a list.
const MOST_VALUES: usize = 1_000;

/// Also what one writes in a shell: `1` and `0`.
pub(super) fn switch(text: &str) -> Result<bool, Fault> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err(Fault::new(format!("{} is neither true nor false", quoted(text)), "write true or false")),
    }
}

/// A whole number of a range.
pub(super) fn number(text: &str, least: u64, most: u64) -> Result<u64, Fault> {
    let remedy = || format!("write a number from {least} to {most}");
    match limit_text::number(text) {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        Ok(_) => Err(Fault::new(format!("{} is out of range", quoted(text)), remedy())),
        Err(fault) => Err(Fault::new(fault.message, remedy())),
    }
}

/// A length of time: `250ms`, `10s`, `1h30m`.
pub(super) fn time(text: &str, least: Duration, most: Duration) -> Result<Duration, Fault> {
    let fault = |message: &str, remedy: &str| Err(Fault::new(format!("{} {message}", quoted(text)), remedy));
    if limit_text::number(text).is_ok() {
        return fault("has no unit", &format!("write {text}s for seconds or {text}ms for milliseconds"));
    }
    match millis(text).map(Duration::from_millis) {
        None => fault("is not a length of time", "write for instance 250ms, 10s, 5m or 1h30m"),
        Some(time) if time < least => fault("is too short", &format!("write {} or longer", time_words(least))),
        Some(time) if time > most => fault("is too long", &format!("write {} or shorter", time_words(most))),
        Some(time) => Ok(time),
    }
}

/// Counts with units, each unit shorter than the one before it.
fn millis(text: &str) -> Option<u64> {
    let (mut rest, mut units, mut sum) = (text, &TIMES[..], 0_u64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (count, behind) = rest.split_at(digits);
        let letters = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(letters);
        let at = units.iter().position(|(name, _)| *name == unit)?;
        let (_, length) = units.get(at)?;
        sum = sum.checked_add(count.parse::<u64>().ok()?.checked_mul(*length)?)?;
        (rest, units) = (behind, units.get(at + 1..)?);
    }
    (!text.is_empty()).then_some(sum)
}

/// A length of time as one would write it.
pub(super) fn time_words(time: Duration) -> String {
    let mut left = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let mut words = String::new();
    // People say 24h, and not 1d.
    for (unit, length) in TIMES.into_iter().skip(if left % 86_400_000 == 0 && left > 86_400_000 { 0 } else { 1 }) {
        if left >= length {
            let _ = write!(words, "{}{unit}", left / length);
            left %= length;
        }
    }
    if words.is_empty() { "0s".to_owned() } else { words }
}

/// A number of bytes: `64KiB`, `1MiB`, `65536`.
pub(super) fn size(text: &str, least: u64, most: u64) -> Result<u64, Fault> {
    let unit = SIZES.iter().find_map(|(unit, bytes)| text.strip_suffix(unit).map(|count| (count, *bytes)));
    let (count, bytes) = unit.unwrap_or((text, 1));
    let range = || format!("write a size from {} to {}", size_words(least), size_words(most));
    match limit_text::number(count).ok().map(|count| count.checked_mul(bytes)) {
        Some(Some(size)) if (least..=most).contains(&size) => Ok(size),
        Some(_) => Err(Fault::new(format!("{} is out of range", quoted(text)), range())),
        None => {
            let remedy = "write bytes, or a number with KiB or MiB behind it, for instance 64KiB";
            Err(Fault::new(format!("{} is not a size", quoted(text)), remedy))
        }
    }
}

/// A size as one would write it.
pub(super) fn size_words(size: u64) -> String {
    match SIZES.iter().find(|(_, bytes)| size >= *bytes && size.is_multiple_of(*bytes)) {
        Some((unit, bytes)) => format!("{}{unit}", size / bytes),
        None => size.to_string(),
    }
}

/// A share: `10%`, `0.5%`.
pub(super) fn percent(text: &str) -> Result<Percent, Fault> {
    let read = limit_text::percent(text);
    read.map(|parts| Percent { parts })
        .map_err(|fault| Fault::new(format!("{} is not a percentage", quoted(text)), fault.remedy))
}

/// One of these words: its place among them.
pub(super) fn word(text: &str, words: &[&'static str]) -> Result<usize, Fault> {
    let place = words.iter().position(|word| *word == text);
    place.ok_or_else(|| {
        Fault::new(format!("{} is not one of {}", quoted(text), words.join(", ")), choose(text, words.iter().copied()))
    })
}

/// Values parted by commas, or `none`. No value is empty and none is there twice.
pub(super) fn list(text: &str) -> Result<Vec<&str>, Fault> {
    if text == "none" {
        return Ok(Vec::new());
    }
    let values: Vec<&str> = text.split(',').map(str::trim).take(MOST_VALUES + 1).collect();
    if values.len() > MOST_VALUES {
        return Err(Fault::new(format!("there are more than {MOST_VALUES} values"), "write fewer"));
    }
    for (at, value) in values.iter().enumerate() {
        if value.is_empty() {
            let message = format!("there is an empty value in {}", quoted(text));
            return Err(Fault::new(message, "write values with a single comma between them, or none"));
        }
        if *value == "none" {
            return Err(Fault::new("`none` stands beside other values", "write it alone, or remove it"));
        }
        if values.iter().take(at).any(|before| before == value) {
            return Err(Fault::new(format!("{} is there twice", quoted(value)), "keep one of the two"));
        }
    }
    Ok(values)
}

/// The name of a header.
pub(super) fn header(text: &str) -> Result<HeaderName, Fault> {
    HeaderName::from_bytes(text.as_bytes()).map_err(|_| {
        let message = format!("{} is not the name of a header", quoted(text));
        Fault::new(message, "write letters, digits and dashes, for instance X-Api-Key")
    })
}

/// An attribute and where it is taken from: `api_key=X-Api-Key`, `endpoint=:endpoint`.
pub(super) fn attribute(text: &str) -> Result<AuthorizeAttribute, Fault> {
    let pair = text.split_once('=').map(|(name, source)| (name.trim(), source.trim()));
    let Some((name, source)) = pair.filter(|(name, source)| !name.is_empty() && !source.is_empty()) else {
        let message = format!("{} is not an attribute with a header", quoted(text));
        return Err(Fault::new(message, "write for instance api_key=X-Api-Key or endpoint=:endpoint"));
    };
    let source = match source {
        ":endpoint" => AttributeSource::Endpoint,
        ":method" => AttributeSource::Method,
        ":path" => AttributeSource::Path,
        header if header.starts_with(':') => {
            let message = format!("{} is not a part of the original request", quoted(header));
            return Err(Fault::new(message, "write :endpoint, :method, :path or the name of a header"));
        }
        header => AttributeSource::Header(self::header(header)?),
    };
    Ok(AuthorizeAttribute { name: name.to_owned(), source })
}

/// A level, or directives for single parts of the program.
pub(super) fn log_level(text: &str, levels: &[&'static str]) -> Result<String, Fault> {
    let lower = text.to_ascii_lowercase();
    if lower == "off" || levels.contains(&lower.as_str()) {
        return Ok(lower);
    }
    let fault = || Fault::new(format!("{} is not a level", quoted(text)), choose(&lower, levels.iter().copied()));
    // A word by itself would be taken for the name of a part, and log nothing else.
    if !text.contains('=') {
        return Err(fault());
    }
    match text.parse::<crate::observe::log::Filter>() {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(Fault::new(
            format!("{} is neither a level nor directives", quoted(text)),
            "write for instance info or info,tollgate=debug",
        )),
    }
}

/// An http or https URL.
pub(super) fn url(text: &str) -> Result<String, Fault> {
    let sound = text.parse::<http::Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    });
    if sound {
        return Ok(text.to_owned());
    }
    let message = format!("{} is not an http or https URL", quoted(&without_password(text)));
    Err(Fault::new(message, "write for instance http://127.0.0.1:4317"))
}

/// What is shown of a password.
pub(super) const HIDDEN: &str = "***";

/// A URL with `***` for its password. What has none is left as it is.
pub(super) fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    // A password that was not escaped may hold any of these, so the last `@` counts.
    let Some((user, host)) = rest.rsplit_once('@') else { return text.to_owned() };
    match user.split_once(':') {
        Some((name, _)) => format!("{scheme}://{name}:{HIDDEN}@{host}"),
        None => format!("{scheme}://{HIDDEN}@{host}"),
    }
}

/// So many a second: `100/second`.
pub(super) fn rate(text: &str, most: u64) -> Result<u64, Fault> {
    let count = text.strip_suffix("/second").or_else(|| text.strip_suffix("/s"));
    count.map(str::trim_end).and_then(|count| number(count, 1, most).ok()).ok_or_else(|| {
        let message = format!("{} is not a number of requests a second from 1 to {most}", quoted(text));
        Fault::new(message, "write for instance 1000/second")
    })
}

/// The beginning of keys in Redis.
pub(super) fn prefix(text: &str) -> Result<String, Fault> {
    const LONGEST: usize = 64;
    // What is in braces says which node of a cluster a key is on.
    let sound = |c: char| c.is_ascii_graphic() && !matches!(c, '{' | '}');
    if text.len() <= LONGEST && text.chars().all(sound) {
        return Ok(text.to_owned());
    }
    let message = format!("{} can't begin a key", quoted(text));
    Err(Fault::new(message, format!("write up to {LONGEST} ASCII characters without spaces and braces, such as tg:")))
}
