//! Costs from responses.

use http::HeaderName;
use proptest::prelude::*;

use super::*;

const EVENTS: &[(&str, &str)] = &[("content-type", "text/event-stream; charset=utf-8")];
const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
const LLM: SettleSource = SettleSource::Llm { include_usage: false };

fn reported(units: u64) -> Option<MeteredCost> {
    Some(MeteredCost { units, is_estimated: false })
}

fn estimated(units: u64) -> Option<MeteredCost> {
    Some(MeteredCost { units, is_estimated: true })
}

fn metered<'f>(
    source: &SettleSource,
    head: &http::response::Parts,
    frames: impl IntoIterator<Item = &'f [u8]>,
) -> Option<MeteredCost> {
    let mut meter = Meter::new(source, head);
    frames.into_iter().for_each(|frame| meter.frame(frame));
    meter.finish()
}

/// The cost of a body is the same wherever it is split.
#[track_caller]
fn check(source: &SettleSource, headers: &[(&str, &str)], body: &str, expected: Option<MeteredCost>) {
    let (head, body) = (response(200, headers), body.as_bytes());
    assert_eq!(metered(source, &head, [body]), expected);
    assert_eq!(metered(source, &head, body.chunks(1)), expected);
    for at in 0..body.len() {
        assert_eq!(metered(source, &head, [&body[..at], &body[at..]]), expected, "{at}");
    }
}

#[test]
fn headers_are_read() {
    let source = SettleSource::Header(HeaderName::from_static("x-tollgate-cost"));
    check(&source, &[("x-tollgate-cost", "12")], "abc", reported(12));
    check(&source, &[("x-tollgate-cost", "x")], "abc", None);
    check(&source, &[("x-tollgate-cost", "12"), ("content-encoding", "gzip")], "abc", reported(12));
    check(&source, &[], "abc", None);
}

#[test]
fn json_bodies_are_read() {
    let source = SettleSource::Json(pointer("/usage/total_tokens"));
    check(&source, JSON, r#"{"usage": {"total_tokens": 12}}"#, reported(12));
    check(&source, JSON, r#"{"usage": {}}"#, None);
    check(&source, JSON, r#"{"usage": {"total_tokens": 12}"#, None);
    check(&source, &[], r#"{"usage": {"total_tokens": 12}}"#, reported(12));
    check(&source, &[("content-encoding", "gzip")], "abcdefgh", estimated(2));
    check(&source, &[("content-encoding", "Identity")], r#"{"usage": {"total_tokens": 12}}"#, reported(12));
    let long = format!(r#"{{"usage": {{"total_tokens": 12}}, "x": "{}"}}"#, "x".repeat(1 << 20));
    let head = response(200, JSON);
    assert_eq!(metered(&source, &head, long.as_bytes().chunks(100_000)), estimated(long.len().div_ceil(4) as u64));
}

#[test]
fn the_last_event_that_has_the_value_counts() {
    let source = SettleSource::Json(pointer("/usage/total_tokens"));
    for stream in line_ends(OPENAI_CHAT) {
        check(&source, EVENTS, &stream, reported(29));
    }
    check(&source, EVENTS, "data: {\"usage\":\ndata: {\"total_tokens\": 1}}\n\ndata: {}\n\n", reported(1));
    check(&source, EVENTS, "data: {}\n\n", None);
}

#[test]
fn transcripts_of_models_are_metered_at_every_split() {
    for (stream, expected) in [(OPENAI_CHAT, 29), (OPENAI_RESPONSES, 48), (ANTHROPIC, 1140), (GEMINI, 42)] {
        for stream in line_ends(stream) {
            check(&LLM, EVENTS, &stream, reported(expected));
            // The last event without the empty line.
            check(&LLM, EVENTS, stream.trim_end(), reported(expected));
        }
    }
    check(&LLM, JSON, GEMINI_LIST, reported(42));
}

#[test]
fn whole_answers_of_models_are_metered() {
    let rows = [
        (r#"{"choices": [{"message": {"content": "hi"}}], "usage": {"prompt_tokens": 3, "total_tokens": 5}}"#, 5),
        (r#"{"object": "response", "output": [], "usage": {"input_tokens": 3, "total_tokens": 6}}"#, 6),
        (r#"{"type": "message", "usage": {"input_tokens": 3, "cache_read_input_tokens": 10, "output_tokens": 4}}"#, 17),
        (r#"{"candidates": [], "usageMetadata": {"promptTokenCount": 3, "totalTokenCount": 8}}"#, 8),
        (r#"{"usage": {"prompt_tokens": 3, "completion_tokens": 9}}"#, 12),
        ("{\"done\": false}\n{\"usage\": {\"total_tokens\": 4}}\n", 4),
    ];
    for (body, expected) in rows {
        check(&LLM, JSON, body, reported(expected));
    }
}

#[test]
fn a_stream_that_is_cut_costs_what_was_seen() {
    let cut = |stream: &'static str, before: &str| stream.split(before).next().unwrap_or_default();
    // The text so far is "Guten Tag, Zürich", 18 bytes.
    check(&LLM, EVENTS, cut(OPENAI_CHAT, OPENAI_USAGE), estimated(5));
    check(&LLM, EVENTS, cut(OPENAI_RESPONSES, "event: response.completed"), estimated(3));
    // The input, and "Guten Tag, how may I help?".
    check(&LLM, EVENTS, cut(ANTHROPIC, "event: message_delta"), estimated(1125 + 7));
    check(&LLM, EVENTS, cut(GEMINI, "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"!\""), reported(9));
    check(&LLM, JSON, cut(GEMINI_LIST, "\"!\""), reported(9));
}

#[test]
fn without_any_usage_the_length_is_the_estimate() {
    check(&LLM, EVENTS, "data: hello\n\n", estimated(4));
    check(&LLM, JSON, r#"{"x": "abc"}"#, estimated(3));
    check(&LLM, &[("content-type", "text/event-stream"), ("content-encoding", "br")], "data: {}\n\n", estimated(3));
    check(&LLM, JSON, "", None);
    for (status, expected) in [(200, estimated(3)), (500, None), (429, None)] {
        assert_eq!(metered(&LLM, &response(status, JSON), [&br#"{"error": 1}"#[..]]), expected, "{status}");
    }
    let reported_in_error = response(500, JSON);
    assert_eq!(metered(&LLM, &reported_in_error, [&br#"{"usage": {"total_tokens": 2}}"#[..]]), reported(2));
}

#[test]
fn long_documents_and_events_are_skipped() {
    let long = "x".repeat(1 << 20);
    let list = format!(r#"[{{"usageMetadata":{{"totalTokenCount":5}}}},{{"x":"{long}"}},{{"y":1}}]"#);
    let events = format!("data: {{\"usage\":{{\"total_tokens\":5}}}}\n\ndata: {long}\n\ndata: {{}}\n\n");
    for (headers, body) in [(JSON, list), (EVENTS, events)] {
        assert_eq!(metered(&LLM, &response(200, headers), body.as_bytes().chunks(50_000)), reported(5));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_body_makes_it_stumble(
        body in proptest::collection::vec(any::<u8>(), 0..200),
        json in r#"[\[\]{}":,\\a-c0-9]{0,60}"#,
        size in 1_usize..50,
    ) {
        for headers in [EVENTS, JSON] {
            let head = response(200, headers);
            for body in [&*body, json.as_bytes()] {
                let whole = metered(&LLM, &head, [body]);
                prop_assert_eq!(metered(&LLM, &head, body.chunks(size)), whole);
            }
        }
    }
}
