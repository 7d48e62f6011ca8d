//! The single values of the file: times, sizes, shares, names.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderName, Method};
use tollgate_net::AddressError;
use tollgate_rules::limit_text;
use tollgate_rules::problem::{TextFault, choose, quoted};
use tollgate_rules::yaml::fields::text;
use tollgate_rules::yaml::{Yaml, YamlKind};

/// The longest name of a route, an upstream or an attribute, in characters.
const MAX_NAME_CHARS: usize = 64;

/// The longest time. A longer one is a mistake in the unit.
const MAX_TIME: Duration = Duration::from_secs(24 * 3600);

/// The largest size, in bytes.
const MAX_SIZE: u64 = 1 << 40;

/// The most methods of a route.
pub(super) const MAX_METHODS: usize = 16;

const USUAL_METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Replaces a default.
pub(super) fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

/// A time of at least a millisecond.
pub(super) fn time(value: &Yaml) -> Result<Duration, TextFault> {
    let given = text(value)?;
    let time = Duration::from_micros(limit_text::duration(given)?.as_micros());
    match time {
        Duration::ZERO => Err(TextFault::new("this time is 0", "write a longer one, for instance 1s")),
        time if time > MAX_TIME => Err(TextFault::new(format!("{} is too long", quoted(given)), "write at most 24h")),
        time => Ok(time),
    }
}

/// A time, or 0.
pub(super) fn time_or_zero(value: &Yaml) -> Result<Duration, TextFault> {
    match text(value)? {
        "0" | "0s" | "0ms" => Ok(Duration::ZERO),
        _ => time(value),
    }
}

/// A whole number in a range.
pub(super) fn count<T: TryFrom<u64>>(value: &Yaml, range: RangeInclusive<u64>) -> Result<T, TextFault> {
    let given = text(value)?;
    let number = limit_text::number(given).ok().filter(|number| range.contains(number));
    number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
        let remedy = format!("write a whole number from {} to {}", range.start(), range.end());
        TextFault::new(format!("{} is out of range", quoted(given)), remedy)
    })
}

/// A percentage in a range of percents, as a part of 1.
pub(super) fn share(value: &Yaml, range: RangeInclusive<u16>) -> Result<f64, TextFault> {
    let given = text(value)?;
    let points = limit_text::percent(given)?;
    match (range.start() * 100..=range.end() * 100).contains(&points) {
        true => Ok(f64::from(points) / 1e4),
        false => Err(TextFault::new(
            format!("{} is out of range", quoted(given)),
            format!("write {}% to {}%", range.start(), range.end()),
        )),
    }
}

/// A number of bytes: `512`, `64KiB`, `10MiB`, `1GiB`.
pub(super) fn size(value: &Yaml) -> Result<u64, TextFault> {
    let given = text(value)?;
    let fault = || {
        let remedy = "write for instance 512, 64KiB, 10MiB or 1GiB, at most 1024GiB";
        TextFault::new(format!("{} is not a size", quoted(given)), remedy)
    };
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let unit = units.into_iter().find_map(|(unit, shift)| Some((given.strip_suffix(unit)?, shift)));
    let (count, shift) = unit.unwrap_or((given, 0));
    let bytes = limit_text::number(count.trim()).ok().and_then(|count| count.checked_mul(1 << shift));
    bytes.filter(|bytes| *bytes <= MAX_SIZE).ok_or_else(fault)
}

/// A name that messages, metrics and rules can have: letters, digits, `_`, `-`, `.`.
pub(super) fn name(what: &str, given: &str) -> Result<String, TextFault> {
    let is_usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    match !given.is_empty() && given.len() <= MAX_NAME_CHARS && given.chars().all(is_usual) {
        true => Ok(given.to_owned()),
        false => Err(TextFault::new(
            format!("{} can't be the name of {what}", quoted(given)),
            format!("write 1 to {MAX_NAME_CHARS} letters, digits, `_`, `-` or `.`"),
        )),
    }
}

/// A text that is not empty, such as a claim or an audience.
pub(super) fn words(value: &Yaml) -> Result<String, TextFault> {
    const MAX_BYTES: usize = 1024;
    match text(value)? {
        given if !given.is_empty() && given.len() <= MAX_BYTES && !given.contains(char::is_control) => {
            Ok(given.to_owned())
        }
        given => Err(TextFault::new(
            format!("{} is empty, too long, or has control characters", quoted(given)),
            format!("write 1 to {MAX_BYTES} bytes of printable text"),
        )),
    }
}

/// The error for a name that nothing has.
pub(super) fn unknown<'a>(what: &str, given: &str, names: impl Iterator<Item = &'a str> + Clone) -> TextFault {
    let remedy = match names.clone().next() {
        Some(_) => choose(given, names.collect::<Vec<_>>()),
        None => format!("the file has no {what}: write one first"),
    };
    TextFault::new(format!("there is no {what} {}", quoted(given)), remedy)
}

/// One of a few words.
pub(super) fn word<T: Copy>(what: &str, value: &Yaml, words: &[(&str, T)]) -> Result<T, TextFault> {
    let given = text(value)?;
    let found = words.iter().find(|(word, _)| *word == given).map(|(_, meaning)| *meaning);
    found.ok_or_else(|| {
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        TextFault::new(format!("{} is not {what}", quoted(given)), choose(given, words))
    })
}

/// The items of a list, or a value alone.
pub(super) fn one_or_more(value: &Yaml, most: usize) -> Result<&[Yaml], TextFault> {
    match &value.kind {
        YamlKind::List(items) if items.len() > most => {
            Err(TextFault::new("the list is too long", format!("write at most {most} items")))
        }
        YamlKind::List(items) => Ok(items),
        _ => Ok(std::slice::from_ref(value)),
    }
}

/// The error for an address. None here can be off.
pub(super) fn address_fault(error: AddressError) -> TextFault {
    TextFault::new(error.message, error.remedy.replace("host:port, unix:PATH or off", "host:port or unix:PATH"))
}

pub(super) fn header(given: &str) -> Result<HeaderName, TextFault> {
    given.parse().map_err(|_| {
        TextFault::new(format!("{} is not the name of a header", quoted(given)), "write for instance X-Api-Key")
    })
}

pub(super) fn methods(value: &Yaml) -> Result<Vec<Method>, TextFault> {
    let mut methods = Vec::new();
    for item in one_or_more(value, MAX_METHODS)? {
        let method = method(text(item)?)?;
        if methods.contains(&method) {
            return Err(TextFault::new(format!("the method {method} is here twice"), "remove one of the two"));
        }
        methods.push(method);
    }
    match methods.is_empty() {
        true => Err(TextFault::new("the list of methods is empty", "leave out `methods` for all of them")),
        false => Ok(methods),
    }
}

/// A method that can be forwarded. Methods have upper and lower case, and all usual ones are in upper case.
pub(super) fn method(given: &str) -> Result<Method, TextFault> {
    let upper = given.to_ascii_uppercase();
    let message = format!("{} is not a method", quoted(given));
    match Method::from_bytes(given.as_bytes()) {
        Ok(Method::CONNECT | Method::TRACE) => Err(TextFault::new(format!("{given} is never forwarded"), "remove it")),
        Ok(_) if upper != given => Err(TextFault::new(message, format!("write {upper}"))),
        Ok(method) if given.len() <= MAX_NAME_CHARS => Ok(method),
        _ => Err(TextFault::new(message, choose(given, USUAL_METHODS))),
    }
}

/// A file. A relative path begins at the folder.
pub(super) fn file(value: &Yaml, folder: &Path) -> Result<PathBuf, TextFault> {
    let given = text(value)?;
    match given.is_empty() || given.contains('\0') {
        true => Err(TextFault::new("there is no name of a file", "write its path")),
        false => Ok(folder.join(given)),
    }
}
