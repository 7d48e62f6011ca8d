//! Costs that are reserved, and costs that are metered.

mod include_usage;
mod meter;
mod reserve;
mod sse;

use http::{Request, Response};

use super::*;
use crate::model::JsonPointer;

const OPENAI_CHAT: &str = include_str!("../../../tests/files/openai-chat.sse");
/// How its event with the usage begins.
const OPENAI_USAGE: &str = concat!(
    r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1800000000,"#,
    r#""model":"gpt-4o-mini","choices":[],"#
);
const OPENAI_RESPONSES: &str = include_str!("../../../tests/files/openai-responses.sse");
const ANTHROPIC: &str = include_str!("../../../tests/files/anthropic.sse");
const GEMINI: &str = include_str!("../../../tests/files/gemini.sse");
const GEMINI_LIST: &str = include_str!("../../../tests/files/gemini.json");

fn pointer(text: &str) -> JsonPointer {
    JsonPointer(text.split('/').skip(1).map(str::to_owned).collect())
}

fn request(uri: &str, headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn response(status: u16, headers: &[(&str, &str)]) -> http::response::Parts {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(()).unwrap().into_parts().0
}

/// A stream with every kind of line end.
fn line_ends(stream: &str) -> [String; 3] {
    [stream.to_owned(), stream.replace('\n', "\r\n"), stream.replace('\n', "\r")]
}
