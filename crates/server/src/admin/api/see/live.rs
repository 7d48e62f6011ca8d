//! What changes from second to second, as events without end (`text/event-stream`).

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tollgate::control::Moment;

use super::activity::{self, Numbers};
use super::overview::overview;
use super::{See, others};
use crate::admin::api::extract::{Query, flag};
use crate::admin::api::stream::{Gone, Lines, events};
use crate::admin::api::{Answer, Asked, Problem};
use crate::admin::who::Scope;
use crate::net::Closing;
use crate::rules_watch::Reload;

/// What is wanted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    rules: Option<String>,
}

/// What one who listens has been told.
#[derive(Default)]
struct Heard {
    /// Digests of rules' numbers, by domain and rule.
    rules: HashMap<(String, String), u64>,
    /// Callers who are near a limit for long.
    sustained: HashSet<String>,
}

/// The most streams of this server.
pub(super) const MOST_STREAMS: usize = 32;
/// Rules are told at every so many looks, which come once a second.
const RULES_EVERY: u64 = 2;
/// One who was told nothing for so long hears that the server is there.
const HERE_EVERY: Duration = Duration::from_secs(15);
/// A reader that takes nothing for so long has gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long events are sent. Who wants more asks again. Connections live a little longer.
const FOLLOWED_FOR: Duration = Duration::from_secs(55 * 60);

/// Events without end: `overview` each second, `rules` every two, `sustained` and `reload` when they happen
#[utoipa::path(
    get, path = "/admin/v1/live", operation_id = "live", tag = "seeing",
    params(("rules" = Option<bool>, Query, description = "Whether rules are told too")),
    responses(
        (status = 200, body = String, content_type = "text/event-stream"),
        (status = "default", response = crate::admin::api::openapi::Failed)
    )
)]
pub(crate) async fn follow(
    State(see): State<Arc<See>>,
    asked: Asked,
    closing: Option<Extension<Closing>>,
    Query(wanted): Query<Wanted>,
) -> Answer {
    asked.may(Scope::Read)?;
    let rules = flag("rules", wanted.rules.as_deref())?;
    let Ok(turn) = see.streams.clone().try_acquire_owned() else {
        let detail = format!("this server has {MOST_STREAMS} live streams, which is all that it takes; close one");
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail));
    };
    let (out, response) = events();
    tokio::spawn(async move {
        let _turn = turn;
        let stopped = async {
            match closing {
                Some(Extension(mut closing)) => closing.begun().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = tell(&see, &asked, rules, &out) => {}
            () = out.gone() => {}
            () = stopped => {}
            () = tokio::time::sleep(FOLLOWED_FOR) => {}
        }
    });
    Ok(response)
}

/// Ends when nobody takes the events.
async fn tell(see: &See, asked: &Asked, with_rules: bool, out: &Lines) -> Result<(), Gone> {
    let (mut looks, mut reloads) = (see.sight.pulse.looks(), see.control.rules().reloads());
    let mut heard = Heard::default();
    // Those that are there already are on a page of their own.
    heard.sustained(see, asked);
    put(out, event("overview", &overview(see))).await?;
    let mut rules_due = with_rules;
    loop {
        if std::mem::take(&mut rules_due)
            && let Some(rows) = heard.rules(see)
        {
            put(out, rows).await?;
        }
        tokio::select! {
            looked = looks.changed() => {
                if looked.is_err() {
                    return Ok(());
                }
                rules_due = with_rules && looks.borrow_and_update().is_multiple_of(RULES_EVERY);
                put(out, event("overview", &overview(see))).await?;
                for item in heard.sustained(see, asked) {
                    put(out, event("sustained", &item)).await?;
                }
            }
            reloaded = reloads.changed() => {
                if reloaded.is_err() {
                    return Ok(());
                }
                let Reload { generation, error, .. } = reloads.borrow_and_update().clone();
                let told = json!({"generation": generation, "valid": error.is_none(), "error": error});
                put(out, event("reload", &told)).await?;
            }
            () = tokio::time::sleep(HERE_EVERY) => put(out, ": here\n\n".to_owned()).await?,
        }
    }
}

/// While one waits for a slow reader, looks go by: it is told of the latest.
async fn put(out: &Lines, text: String) -> Result<(), Gone> {
    tokio::time::timeout(PATIENCE, out.put(text)).await.unwrap_or(Err(Gone))
}

fn event(name: &str, data: &impl Serialize) -> String {
    let mut text = format!("event: {name}\ndata: ");
    // JSON has no line breaks of its own; texts and numbers always have a form in it, and writing to a String can't fail.
    let _ = writeln!(text, "{}\n", serde_json::to_string(data).unwrap_or_default());
    text
}

impl Heard {
    /// The event of the rules whose numbers are others than was told; none if there are none. Whoever begins to listen is told of
    /// those that somebody has met.
    fn rules(&mut self, see: &See) -> Option<String> {
        let rules = see.limiter().rules();
        let mut known = HashMap::with_capacity(self.rules.len());
        let mut rows = Vec::new();
        let history = see.sight.pulse.history();
        for (domain, rule) in activity::all(&rules) {
            let numbers = Numbers::new(domain, rule, &history);
            let (name, digest) = (numbers.name(), numbers.digest());
            let name = (name.0.to_owned(), name.1.to_owned());
            let is_new = match self.rules.get(&name) {
                Some(before) => *before != digest,
                None => numbers.is_met(),
            };
            known.insert(name, digest);
            if is_new {
                rows.push(numbers);
            }
        }
        drop(history);
        self.rules = known;
        (!rows.is_empty()).then(|| event("rules", &json!({"at": Moment(see.control.now()), "rows": rows})))
    }

    /// Those that were not there before.
    fn sustained(&mut self, see: &See, asked: &Asked) -> Vec<Value> {
        let items = others::sustained(see, asked);
        let name = |item: &Value| format!("{} {} {}", item["domain"], item["rule"], item["key"]);
        let now: HashSet<String> = items.iter().map(name).collect();
        let before = std::mem::replace(&mut self.sustained, now);
        items.into_iter().filter(|item| !before.contains(&name(item))).collect()
    }
}
