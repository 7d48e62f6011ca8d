//! Updates from the server: the live stream and polled top keys, with reconnects.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::keys::TopKeysQuery;
use super::state::ServerUpdate;
use crate::remote::client::{AdminClient, ApiRequest};
use crate::remote::path::ApiPath;
use crate::remote::{CommandError, ErrorResponse};

/// The delay before a reconnect: the first, and the longest.
const MIN_RECONNECT_DELAY: Duration = Duration::from_millis(250);
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(5);
/// The time between polls of top keys.
const KEYS_INTERVAL: Duration = Duration::from_secs(2);
/// The longest silence on the stream: a server sends something at least every 15 s.
const STREAM_TIMEOUT: Duration = Duration::from_secs(35);
/// Rules of a page, and the number of pages.
const PAGE_SIZE: usize = 1_000;
const MAX_PAGES: usize = 10;
/// The number of top keys.
const MAX_KEYS: &str = "20";
/// The status of an unknown path.
const NOT_FOUND: u16 = 404;

/// The note for a server without top keys.
pub(super) const TOP_KEYS_UNSUPPORTED: &str = "this server does not support top keys";

/// The note for a server without leases.
pub(super) const LEASES_UNSUPPORTED: &str = "this server does not support leases";

/// Why the feed ended: an error, or nothing if the receiver is gone.
pub(super) type FeedEnd = Option<CommandError>;

/// Parses server-sent events line by line.
#[derive(Debug, Default)]
pub(super) struct EventParser {
    name: String,
    data: String,
}

impl EventParser {
    /// Adds a line; an empty one completes the event.
    pub(super) fn line(&mut self, line: &str) -> Option<(String, Value)> {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.is_empty() {
            let EventParser { name, data } = std::mem::take(self);
            return serde_json::from_str(&data).ok().filter(|_| !name.is_empty()).map(|data| (name, data));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => self.data.push_str(value),
            // A line with a leading colon is a heartbeat.
            _ => {}
        }
        None
    }
}

/// Fetches the overview and all rules.
pub(super) async fn fetch_all(client: &AdminClient) -> Result<(Value, Vec<Value>), CommandError> {
    let overview = get(client, ApiPath::new(&["admin", "v1", "overview"])).await?;
    Ok((overview, fetch_rules(client).await?))
}

/// Fetches top keys.
pub(super) async fn fetch_keys(client: &AdminClient, query: TopKeysQuery) -> Result<Value, CommandError> {
    let path = ApiPath::new(&["admin", "v1", "top"]).with("by", Some(query.by.name()));
    get(client, path.with("window", Some(query.window.name())).with("limit", Some(MAX_KEYS))).await
}

/// Fetches what the server leases.
pub(super) async fn fetch_leases(client: &AdminClient) -> Result<Value, CommandError> {
    get(client, ApiPath::new(&["admin", "v1", "leases"]).with("limit", Some(MAX_KEYS))).await
}

/// Whether the server does not know the path.
pub(super) fn is_not_found(error: &CommandError) -> bool {
    matches!(error, CommandError::Rejected(ErrorResponse { status: NOT_FOUND, .. }))
}

async fn fetch_rules(client: &AdminClient) -> Result<Vec<Value>, CommandError> {
    let mut rows = Vec::new();
    for page in 0..MAX_PAGES {
        let path = ApiPath::new(&["admin", "v1", "activity"]).with("limit", Some(PAGE_SIZE.to_string()));
        let mut response = get(client, path.with("offset", Some((page * PAGE_SIZE).to_string()))).await?;
        let page = response["rows"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let is_last = page.len() < PAGE_SIZE;
        rows.extend(page);
        if is_last {
            break;
        }
    }
    Ok(rows)
}

async fn get(client: &AdminClient, path: ApiPath) -> Result<Value, CommandError> {
    client.send_async(ApiRequest::get(path)).await?.value()
}

/// Follows the live stream, with reconnects. Ends with an error response, or when the receiver is dropped.
pub(super) async fn follow_stream(client: &AdminClient, out: mpsc::Sender<ServerUpdate>) -> FeedEnd {
    let mut delay = MIN_RECONNECT_DELAY;
    loop {
        let ended = stream_once(client, &out, &mut delay).await;
        let why = match ended {
            Ok(()) => "the stream ended".to_owned(),
            Err(CommandError::Rejected(response)) if response.status < 500 => {
                return Some(CommandError::Rejected(response));
            }
            Err(CommandError::Rejected(response)) => response.to_string(),
            Err(CommandError::Unavailable(why)) => why,
            Err(other) => return Some(other),
        };
        out.send(ServerUpdate::Lost(why)).await.ok()?;
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(MAX_RECONNECT_DELAY);
    }
}

/// Fetches everything, then follows the stream to its end.
async fn stream_once(
    client: &AdminClient,
    out: &mpsc::Sender<ServerUpdate>,
    delay: &mut Duration,
) -> Result<(), CommandError> {
    let send = async |update| out.send(update).await.map_err(|_| CommandError::OutputClosed);
    let (overview, rows) = fetch_all(client).await?;
    send(ServerUpdate::Overview(overview)).await?;
    send(ServerUpdate::Rules(rows)).await?;
    let mut lines =
        client.lines(ApiRequest::get(ApiPath::new(&["admin", "v1", "live"]).with("rules", Some("true")))).await?;
    *delay = MIN_RECONNECT_DELAY;
    let mut events = EventParser::default();
    loop {
        let Ok(line) = tokio::time::timeout(STREAM_TIMEOUT, lines.next()).await else {
            return Err(CommandError::Unavailable(format!("no data for {STREAM_TIMEOUT:?}")));
        };
        let Some(line) = line? else { return Ok(()) };
        let Some((name, data)) = events.line(&String::from_utf8_lossy(&line)) else { continue };
        if name == "reload" {
            // The rules may have changed.
            send(ServerUpdate::Rules(fetch_rules(client).await?)).await?;
        }
        send(ServerUpdate::Event(name, data)).await?;
    }
}

/// Polls top keys and leases, and fetches them at once when the query changes.
pub(super) async fn poll_keys(
    client: &AdminClient,
    mut query: watch::Receiver<TopKeysQuery>,
    out: mpsc::Sender<ServerUpdate>,
) -> FeedEnd {
    loop {
        let current = *query.borrow_and_update();
        let top = match or_note(fetch_keys(client, current).await, TOP_KEYS_UNSUPPORTED) {
            Ok(top) => top,
            Err(end) => return Some(end),
        };
        out.send(ServerUpdate::TopKeys(current, top)).await.ok()?;
        let leases = match or_note(fetch_leases(client).await, LEASES_UNSUPPORTED) {
            Ok(leases) => leases,
            Err(end) => return Some(end),
        };
        out.send(ServerUpdate::Leases(leases)).await.ok()?;
        tokio::select! {
            changed = query.changed() => changed.ok()?,
            () = tokio::time::sleep(KEYS_INTERVAL) => {}
        }
    }
}

/// What the server answered, or a note for the screen. Other errors end the program.
fn or_note(result: Result<Value, CommandError>, unsupported: &str) -> Result<Result<Value, String>, CommandError> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(error) if is_not_found(&error) => Ok(Err(unsupported.to_owned())),
        Err(CommandError::Rejected(response)) => Ok(Err(response.to_string())),
        Err(CommandError::Unavailable(why)) => Ok(Err(why)),
        Err(other) => Err(other),
    }
}
