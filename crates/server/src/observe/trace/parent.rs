//! The header `traceparent` of W3C Trace Context: `00-TRACE-SPAN-FLAGS`, in lower-case hexadecimal digits.

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// The caller's span. A header that is not well-formed is ignored, as the standard wants it.
pub(super) fn read(header: &str) -> Option<SpanContext> {
    let mut parts = header.trim().split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let version = number(version, 2)?;
    // Later versions may have more to say. 255 is none.
    if version == 0xff || version == 0 && parts.next().is_some() {
        return None;
    }
    let trace = TraceId::from(number(trace, 32)?);
    let span = SpanId::from(u64::try_from(number(span, 16)?).ok()?);
    let flags = TraceFlags::new(u8::try_from(number(flags, 2)?).ok()?) & TraceFlags::SAMPLED;
    Some(SpanContext::new(trace, span, flags, true, TraceState::NONE)).filter(SpanContext::is_valid)
}

/// A number of exactly so many digits.
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
        let parent = read("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap();
        assert_eq!(parent.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(parent.span_id().to_string(), "b7ad6b7169203331");
        assert!(parent.is_sampled() && parent.is_remote());
        assert!(!read("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-02").unwrap().is_sampled());
        assert!(read(" 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff ").unwrap().is_sampled());
        // A later version with more parts.
        assert!(read("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what").is_some());
    }

    #[test]
    fn what_is_not_well_formed_is_ignored() {
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
            assert!(read(header).is_none(), "{header}");
        }
    }
}
