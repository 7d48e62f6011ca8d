//! What the server sees of its decisions: pages of numbers for operators, the dashboard and `tollgate top`.
//!
//! All of it is as of the last look ([`Pulse`](crate::observe::pulse::Pulse)), which is at most a second ago: a page takes no lock
//! that a decision could want.

pub(super) mod activity;
pub(super) mod decisions;
pub(super) mod explain;
pub(super) mod live;
pub(super) mod me;
pub(super) mod others;
pub(super) mod overview;
pub(super) mod sustained;
pub(super) mod tiers;
pub(super) mod top;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use serde::Serialize;
use tokio::sync::Semaphore;
use tollgate::{Limiter, Span};
use tollgate_observe::Met;

use super::{Api, Asked};
use crate::admin::auth::Auth;
use crate::admin::who::Scope;
use crate::counters::Counters;
use crate::health::Health;
use crate::observe::metrics::Metrics;
use crate::observe::{Keys, Sight};

/// What is at hand to see.
#[derive(Debug)]
pub(crate) struct See {
    pub(crate) sight: Arc<Sight>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Arc<Health>,
    pub(crate) control: Api,
    pub(crate) auth: Arc<Auth>,
    /// One for each live stream that there may be.
    streams: Arc<Semaphore>,
}

/// What is counted of a limit, as it is told.
#[derive(Serialize)]
struct Told<T> {
    allow: T,
    deny: T,
    would_deny: T,
}

pub(crate) fn routes(see: See) -> Router {
    Router::new()
        .route("/admin/v1/me", get(me::show))
        .route("/admin/v1/top", get(top::show))
        .route("/admin/v1/sustained", get(sustained::show))
        .route("/admin/v1/overview", get(overview::show))
        .route("/admin/v1/live", get(live::follow))
        .route("/admin/v1/activity", get(activity::list))
        .route("/admin/v1/tiers", get(tiers::list))
        .route("/admin/v1/explain", post(explain::ask))
        .route("/admin/v1/decisions", get(decisions::list))
        .with_state(Arc::new(see))
}

impl See {
    pub(crate) fn new(
        sight: Arc<Sight>,
        metrics: Arc<Metrics>,
        health: Arc<Health>,
        control: Api,
        auth: Arc<Auth>,
    ) -> See {
        See { sight, metrics, health, control, auth, streams: Arc::new(Semaphore::new(live::MOST_STREAMS)) }
    }

    fn limiter(&self) -> &Limiter<Counters> {
        self.control.limiter()
    }
}

impl Told<f64> {
    fn rates(met: Met<f64>) -> Told<f64> {
        Told { allow: hundredths(met.allow), deny: hundredths(met.deny), would_deny: hundredths(met.would_deny) }
    }
}

impl Told<u64> {
    fn totals(Met { allow, deny, would_deny }: Met<u64>) -> Told<u64> {
        Told { allow, deny, would_deny }
    }
}

/// A rate: nobody reads more of it.
fn hundredths(rate: f64) -> f64 {
    (rate * 100.0).round() / 100.0
}

fn seconds(span: Span) -> f64 {
    span.as_micros() as f64 / 1e6
}

/// Callers' keys are for those who may see what callers did.
fn keys_for(asked: &Asked) -> Keys {
    if asked.who.scopes.has(Scope::Audit) { Keys::Shown } else { Keys::Hidden }
}

/// Thousandths as a ratio.
fn ratio(of_1_000: u32) -> f64 {
    f64::from(of_1_000) / 1_000.0
}
