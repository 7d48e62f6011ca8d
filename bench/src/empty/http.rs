//! `POST /v1/ratelimit/check` that reads the body and gives everybody the same answer, with the headers of ours.

use axum::extract::State;
use axum::routing::post;
use axum::serve::ListenerExt;
use axum::{Json, Router};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use tokio::net::TcpListener;

/// The body of a check; read and not used.
#[derive(Deserialize)]
#[expect(dead_code, reason = "an empty server reads them as a full one has to")]
struct CheckBody {
    user_id: String,
    endpoint: String,
    cost: u64,
}

/// Serves an answer of this length, with these headers besides those that every answer of HTTP has.
pub async fn axum(listener: TcpListener, length: usize, headers: HeaderMap) {
    let app = Router::new().route("/v1/ratelimit/check", post(check)).with_state((headers, answer(length)));
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).expect("a socket"));
    axum::serve(listener, app).await.expect("axum serves");
}

async fn check(State((headers, answer)): State<(HeaderMap, Bytes)>, Json(_): Json<CheckBody>) -> (HeaderMap, Bytes) {
    (headers, answer)
}

/// Headers as they are in an argument, a line each.
pub fn headers(text: &str) -> HeaderMap {
    let parsed = |line: &str| {
        let (name, value) = line.split_once(": ").expect("a header");
        let name = HeaderName::try_from(name).expect("a name");
        (name, HeaderValue::try_from(value).expect("a value"))
    };
    text.lines().map(parsed).collect()
}

/// JSON of this length.
fn answer(length: usize) -> Bytes {
    let (start, end) = (r#"{"allowed":true,"filler":""#, r#""}"#);
    let filler = ".".repeat(length.saturating_sub(start.len() + end.len()));
    format!("{start}{filler}{end}").into()
}
