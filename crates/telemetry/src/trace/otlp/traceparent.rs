//! The header `traceparent` of W3C Trace Context: `00-TRACE-SPAN-FLAGS`, in lowercase hexadecimal digits.

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// Parses the caller's span. A malformed header is ignored, as the standard requires.
pub(super) fn parse(header: &str) -> Option<SpanContext> {
    let mut parts = header.trim().split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let version = number(version, 2)?;
    // Later versions may have more fields. 255 is invalid.
    if version == 0xff || version == 0 && parts.next().is_some() {
        return None;
    }
    let trace = TraceId::from(number(trace, 32)?);
    let span = SpanId::from(u64::try_from(number(span, 16)?).ok()?);
    let flags = TraceFlags::new(u8::try_from(number(flags, 2)?).ok()?) & TraceFlags::SAMPLED;
    Some(SpanContext::new(trace, span, flags, true, TraceState::NONE)).filter(SpanContext::is_valid)
}

/// A number with exactly this many digits.
fn number(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    let is_number = text.len() == digits && text.bytes().all(is_digit);
    is_number.then(|| u128::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_names_a_span() {
        let parent = parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap();
        assert_eq!(parent.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(parent.span_id().to_string(), "b7ad6b7169203331");
        assert!(parent.is_sampled() && parent.is_remote());
        assert!(!parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-02").unwrap().is_sampled());
        assert!(parse(" 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff ").unwrap().is_sampled());
        // A later version with more parts.
        assert!(parse("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what").is_some());
    }

    #[test]
    fn malformed_headers_are_ignored() {
        for header in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
            "00-0af7651916cd43dd8448eb211c80319ü-b7ad6b7169203331-01",
            "0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert!(parse(header).is_none(), "{header}");
        }
    }
}
