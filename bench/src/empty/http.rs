//! `POST /v1/ratelimit/check` that reads the body and gives everybody the same answer.

use axum::extract::State;
use axum::routing::post;
use axum::serve::ListenerExt;
use axum::{Json, Router};
use bytes::Bytes;
use http::{HeaderName, header};
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

pub async fn axum(listener: TcpListener, length: usize) {
    let app = Router::new().route("/v1/ratelimit/check", post(check)).with_state(answer(length));
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).expect("a socket"));
    axum::serve(listener, app).await.expect("axum serves");
}

async fn check(State(answer): State<Bytes>, Json(_): Json<CheckBody>) -> ([(HeaderName, &'static str); 1], Bytes) {
    ([(header::CONTENT_TYPE, "application/json")], answer)
}

/// JSON of this length.
fn answer(length: usize) -> Bytes {
    let (start, end) = (r#"{"allowed":true,"filler":""#, r#""}"#);
    let filler = ".".repeat(length.saturating_sub(start.len() + end.len()));
    format!("{start}{filler}{end}").into()
}
