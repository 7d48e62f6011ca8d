//! The control feed for services that decide locally: a snapshot, and then changes.

use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::routing::get;
use bytes::Bytes;
use http::StatusCode;
use http_body::Frame;
use serde::Deserialize;
use tokio::sync::mpsc::{self, error::SendError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tollgate_control::DbError;
use tollgate_records::lines::Heartbeat;

use super::stream::jsonl_response;
use super::{Api, ApiProblem, ApiResult, RequestContext};
use crate::rule_source::RuleChanges;
use crate::scopes::AccessScope;
use crate::store_of_record::{Chunk, ControlPlane, Cursor, FeedBatch, MAX_WAITING_CHUNKS, encode_line};

/// Concurrent snapshots: each uses a database connection.
const MAX_SNAPSHOTS: usize = 2;
/// How long a request waits for its turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);
/// Watchers of this server; others can use other servers of the fleet.
const MAX_WATCHERS: usize = 200;
/// Interval of keep-alive lines.
const ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Bytes of one chunk, except for a single long line.
const MAX_CHUNK_BYTES: usize = 256 << 10;

static SNAPSHOTS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(MAX_SNAPSHOTS)));
static WATCHERS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(MAX_WATCHERS)));

/// Where a watch starts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WatchQuery {
    /// The generation that the client has.
    after: u64,
    /// The id of its store of record.
    of: Option<String>,
    /// Whether to send the rule files too.
    #[serde(default = "yes")]
    files: bool,
}

fn yes() -> bool {
    true
}

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/v1/control/snapshot", get(snapshot)).route("/v1/control/watch", get(watch))
}

async fn snapshot(State(api): State<Api>, context: RequestContext) -> ApiResult {
    context.require(AccessScope::Read)?;
    if api.db().is_none() {
        return Err(ApiProblem::off());
    }
    let permit = tokio::time::timeout(TURN_TIMEOUT, SNAPSHOTS.clone().acquire_owned()).await;
    let Ok(Ok(permit)) = permit else { return Err(busy("other snapshots are being sent; try again")) };
    let (out, mut chunks) = mpsc::channel(MAX_WAITING_CHUNKS);
    let control = api.clone();
    let sending = tokio::spawn(async move { control.send_snapshot(out).await });
    if let Some(first) = chunks.recv().await {
        return Ok(jsonl_response(Body::new(Chunks {
            first: Some(first),
            chunks,
            is_complete: false,
            _permit: permit,
        })));
    }
    let away = match sending.await {
        Ok(Err(error @ (DbError::Unavailable(_) | DbError::Refused(_)))) => error,
        Ok(Err(error)) => return Err(error.into()),
        Ok(Ok(())) | Err(_) => DbError::Unavailable("the snapshot is incomplete".to_owned()),
    };
    // Fall back to this server's copy, which it decides by.
    let (out, mut chunks) = mpsc::channel(MAX_WAITING_CHUNKS);
    let control = api.clone();
    tokio::spawn(async move { control.send_copy(out).await });
    match chunks.recv().await {
        Some(first) => {
            Ok(jsonl_response(Body::new(Chunks { first: Some(first), chunks, is_complete: false, _permit: permit })))
        }
        None => Err(away.into()),
    }
}

async fn watch(State(api): State<Api>, context: RequestContext, Query(query): Query<WatchQuery>) -> ApiResult {
    context.require(AccessScope::Read)?;
    if api.db().is_none() {
        return Err(ApiProblem::off());
    }
    let Ok(permit) = WATCHERS.clone().try_acquire_owned() else {
        return Err(busy("this server has no room for more watchers; use another server"));
    };
    if api.feed().at().generation < query.after {
        // A snapshot may be newer than this server.
        let _ = api.catch_up(Some(query.after)).await;
    }
    let Some(cursor) = api.feed().follow(query.of.as_deref(), query.after) else {
        let detail = "the generation is too old, or of another store of record; take a snapshot: /v1/control/snapshot";
        return Err(ApiProblem::new(StatusCode::GONE, "too_old", detail));
    };
    let (out, chunks) = mpsc::channel(1);
    let rules = query.files.then(|| api.rules().changes());
    tokio::spawn(send_changes(api.clone(), cursor, rules, out));
    Ok(jsonl_response(Body::new(Chunks { first: None, chunks, is_complete: true, _permit: permit })))
}

fn busy(detail: &str) -> ApiProblem {
    ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
}

/// Sends changes to a watcher until it disconnects or has to take a snapshot. At most one chunk is buffered for a slow reader.
async fn send_changes(
    control: Arc<ControlPlane>,
    mut cursor: Cursor,
    mut rules: Option<RuleChanges>,
    out: mpsc::Sender<Chunk>,
) {
    let mut latest = control.feed().latest();
    let send = async |bytes: Bytes| out.send(Chunk { bytes, last: false }).await;
    // The files are not read again for every change of a caller.
    let (mut last_files, mut files_due) = (None, rules.is_some());
    let sending = async {
        loop {
            latest.mark_unchanged();
            files_due |= rules.as_mut().is_some_and(RuleChanges::any);
            if std::mem::take(&mut files_due) {
                // First the files, so that the layer applies to the new ones.
                let files = control.files();
                if files != last_files {
                    last_files.clone_from(&files);
                    send(files.unwrap_or_default()).await?;
                }
            }
            let in_force = match control.feed().next(&mut cursor, MAX_CHUNK_BYTES) {
                FeedBatch::TooOld => return Ok::<_, SendError<Chunk>>(()),
                FeedBatch::LineSender(lines, in_force) => {
                    send(lines).await?;
                    in_force
                }
            };
            let Some(in_force) = in_force else { continue };
            send(Bytes::from(encode_line(&Heartbeat { generation: in_force }))).await?;
            let files_change = async {
                match &mut rules {
                    Some(rules) => rules.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = latest.changed() => if changed.is_err() { return Ok(()) },
                () = files_change => files_due = true,
                () = tokio::time::sleep(ALIVE_INTERVAL) => {}
            }
        }
    };
    tokio::select! {
        _ = sending => {}
        () = out.closed() => {}
    }
}

/// A body of chunks.
struct Chunks {
    first: Option<Chunk>,
    chunks: mpsc::Receiver<Chunk>,
    /// Whether the body may end here. Otherwise the connection is aborted, so that clients notice.
    is_complete: bool,
    _permit: OwnedSemaphorePermit,
}

impl http_body::Body for Chunks {
    type Data = Bytes;
    type Error = Truncated;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Truncated>>> {
        let this = self.get_mut();
        loop {
            let chunk = match this.first.take() {
                Some(first) => Some(first),
                None => std::task::ready!(this.chunks.poll_recv(context)),
            };
            let Some(chunk) = chunk else { return Poll::Ready((!this.is_complete).then_some(Err(Truncated))) };
            this.is_complete |= chunk.last;
            if !chunk.bytes.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(chunk.bytes))));
            }
        }
    }
}

/// The store of record became unavailable during a snapshot.
#[derive(Debug)]
struct Truncated;

impl std::fmt::Display for Truncated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the snapshot was truncated")
    }
}

impl std::error::Error for Truncated {}
