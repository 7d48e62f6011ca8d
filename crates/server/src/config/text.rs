//! Parsers of values: `250ms`, `256KiB`, `10%`, `true`, `X-Api-Key`. An invalid text is rejected with a remedy.

use std::fmt::Write;
use std::time::Duration;

use http::HeaderName;
use tollgate_rules::limit_text;
use tollgate_rules::problem::{TextFault, choose, quoted};

use super::settings::Percent;
use tollgate_wire::http::{AttributeSource, AuthorizeAttribute};

/// The units of time, longest first, in milliseconds.
const TIMES: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The units of size, largest first.
const SIZES: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Values of a list.
const MAX_VALUES: usize = 1_000;

/// `true` or `false`, also `yes`, `on` and `1`.
pub(super) fn switch(text: &str) -> Result<bool, TextFault> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err(TextFault::new(format!("{} is neither true nor false", quoted(text)), "write true or false")),
    }
}

/// A whole number within a range.
pub(super) fn number(text: &str, min: u64, max: u64) -> Result<u64, TextFault> {
    let remedy = || format!("write a number from {min} to {max}");
    match limit_text::number(text) {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        Ok(_) => Err(TextFault::new(format!("{} is out of range", quoted(text)), remedy())),
        Err(fault) => Err(TextFault::new(fault.message, remedy())),
    }
}

/// A length of time: `250ms`, `10s`, `1h30m`.
pub(super) fn time(text: &str, min: Duration, max: Duration) -> Result<Duration, TextFault> {
    let fault = |message: &str, remedy: &str| Err(TextFault::new(format!("{} {message}", quoted(text)), remedy));
    if limit_text::number(text).is_ok() {
        return fault("has no unit", &format!("write {text}s for seconds or {text}ms for milliseconds"));
    }
    match millis(text).map(Duration::from_millis) {
        None => fault("is not a length of time", "write for instance 250ms, 10s, 5m or 1h30m"),
        Some(time) if time < min => fault("is too short", &format!("write {} or longer", format_time(min))),
        Some(time) if time > max => fault("is too long", &format!("write {} or shorter", format_time(max))),
        Some(time) => Ok(time),
    }
}

/// Counts with units, each unit shorter than the one before it.
fn millis(text: &str) -> Option<u64> {
    let (mut rest, mut units, mut sum) = (text, &TIMES[..], 0_u64);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (count, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let at = units.iter().position(|(name, _)| *name == unit)?;
        let (_, length) = units.get(at)?;
        sum = sum.checked_add(count.parse::<u64>().ok()?.checked_mul(*length)?)?;
        (rest, units) = (tail, units.get(at + 1..)?);
    }
    (!text.is_empty()).then_some(sum)
}

/// A duration as one would write it.
pub(super) fn format_time(time: Duration) -> String {
    let mut left = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let mut formatted = String::new();
    // `24h` is more common than `1d`.
    for (unit, length) in TIMES.into_iter().skip(if left % 86_400_000 == 0 && left > 86_400_000 { 0 } else { 1 }) {
        if left >= length {
            let _ = write!(formatted, "{}{unit}", left / length);
            left %= length;
        }
    }
    if formatted.is_empty() { "0s".to_owned() } else { formatted }
}

/// A number of bytes: `64KiB`, `1MiB`, `65536`.
pub(super) fn size(text: &str, min: u64, max: u64) -> Result<u64, TextFault> {
    let unit = SIZES.iter().find_map(|(unit, bytes)| text.strip_suffix(unit).map(|count| (count, *bytes)));
    let (count, bytes) = unit.unwrap_or((text, 1));
    let range = || format!("write a size from {} to {}", format_size(min), format_size(max));
    match limit_text::number(count).ok().map(|count| count.checked_mul(bytes)) {
        Some(Some(size)) if (min..=max).contains(&size) => Ok(size),
        Some(_) => Err(TextFault::new(format!("{} is out of range", quoted(text)), range())),
        None => {
            let remedy = "write bytes, or a number with KiB or MiB, for instance 64KiB";
            Err(TextFault::new(format!("{} is not a size", quoted(text)), remedy))
        }
    }
}

/// A size as one would write it.
pub(super) fn format_size(size: u64) -> String {
    match SIZES.iter().find(|(_, bytes)| size >= *bytes && size.is_multiple_of(*bytes)) {
        Some((unit, bytes)) => format!("{}{unit}", size / bytes),
        None => size.to_string(),
    }
}

/// A percentage: `10%`, `0.5%`.
pub(super) fn percent(text: &str) -> Result<Percent, TextFault> {
    let read = limit_text::percent(text);
    read.map(|bps| Percent { bps })
        .map_err(|fault| TextFault::new(format!("{} is not a percentage", quoted(text)), fault.remedy))
}

/// One of these words: its position.
pub(super) fn word(text: &str, words: &[&'static str]) -> Result<usize, TextFault> {
    let position = words.iter().position(|word| *word == text);
    position.ok_or_else(|| {
        TextFault::new(
            format!("{} is not one of {}", quoted(text), words.join(", ")),
            choose(text, words.iter().copied()),
        )
    })
}

/// Values separated by commas, or `none`. Empty and duplicate values are errors.
pub(super) fn list(text: &str) -> Result<Vec<&str>, TextFault> {
    if text == "none" {
        return Ok(Vec::new());
    }
    let values: Vec<&str> = text.split(',').map(str::trim).take(MAX_VALUES + 1).collect();
    if values.len() > MAX_VALUES {
        return Err(TextFault::new(format!("there are more than {MAX_VALUES} values"), "write fewer"));
    }
    for (at, value) in values.iter().enumerate() {
        if value.is_empty() {
            let message = format!("there is an empty value in {}", quoted(text));
            return Err(TextFault::new(message, "write values with a single comma between them, or none"));
        }
        if *value == "none" {
            return Err(TextFault::new("`none` is combined with other values", "write it alone, or remove it"));
        }
        if values.iter().take(at).any(|before| before == value) {
            return Err(TextFault::new(format!("{} appears twice", quoted(value)), "keep one of the two"));
        }
    }
    Ok(values)
}

/// The name of a header.
pub(super) fn header(text: &str) -> Result<HeaderName, TextFault> {
    HeaderName::from_bytes(text.as_bytes()).map_err(|_| {
        let message = format!("{} is not the name of a header", quoted(text));
        TextFault::new(message, "write letters, digits and dashes, for instance X-Api-Key")
    })
}

/// An attribute and its source: `api_key=X-Api-Key`, `endpoint=:endpoint`.
pub(super) fn attribute(text: &str) -> Result<AuthorizeAttribute, TextFault> {
    let pair = text.split_once('=').map(|(name, source)| (name.trim(), source.trim()));
    let Some((name, source)) = pair.filter(|(name, source)| !name.is_empty() && !source.is_empty()) else {
        let message = format!("{} is not an attribute with a header", quoted(text));
        return Err(TextFault::new(message, "write for instance api_key=X-Api-Key or endpoint=:endpoint"));
    };
    let source = match source {
        ":endpoint" => AttributeSource::Endpoint,
        ":method" => AttributeSource::Method,
        ":path" => AttributeSource::Path,
        header if header.starts_with(':') => {
            let message = format!("{} is not a part of the original request", quoted(header));
            return Err(TextFault::new(message, "write :endpoint, :method, :path or the name of a header"));
        }
        header => AttributeSource::Header(self::header(header)?),
    };
    Ok(AuthorizeAttribute { name: name.to_owned(), source })
}

/// A log level, or directives for single modules.
pub(super) fn log_level(text: &str, levels: &[&'static str]) -> Result<String, TextFault> {
    let lower = text.to_ascii_lowercase();
    if lower == "off" || levels.contains(&lower.as_str()) {
        return Ok(lower);
    }
    let fault = || TextFault::new(format!("{} is not a level", quoted(text)), choose(&lower, levels.iter().copied()));
    // A word alone would be the name of a module, and log nothing else.
    if !text.contains('=') {
        return Err(fault());
    }
    match text.parse::<tollgate_telemetry::log::LogFilter>() {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(TextFault::new(
            format!("{} is neither a level nor directives", quoted(text)),
            "write for instance info or info,tollgate=debug",
        )),
    }
}

/// An http or https URL.
pub(super) fn url(text: &str) -> Result<String, TextFault> {
    let is_valid = text.parse::<http::Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    });
    if is_valid {
        return Ok(text.to_owned());
    }
    let message = format!("{} is not an http or https URL", quoted(&without_password(text)));
    Err(TextFault::new(message, "write for instance http://127.0.0.1:4317"))
}

/// The replacement of a password.
pub(super) const HIDDEN: &str = "***";

/// A URL with `***` for its password, if it has one.
pub(super) fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    // A password that is not escaped may contain `@`, so the last one counts.
    let Some((user, host)) = rest.rsplit_once('@') else { return text.to_owned() };
    match user.split_once(':') {
        Some((name, _)) => format!("{scheme}://{name}:{HIDDEN}@{host}"),
        None => format!("{scheme}://{HIDDEN}@{host}"),
    }
}

/// The names and URLs of `us-west=redis://a,eu-west=redis://b:7001,c:7001`: an item without a name continues the URL of
/// the one before, which is that of a cluster.
pub(super) fn regions(text: &str) -> Vec<(String, String)> {
    let mut regions: Vec<(String, String)> = Vec::new();
    for item in text.split(',').map(str::trim) {
        let named = item.split_once('=').filter(|(name, _)| !name.contains([':', '/', '@']));
        match (named, regions.last_mut()) {
            (Some((name, url)), _) => regions.push((name.trim().to_owned(), url.trim().to_owned())),
            (None, Some((_, url))) => {
                url.push(',');
                url.push_str(item);
            }
            (None, None) => regions.push((String::new(), item.to_owned())),
        }
    }
    regions
}

/// Regions with `***` for the passwords of their URLs.
pub(super) fn regions_without_passwords(text: &str) -> String {
    let shown = regions(text).into_iter().map(|(name, url)| match name.as_str() {
        "" => without_password(&url),
        name => format!("{name}={}", without_password(&url)),
    });
    shown.collect::<Vec<_>>().join(",")
}

/// A rate: `100/second`.
pub(super) fn rate(text: &str, max: u64) -> Result<u64, TextFault> {
    let count = text.strip_suffix("/second").or_else(|| text.strip_suffix("/s"));
    count.map(str::trim_end).and_then(|count| number(count, 1, max).ok()).ok_or_else(|| {
        let message = format!("{} is not a number of requests a second from 1 to {max}", quoted(text));
        TextFault::new(message, "write for instance 1000/second")
    })
}

/// The prefix of keys in Redis.
pub(super) fn prefix(text: &str) -> Result<String, TextFault> {
    const MAX_LENGTH: usize = 64;
    // The part in braces is a hash tag, which determines the node of a cluster.
    let is_valid = |c: char| c.is_ascii_graphic() && !matches!(c, '{' | '}');
    if text.len() <= MAX_LENGTH && text.chars().all(is_valid) {
        return Ok(text.to_owned());
    }
    let message = format!("{} can't begin a key", quoted(text));
    Err(TextFault::new(
        message,
        format!("write up to {MAX_LENGTH} ASCII characters without spaces and braces, such as tg:"),
    ))
}
