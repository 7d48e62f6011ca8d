//! Usage that the gateway requests.

use proptest::prelude::*;
use serde_json::Value;

use super::super::include_usage::*;
use super::*;

fn rewritten(body: &str) -> Option<String> {
    let head = request("/v1/chat/completions", &[]);
    with_usage(&head, body.as_bytes()).map(|body| String::from_utf8(body).unwrap())
}

#[test]
fn streams_request_usage() {
    let rows = [
        (r#"{"stream":true}"#, r#"{"stream_options":{"include_usage":true},"stream":true}"#),
        (
            r#" { "z": 1.50, "stream": true, "a": 18446744073709551616 }"#,
            r#" {"stream_options":{"include_usage":true}, "z": 1.50, "stream": true, "a": 18446744073709551616 }"#,
        ),
        (
            r#"{"stream":true,"stream_options":null,"n":1}"#,
            r#"{"stream":true,"stream_options":{"include_usage":true},"n":1}"#,
        ),
        (r#"{"stream":true,"stream_options":{}}"#, r#"{"stream":true,"stream_options":{"include_usage":true}}"#),
        (
            r#"{"stream":true,"stream_options": { "x": 1 } }"#,
            r#"{"stream":true,"stream_options": {"include_usage":true, "x": 1 } }"#,
        ),
        (
            r#"{"stream":true,"stream_options":{"include_usage": false}}"#,
            r#"{"stream":true,"stream_options":{"include_usage": true}}"#,
        ),
        (
            r#"{"stream":true,"stream_options":{"include_usage":null}}"#,
            r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
        ),
    ];
    for (body, expected) in rows {
        assert_eq!(rewritten(body).as_deref(), Some(expected), "{body}");
    }
}

#[test]
fn other_requests_stay_as_they_are() {
    let rows = [
        "",
        "x",
        "[]",
        "{}",
        r#"{"stream":false}"#,
        r#"{"stream":"true"}"#,
        r#"{"stream":true"#,
        r#"{"stream":true,"stream":true}"#,
        r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
        r#"{"stream":true,"stream_options":7}"#,
        r#"{"stream":true,"stream_options":{},"stream_options":{}}"#,
    ];
    for body in rows {
        assert_eq!(rewritten(body), None, "{body}");
    }
    let body = br#"{"stream":true}"#;
    for path in ["/v1/messages", "/v1/responses", "/completions/x", "/xcompletions"] {
        assert_eq!(with_usage(&request(path, &[]), body), None, "{path}");
    }
    for path in ["/openai/deployments/x/chat/completions?api-version=1", "/v1/completions"] {
        assert!(with_usage(&request(path, &[]), body).is_some(), "{path}");
    }
    assert_eq!(with_usage(&request("/v1/completions", &[("content-encoding", "gzip")]), body), None);
    let long = format!(r#"{{"stream":true}}{}"#, " ".repeat(MAX_REWRITTEN_BYTES));
    assert_eq!(rewritten(&long), None);
}

fn filter() -> UsageFilter {
    UsageFilter::new(&response(200, &[("content-type", "text/event-stream")])).unwrap()
}

fn filtered<'f>(frames: impl IntoIterator<Item = &'f [u8]>) -> String {
    let mut filter = filter();
    let mut output: Vec<u8> = frames.into_iter().flat_map(|frame| filter.frame(frame)).collect();
    output.extend(filter.finish());
    String::from_utf8(output).unwrap()
}

#[test]
fn the_event_with_the_usage_is_removed_at_every_split() {
    for stream in line_ends(OPENAI_CHAT) {
        let start = stream.find(OPENAI_USAGE).unwrap();
        let end = stream.find("data: [DONE]").unwrap();
        let expected = [&stream[..start], &stream[end..]].concat();
        let bytes = stream.as_bytes();
        assert_eq!(filtered([bytes]), expected);
        for at in 0..bytes.len() {
            let output = filtered([&bytes[..at], &bytes[at..]]);
            // The LF of a line end that is split at its CR may stay. It ends no event.
            let output = if at == end - 1 { output.replacen("\r\n\r\n\ndata", "\r\n\r\ndata", 1) } else { output };
            assert_eq!(output, expected, "{at}");
        }
    }
    // As the last one, without its end.
    let event = "data: {\"choices\": [], \"usage\": {\"total_tokens\": 1}}";
    assert_eq!(filtered([event.as_bytes()]), "");
    assert_eq!(filtered(event.as_bytes().chunks(1)), "");
}

#[test]
fn other_events_pass_when_they_are_complete() {
    let mut filter = filter();
    assert_eq!(
        filter.frame(b"data: {\"choices\":[1],\"usage\":{}}\n\ndata: x"),
        "data: {\"choices\":[1],\"usage\":{}}\n\n"
    );
    assert_eq!(filter.frame(b"y\n"), "");
    assert_eq!(filter.frame(b"\n"), "data: xy\n\n");
    for event in [
        "data: {\"choices\":[],\"usage\":null}\n\n",
        "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n",
        "data: {\"usage\":{}}\n\n",
        "data: \"usage\"\n\n",
        ": \"usage\"\n\n",
    ] {
        assert_eq!(filter.frame(event.as_bytes()), event);
    }
}

#[test]
fn long_events_are_not_held() {
    let mut filter = filter();
    let long = vec![b'x'; 20_000];
    assert_eq!(filter.frame(&long).len(), 20_000);
    assert_eq!(filter.frame(b"abc"), "abc");
    assert_eq!(filter.frame(b"\"usage\"\n\ndata: "), "\"usage\"\n\n");
    assert_eq!(filter.finish(), "data: ");
}

#[test]
fn only_readable_streams_are_filtered() {
    assert!(UsageFilter::new(&response(200, &[("content-type", "application/json")])).is_none());
    let gzip = [("content-type", "text/event-stream"), ("content-encoding", "gzip")];
    assert!(UsageFilter::new(&response(200, &gzip)).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// A rewritten request differs in its option only.
    #[test]
    fn nothing_else_is_rewritten(before in "[a-z]{1,5}", value in any::<i64>(), with_options in any::<bool>()) {
        prop_assume!(!before.starts_with("stream"));
        let mut document = serde_json::json!({before: [value, {"stream": false}], "stream": true});
        if with_options {
            document["stream_options"] = serde_json::json!({"x": 1});
        }
        let new = rewritten(&document.to_string()).unwrap();
        document["stream_options"]["include_usage"] = Value::Bool(true);
        prop_assert_eq!(serde_json::from_str::<Value>(&new).unwrap(), document);
    }

    #[test]
    fn streams_without_usage_pass_unchanged(
        stream in "(data: |a|\\{|\r|\n|\r\n|\"usage\"){0,40}",
        size in 1_usize..10,
    ) {
        prop_assert_eq!(filtered(stream.as_bytes().chunks(size)), stream);
    }
}
