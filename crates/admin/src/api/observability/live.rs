//! Live updates as server-sent events (`text/event-stream`).

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tollgate_records::Rfc3339;

use super::activity::{self, RuleNumbers};
use super::overview::overview;
use super::shares::{MAX_CALLER_STREAMS, MAX_STREAMS, NoPlace};
use super::{AdminState, items};
use crate::api::extract::{Query, flag};
use crate::api::stream::{ClientGone, LineSender, events};
use crate::api::{ApiProblem, ApiResult, RequestContext};
use crate::rule_source::ReloadStatus;
use crate::scopes::AccessScope;
use tollgate_net::Closing;

/// Selects events.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LiveQuery {
    rules: Option<String>,
}

/// What a client has received.
#[derive(Default)]
struct StreamState {
    /// Digests of rules' numbers, by domain and rule.
    rules: HashMap<(String, String), u64>,
    /// Keys with sustained use.
    sustained: HashSet<String>,
}

/// Rules are sent every second sample; samples are taken once a second.
const RULES_EVERY_SAMPLES: u64 = 2;
/// A comment is sent after this time without events.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// A client that reads nothing for this long is disconnected.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// The lifetime of a stream. Clients reconnect. Connections live a little longer.
const MAX_STREAM_AGE: Duration = Duration::from_secs(55 * 60);

/// Stream events: `overview` every second, `rules` every two, `sustained` and `reload` when they happen
#[utoipa::path(
    get, path = "/admin/v1/live", operation_id = "live", tag = "seeing",
    params(("rules" = Option<bool>, Query, description = "Whether to send rules too")),
    responses(
        (status = 200, body = String, content_type = "text/event-stream"),
        (status = "default", response = crate::api::description::Failed)
    )
)]
pub(crate) async fn follow(
    State(state): State<Arc<AdminState>>,
    context: RequestContext,
    closing: Option<Extension<Closing>>,
    Query(query): Query<LiveQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let rules = flag("rules", query.rules.as_deref())?;
    let permit = state.streams.take(&context.principal.name).map_err(|no_place| {
        let detail = match no_place {
            NoPlace::Full => format!("this server has {MAX_STREAMS} live streams, the maximum; close one"),
            NoPlace::OfCaller => {
                format!("{} has {MAX_CALLER_STREAMS} live streams, its share; close one", context.principal.name)
            }
        };
        ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
    })?;
    let (out, response) = events();
    tokio::spawn(async move {
        let _permit = permit;
        let stopped = async {
            match closing {
                Some(Extension(mut closing)) => closing.begun().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = send_events(&state, &context, rules, &out) => {}
            () = out.closed() => {}
            () = stopped => {}
            () = tokio::time::sleep(MAX_STREAM_AGE) => {}
        }
    });
    Ok(response)
}

/// Returns when the client disconnects.
async fn send_events(
    state: &AdminState,
    context: &RequestContext,
    with_rules: bool,
    out: &LineSender,
) -> Result<(), ClientGone> {
    let (mut samples, mut reloads) = (state.observability.sampler.samples(), state.control.rules().reloads());
    let mut sent = StreamState::default();
    // Existing ones are on their own page.
    sent.sustained(state, context);
    send(out, event("overview", &overview(state))).await?;
    let mut rules_due = with_rules;
    loop {
        if std::mem::take(&mut rules_due)
            && let Some(rows) = sent.rules(state)
        {
            send(out, rows).await?;
        }
        tokio::select! {
            sampled = samples.changed() => {
                if sampled.is_err() {
                    return Ok(());
                }
                rules_due = with_rules && samples.borrow_and_update().is_multiple_of(RULES_EVERY_SAMPLES);
                send(out, event("overview", &overview(state))).await?;
                for item in sent.sustained(state, context) {
                    send(out, event("sustained", &item)).await?;
                }
            }
            reloaded = reloads.changed() => {
                if reloaded.is_err() {
                    return Ok(());
                }
                let ReloadStatus { generation, error, .. } = reloads.borrow_and_update().clone();
                let event_data = json!({"generation": generation, "valid": error.is_none(), "error": error});
                send(out, event("reload", &event_data)).await?;
            }
            () = tokio::time::sleep(KEEPALIVE_INTERVAL) => send(out, ": here\n\n".to_owned()).await?,
        }
    }
}

/// While a slow client is waited for, samples are skipped: it gets the latest.
async fn send(out: &LineSender, text: String) -> Result<(), ClientGone> {
    tokio::time::timeout(SEND_TIMEOUT, out.send(text)).await.unwrap_or(Err(ClientGone))
}

fn event(name: &str, data: &impl Serialize) -> String {
    let mut text = format!("event: {name}\ndata: ");
    // JSON has no raw line breaks; texts and numbers are always valid, and writing to a String can't fail.
    let _ = writeln!(text, "{}\n", serde_json::to_string(data).unwrap_or_default());
    text
}

impl StreamState {
    /// The event with the rules that changed since the last one, if any. A new client gets the rules with traffic.
    fn rules(&mut self, state: &AdminState) -> Option<String> {
        let rules = state.limiter().rules();
        let mut digests = HashMap::with_capacity(self.rules.len());
        let mut rows = Vec::new();
        let history = state.observability.sampler.history();
        for (domain, rule) in activity::all(&rules) {
            let numbers = RuleNumbers::new(domain, rule, &history);
            let (name, digest) = (numbers.name(), numbers.digest());
            let name = (name.0.to_owned(), name.1.to_owned());
            let is_new = match self.rules.get(&name) {
                Some(before) => *before != digest,
                None => numbers.has_traffic(),
            };
            digests.insert(name, digest);
            if is_new {
                rows.push(numbers);
            }
        }
        drop(history);
        self.rules = digests;
        (!rows.is_empty()).then(|| event("rules", &json!({"at": Rfc3339(state.control.now()), "rows": rows})))
    }

    /// New items.
    fn sustained(&mut self, state: &AdminState, context: &RequestContext) -> Vec<Value> {
        let items = items::sustained(state, context);
        let name = |item: &Value| format!("{} {} {}", item["domain"], item["rule"], item["key"]);
        let now: HashSet<String> = items.iter().map(name).collect();
        let before = std::mem::replace(&mut self.sustained, now);
        items.into_iter().filter(|item| !before.contains(&name(item))).collect()
    }
}
