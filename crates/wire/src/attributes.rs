//! Names and values as rules see them, the same on every wire: one caller is one counter.
//!
//! Clients of a gateway choose values. So no value is an error: a gateway lets requests pass when a check fails. What
//! can't be used as it was sent is rewritten here, and counted.

use std::borrow::Cow;

use tollgate::Request;
use tollgate_rules::attribute_text::{as_text, escaped, shorten};
use tollgate_rules::{Domain, is_address, parse_address};
use tollgate_telemetry::metrics::{Repair, Repairs};

use crate::instructions::is_instruction;

/// A check that can't be decided: the policies of the rules are the answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Undecided;

/// The value of an attribute, if rules can use it as it was sent.
#[inline]
pub(crate) fn as_sent<'v>(name: &str, value: &'v [u8]) -> Option<&'v str> {
    as_text(value).filter(|text| is_usable(name, text))
}

/// Whether rules can use a name with a value that has the right form of text.
#[inline]
pub(crate) fn is_usable(name: &str, text: &str) -> bool {
    let is_bounded =
        name.len() <= Request::MAX_TEXT_BYTES && (text.len() <= Request::MAX_ONCE_BYTES || !is_instruction(name));
    is_bounded && !(is_address(name) && may_have_port(text))
}

/// Whether an address may have a port or brackets. Addresses of IPv6 have two colons at least.
fn may_have_port(address: &str) -> bool {
    address.starts_with('[') || memchr::memchr_iter(b':', address.as_bytes()).count() == 1
}

/// The value of an attribute as rules see it.
#[cold]
pub(crate) fn repaired<'v>(name: &str, value: &'v [u8], repairs: &mut Repairs) -> Cow<'v, str> {
    let text = escaped(value);
    if matches!(text, Cow::Owned(_)) {
        repairs.add(Repair::NotText);
    }
    if is_address(name)
        && may_have_port(&text)
        && let Some(address) = parse_address(&text)
    {
        return Cow::Owned(address.to_string());
    }
    let (max, repair) = match is_instruction(name) {
        true => (Request::MAX_ONCE_BYTES, Repair::BadName),
        false => (Request::MAX_TEXT_BYTES, Repair::LongText),
    };
    shortened(text, max, repair, repairs)
}

/// A text of at most `max` bytes.
pub(crate) fn shortened<'t>(text: Cow<'t, str>, max: usize, repair: Repair, repairs: &mut Repairs) -> Cow<'t, str> {
    let Cow::Owned(short) = shorten(&text, max) else { return text };
    repairs.add(repair);
    Cow::Owned(short)
}

/// Leaves out the entries that a descriptor has too many of: those that no rule of the domain reads, the last ones
/// first. The others stay in order.
///
/// # Errors
/// If rules read too many of them: each could be the one that refuses the request.
#[cold]
pub(crate) fn trim<T>(
    entries: &mut Vec<T>,
    name: impl Fn(&T) -> &str,
    domain: Option<&Domain>,
    repairs: &mut Repairs,
) -> Result<(), Undecided> {
    repairs.add(Repair::TooMany);
    let mut read: Vec<bool> = vec![false; entries.len()];
    let mut names: Vec<&str> = Vec::new();
    for (entry, read) in entries.iter().zip(&mut read) {
        let name = name(entry);
        // Rules read the first value of a name.
        let is_read = domain.is_some_and(|domain| domain.reads(name)) && !names.contains(&name);
        if is_read || is_instruction(name) {
            names.push(name);
            *read = true;
            if names.len() > Request::MAX_ENTRIES {
                return Err(Undecided);
            }
        }
    }
    let mut spare = Request::MAX_ENTRIES - names.len();
    let mut read = read.into_iter();
    entries.retain(|_| {
        read.next() == Some(true)
            || spare > 0 && {
                spare -= 1;
                true
            }
    });
    Ok(())
}

#[cfg(test)]
mod tests;
