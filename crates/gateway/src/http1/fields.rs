//! Fields of heads.

use std::ops::Range;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::names::KnownNames;
use crate::field_marks::FieldMarks;

/// Where the name and the value of a field are, in the bytes of a head.
#[derive(Clone, Debug)]
pub(crate) struct FieldRange {
    pub(crate) name: Range<usize>,
    pub(crate) value: Range<usize>,
}

impl FieldRange {
    /// The places of fields that were parsed from these bytes.
    pub(crate) fn all(head: &[u8], fields: &[httparse::Header<'_>]) -> SmallVec<[FieldRange; 24]> {
        let start = head.as_ptr() as usize;
        let range = |part: &[u8]| {
            let begin = (part.as_ptr() as usize).saturating_sub(start);
            begin..begin + part.len()
        };
        fields
            .iter()
            .map(|field| FieldRange { name: range(field.name.as_bytes()), value: range(field.value) })
            .collect()
    }
}

/// The fields at these places, and their kinds. Their values share the bytes. `None` if one is invalid.
pub(crate) fn header_map(head: &Bytes, fields: &[FieldRange]) -> Option<(HeaderMap, FieldMarks)> {
    KnownNames::with(|names| {
        let (mut headers, mut marks) = (HeaderMap::with_capacity(fields.len()), FieldMarks::default());
        for FieldRange { name, value } in fields {
            let (name, kinds) = names.read(head.get(name.clone())?)?;
            let value = HeaderValue::from_maybe_shared(head.slice(value.clone())).ok()?;
            headers.append(name, value);
            marks = marks.with(kinds);
        }
        Some((headers, marks))
    })
}

pub(crate) fn write_field(name: &HeaderName, value: &HeaderValue, output: &mut Vec<u8>) {
    output.extend_from_slice(name.as_str().as_bytes());
    output.extend_from_slice(b": ");
    output.extend_from_slice(value.as_bytes());
    output.extend_from_slice(b"\r\n");
}

/// Appends a value to a list, whose field was written last.
pub(crate) fn write_further(separator: &[u8], value: &HeaderValue, output: &mut Vec<u8>) {
    output.truncate(output.len() - b"\r\n".len());
    output.extend_from_slice(separator);
    output.extend_from_slice(value.as_bytes());
    output.extend_from_slice(b"\r\n");
}

/// `Content-Length`.
pub(crate) fn write_length(length: u64, output: &mut Vec<u8>) {
    output.extend_from_slice(b"content-length: ");
    output.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    output.extend_from_slice(b"\r\n");
}

/// A number in digits alone.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// Whether `Connection` has an option.
pub(crate) fn has_option(headers: &HeaderMap, option: &[u8]) -> bool {
    let fields = headers.get_all(CONNECTION).into_iter();
    fields
        .flat_map(|field| field.as_bytes().split(|byte| *byte == b','))
        .any(|one| one.trim_ascii().eq_ignore_ascii_case(option))
}
