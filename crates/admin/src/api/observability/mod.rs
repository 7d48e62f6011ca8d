//! Observability of decisions for operators, the dashboard and `tollgate top`.
//!
//! All numbers are from the last sample ([`Sampler`](crate::observe::sampler::Sampler)), at most a second old: no page takes a lock
//! that decisions need.

pub(super) mod activity;
pub(super) mod decisions;
pub(super) mod event_sinks;
pub(super) mod events;
pub(super) mod explain;
pub(super) mod gateway;
pub(super) mod history;
pub(super) mod items;
pub(super) mod lease_changes;
pub(super) mod leases;
pub(super) mod live;
pub(super) mod me;
pub(super) mod overview;
pub(super) mod plan;
pub(super) mod regions;
pub(super) mod rule;
mod shares;
pub(super) mod signals;
pub(super) mod sustained;
pub(super) mod tiers;
pub(super) mod top;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post, put};
use serde::Serialize;
use tokio::sync::Semaphore;
use tollgate::{Limiter, Span};
use tollgate_events::Subscriptions;
use tollgate_gateway::Gateway;
use tollgate_observe::LimitResults;

use super::{Api, ApiProblem, RequestContext};
use crate::auth::Auth;
use crate::observe::{KeyVisibility, Observability};
use crate::scopes::AccessScope;
use shares::StreamShares;
use tollgate_store::Counters;
use tollgate_telemetry::Health;
use tollgate_telemetry::metrics::Metrics;

/// The default and the maximal number of keys in a list.
const DEFAULT_KEYS: usize = 20;
const MAX_KEYS: usize = 200;

/// The state of the handlers.
#[derive(Debug)]
pub(crate) struct AdminState {
    pub observability: Arc<Observability>,
    pub metrics: Arc<Metrics>,
    pub health: Arc<Health>,
    pub control: Api,
    pub auth: Arc<Auth>,
    pub gateway: Option<Arc<Gateway>>,
    /// Where events are sent.
    pub sinks: Arc<Subscriptions>,
    streams: Arc<StreamShares>,
    /// One change at a time is tried.
    planning: Arc<Semaphore>,
}

/// Results of a limit, as JSON.
#[derive(Serialize)]
struct ResultsBody<T> {
    allow: T,
    deny: T,
    would_deny: T,
}

pub(crate) fn routes(state: AdminState) -> Router {
    Router::new()
        .route("/admin/v1/me", get(me::show))
        .route("/admin/v1/top", get(top::show))
        .route("/admin/v1/leases", get(leases::show).put(lease_changes::put))
        .route("/admin/v1/leases/purge", post(lease_changes::purge))
        .route("/admin/v1/regions", get(regions::show))
        .route("/admin/v1/gateway", get(gateway::show))
        .route("/admin/v1/gateway/shedding", put(gateway::put_shedding))
        .route("/admin/v1/sustained", get(sustained::show))
        .route("/admin/v1/signals", get(signals::list))
        .route("/admin/v1/plan", post(plan::try_change))
        .route("/admin/v1/traffic", get(plan::traffic))
        .route("/admin/v1/overview", get(overview::show))
        .route("/admin/v1/history", get(history::show))
        .route("/admin/v1/events", get(events::list))
        .route("/admin/v1/events/sinks", get(event_sinks::list))
        .route("/admin/v1/events/sinks/{name}/test", post(event_sinks::test))
        .route("/admin/v1/live", get(live::follow))
        .route("/admin/v1/domains/{domain}/rules/{rule}", get(rule::show))
        .route("/admin/v1/activity", get(activity::list))
        .route("/admin/v1/tiers", get(tiers::list))
        .route("/admin/v1/explain", post(explain::explain_request))
        .route("/admin/v1/decisions", get(decisions::list))
        .with_state(Arc::new(state))
}

impl AdminState {
    pub(crate) fn new(
        observability: Arc<Observability>,
        metrics: Arc<Metrics>,
        health: Arc<Health>,
        control: Api,
        auth: Arc<Auth>,
        sinks: Arc<Subscriptions>,
    ) -> AdminState {
        let planning = Arc::new(Semaphore::new(1));
        let streams = Arc::default();
        AdminState { observability, metrics, health, control, auth, gateway: None, sinks, streams, planning }
    }

    /// The same with a gateway, if this server has one.
    pub(crate) fn with_gateway(self, gateway: Option<Arc<Gateway>>) -> AdminState {
        AdminState { gateway, ..self }
    }

    fn limiter(&self) -> &Limiter<Counters> {
        self.control.limiter()
    }
}

impl ResultsBody<f64> {
    fn rates(results: LimitResults<f64>) -> ResultsBody<f64> {
        ResultsBody {
            allow: hundredths(results.allow),
            deny: hundredths(results.deny),
            would_deny: hundredths(results.would_deny),
        }
    }
}

impl ResultsBody<u64> {
    fn totals(LimitResults { allow, deny, would_deny }: LimitResults<u64>) -> ResultsBody<u64> {
        ResultsBody { allow, deny, would_deny }
    }
}

/// A rate rounded to two digits.
fn hundredths(rate: f64) -> f64 {
    (rate * 100.0).round() / 100.0
}

fn seconds(span: Span) -> f64 {
    span.as_micros() as f64 / 1e6
}

/// The number of keys that `?limit=` requests.
fn key_count(limit: Option<usize>) -> Result<usize, ApiProblem> {
    let count = limit.unwrap_or(DEFAULT_KEYS);
    if (1..=MAX_KEYS).contains(&count) {
        return Ok(count);
    }
    Err(ApiProblem::bad_request("bad_query", format!("limit={count}: must be between 1 and {MAX_KEYS}")))
}

/// Keys are plain for callers with the scope `audit`.
fn keys_for(context: &RequestContext) -> KeyVisibility {
    if context.principal.scopes.contains(AccessScope::Audit) { KeyVisibility::Plain } else { KeyVisibility::Hashed }
}

/// Per mille as a ratio.
fn ratio(permille: u32) -> f64 {
    f64::from(permille) / 1_000.0
}
