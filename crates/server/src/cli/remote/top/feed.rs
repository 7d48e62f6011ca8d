//! What is heard of the server: the live stream, and what is asked beside it. A server that is away is asked again.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::state::{Heard, Wanted};
use crate::cli::remote::client::{Call, Remote};
use crate::cli::remote::path::Path;
use crate::cli::remote::{Failure, Refusal};

/// How long a server that has gone is waited for before it is asked again: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often top keys are asked for.
const KEYS_EVERY: Duration = Duration::from_secs(2);
/// A stream that says nothing for so long is gone: a server says something every 15 s at least.
const SILENCE: Duration = Duration::from_secs(35);
/// Rules of a page, and the most pages.
const PAGE: usize = 1_000;
const MOST_PAGES: usize = 10;
/// Keys that are asked for.
const KEYS: &str = "20";
/// The status of a server that does not know a page.
const NOT_FOUND: u16 = 404;

/// What is said of a server that does not know top keys.
pub(super) const UNTOLD: &str = "this server does not tell who asks most";

/// Nobody listens any more, or the server said no.
pub(super) type Ended = Option<Failure>;

/// An event that is being read: lines come one by one.
#[derive(Debug, Default)]
pub(super) struct Events {
    name: String,
    data: String,
}

impl Events {
    /// Takes a line; with an empty one an event is whole.
    pub(super) fn line(&mut self, line: &str) -> Option<(String, Value)> {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.is_empty() {
            let Events { name, data } = std::mem::take(self);
            return serde_json::from_str(&data).ok().filter(|_| !name.is_empty()).map(|data| (name, data));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => self.data.push_str(value),
            // What begins with a colon says only that the server is there.
            _ => {}
        }
        None
    }
}

/// Everything that is asked for once.
pub(super) async fn whole(remote: &Remote) -> Result<(Value, Vec<Value>), Failure> {
    let overview = get(remote, Path::of(&["admin", "v1", "overview"])).await?;
    Ok((overview, rules(remote).await?))
}

/// Top keys.
pub(super) async fn keys(remote: &Remote, wanted: Wanted) -> Result<Value, Failure> {
    let path = Path::of(&["admin", "v1", "top"]).with("by", Some(wanted.by.name()));
    get(remote, path.with("window", Some(wanted.window.name())).with("limit", Some(KEYS))).await
}

/// Whether a server said that it does not know a page.
pub(super) fn is_unknown(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused(Refusal { status: NOT_FOUND, .. }))
}

async fn rules(remote: &Remote) -> Result<Vec<Value>, Failure> {
    let mut rows = Vec::new();
    for page in 0..MOST_PAGES {
        let path = Path::of(&["admin", "v1", "activity"]).with("limit", Some(PAGE.to_string()));
        let mut answer = get(remote, path.with("offset", Some((page * PAGE).to_string()))).await?;
        let page = answer["rows"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let is_last = page.len() < PAGE;
        rows.extend(page);
        if is_last {
            break;
        }
    }
    Ok(rows)
}

async fn get(remote: &Remote, path: Path) -> Result<Value, Failure> {
    remote.asked(Call::get(path)).await?.value()
}

/// Listens for as long as somebody wants to hear. Ends when the server says no.
pub(super) async fn listen(remote: &Remote, out: mpsc::Sender<Heard>) -> Ended {
    let mut pause = FIRST_PAUSE;
    loop {
        let ended = once(remote, &out, &mut pause).await;
        let why = match ended {
            Ok(()) => "the stream ended".to_owned(),
            Err(Failure::Refused(refusal)) if refusal.status < 500 => return Some(Failure::Refused(refusal)),
            Err(Failure::Refused(refusal)) => refusal.to_string(),
            Err(Failure::Away(why)) => why,
            Err(other) => return Some(other),
        };
        out.send(Heard::Lost(why)).await.ok()?;
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// From the first answer to the end of the stream.
async fn once(remote: &Remote, out: &mpsc::Sender<Heard>, pause: &mut Duration) -> Result<(), Failure> {
    let send = async |heard| out.send(heard).await.map_err(|_| Failure::Enough);
    let (overview, rows) = whole(remote).await?;
    send(Heard::Overview(overview)).await?;
    send(Heard::Rules(rows)).await?;
    let mut lines = remote.lines(Call::get(Path::of(&["admin", "v1", "live"]).with("rules", Some("true")))).await?;
    *pause = FIRST_PAUSE;
    let mut events = Events::default();
    loop {
        let Ok(line) = tokio::time::timeout(SILENCE, lines.next()).await else {
            return Err(Failure::Away(format!("nothing is heard for {SILENCE:?}")));
        };
        let Some(line) = line? else { return Ok(()) };
        let Some((name, data)) = events.line(&String::from_utf8_lossy(&line)) else { continue };
        if name == "reload" {
            // Rules may be others.
            send(Heard::Rules(rules(remote).await?)).await?;
        }
        send(Heard::Event(name, data)).await?;
    }
}

/// Asks for top keys again and again, and at once when others are wanted.
pub(super) async fn ask_keys(remote: &Remote, mut wanted: watch::Receiver<Wanted>, out: mpsc::Sender<Heard>) -> Ended {
    loop {
        let now = *wanted.borrow_and_update();
        let told = match keys(remote, now).await {
            Ok(told) => Ok(told),
            Err(failure) if is_unknown(&failure) => Err(UNTOLD.to_owned()),
            Err(Failure::Refused(refusal)) => Err(refusal.to_string()),
            Err(Failure::Away(why)) => Err(why),
            Err(other) => return Some(other),
        };
        out.send(Heard::Keys(now, told)).await.ok()?;
        tokio::select! {
            changed = wanted.changed() => changed.ok()?,
            () = tokio::time::sleep(KEYS_EVERY) => {}
        }
    }
}
