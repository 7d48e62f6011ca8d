//! What operators decided, for services that decide by it themselves: all of it, and then what changes.

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
use tollgate::control::lines::Alive;
use tollgate_control::DbError;

use super::stream::of_lines;
use super::{Answer, Api, Asked, Problem};
use crate::admin::who::Scope;
use crate::control::{Chunk, Control, Cursor, Followed, WAITING, written};
use crate::rules_watch::RulesChanges;

/// Snapshots that are sent at the same time: each has a connection to the database.
const MOST_SNAPSHOTS: usize = 2;
/// How long one waits for its turn.
const TURN: Duration = Duration::from_secs(10);
/// Watchers of this server. Others of the fleet take more.
const MOST_WATCHERS: usize = 200;
/// How often a watcher hears that nothing happened.
const ALIVE_EVERY: Duration = Duration::from_secs(10);
/// The most bytes that are gathered for a watcher at once, but for a single line.
const AT_ONCE: usize = 256 << 10;

static SNAPSHOTS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(MOST_SNAPSHOTS)));
static WATCHERS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(MOST_WATCHERS)));

/// From where on somebody watches.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Watched {
    /// The generation that is known.
    after: u64,
    /// Of which store of record it is.
    of: Option<String>,
    /// Whether the rule files are wanted too.
    #[serde(default = "yes")]
    files: bool,
}

fn yes() -> bool {
    true
}

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/v1/control/snapshot", get(snapshot)).route("/v1/control/watch", get(watch))
}

async fn snapshot(State(api): State<Api>, asked: Asked) -> Answer {
    asked.may(Scope::Read)?;
    if api.db().is_none() {
        return Err(Problem::off());
    }
    let turn = tokio::time::timeout(TURN, SNAPSHOTS.clone().acquire_owned()).await;
    let Ok(Ok(turn)) = turn else { return Err(busy("others are taking snapshots of this server; try again")) };
    let (out, mut chunks) = mpsc::channel(WAITING);
    let control = api.clone();
    let sending = tokio::spawn(async move { control.send_snapshot(out).await });
    if let Some(first) = chunks.recv().await {
        return Ok(of_lines(Body::new(Chunks { first: Some(first), chunks, whole: false, _turn: turn })));
    }
    let away = match sending.await {
        Ok(Err(error @ DbError::Away(_))) => error,
        Ok(Err(error)) => return Err(error.into()),
        Ok(Ok(())) | Err(_) => DbError::Away("it ended before its end".to_owned()),
    };
    // This server's own copy is what it decides by.
    let (out, mut chunks) = mpsc::channel(WAITING);
    let control = api.clone();
    tokio::spawn(async move { control.send_copy(out).await });
    match chunks.recv().await {
        Some(first) => Ok(of_lines(Body::new(Chunks { first: Some(first), chunks, whole: false, _turn: turn }))),
        None => Err(away.into()),
    }
}

async fn watch(State(api): State<Api>, asked: Asked, Query(watched): Query<Watched>) -> Answer {
    asked.may(Scope::Read)?;
    if api.db().is_none() {
        return Err(Problem::off());
    }
    let Ok(turn) = WATCHERS.clone().try_acquire_owned() else {
        return Err(busy("this server has as many watchers as it takes; ask another one"));
    };
    if api.feed().at().generation < watched.after {
        // A snapshot may be newer than what this server has heard of.
        let _ = api.catch_up(Some(watched.after)).await;
    }
    let Some(cursor) = api.feed().follow(watched.of.as_deref(), watched.after) else {
        let detail = "what is known is too old, or of another store of record; take a snapshot: /v1/control/snapshot";
        return Err(Problem::new(StatusCode::GONE, "too_old", detail));
    };
    let (out, chunks) = mpsc::channel(1);
    let rules = watched.files.then(|| api.rules().changes());
    tokio::spawn(tell(api.clone(), cursor, rules, out));
    Ok(of_lines(Body::new(Chunks { first: None, chunks, whole: true, _turn: turn })))
}

fn busy(detail: &str) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
}

/// Tells a watcher what comes into force here, until it goes or has to take a snapshot. What waits for one that reads slowly is one
/// chunk.
async fn tell(control: Arc<Control>, mut cursor: Cursor, mut rules: Option<RulesChanges>, out: mpsc::Sender<Chunk>) {
    let mut latest = control.feed().latest();
    let send = async |bytes: Bytes| out.send(Chunk { bytes, last: false }).await;
    // What the files say is not gathered anew for every change of a caller.
    let (mut told, mut look) = (None, rules.is_some());
    let telling = async {
        loop {
            latest.mark_unchanged();
            look |= rules.as_mut().is_some_and(RulesChanges::any);
            if std::mem::take(&mut look) {
                // First, so that what is above the files is above the new ones.
                let files = control.files();
                if files != told {
                    told.clone_from(&files);
                    send(files.unwrap_or_default()).await?;
                }
            }
            let in_force = match control.feed().next(&mut cursor, AT_ONCE) {
                Followed::TooOld => return Ok::<_, SendError<Chunk>>(()),
                Followed::Lines(lines, in_force) => {
                    send(lines).await?;
                    in_force
                }
            };
            let Some(in_force) = in_force else { continue };
            send(Bytes::from(written(&Alive { alive: in_force }))).await?;
            let files_change = async {
                match &mut rules {
                    Some(rules) => rules.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = latest.changed() => if changed.is_err() { return Ok(()) },
                () = files_change => look = true,
                () = tokio::time::sleep(ALIVE_EVERY) => {}
            }
        }
    };
    tokio::select! {
        _ = telling => {}
        () = out.closed() => {}
    }
}

/// Chunks, as a body.
struct Chunks {
    first: Option<Chunk>,
    chunks: mpsc::Receiver<Chunk>,
    /// Whether it may end here. What ends elsewhere is cut off, so that nobody takes it for whole.
    whole: bool,
    _turn: OwnedSemaphorePermit,
}

impl http_body::Body for Chunks {
    type Data = Bytes;
    type Error = CutShort;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, CutShort>>> {
        let this = self.get_mut();
        loop {
            let chunk = match this.first.take() {
                Some(first) => Some(first),
                None => std::task::ready!(this.chunks.poll_recv(context)),
            };
            let Some(chunk) = chunk else { return Poll::Ready((!this.whole).then_some(Err(CutShort))) };
            this.whole |= chunk.last;
            if !chunk.bytes.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(chunk.bytes))));
            }
        }
    }
}

/// The store of record went away in the middle.
#[derive(Debug)]
struct CutShort;

impl std::fmt::Display for CutShort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the snapshot was cut short")
    }
}

impl std::error::Error for CutShort {}
