//! What the server sees of its decisions: pages of numbers for operators, the dashboard and `tollgate top`.

pub(super) mod decisions;
pub(super) mod me;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;

use super::Api;
use crate::admin::auth::Auth;
use crate::health::Health;
use crate::observe::Sight;
use crate::observe::metrics::Metrics;

/// What is at hand to see.
#[derive(Debug)]
#[allow(dead_code, reason = "more pages follow")]
pub(crate) struct See {
    pub(crate) sight: Arc<Sight>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Arc<Health>,
    pub(crate) control: Api,
    pub(crate) auth: Arc<Auth>,
}

pub(crate) fn routes(see: See) -> Router {
    Router::new()
        .route("/admin/v1/me", get(me::show))
        .route("/admin/v1/decisions", get(decisions::list))
        .with_state(Arc::new(see))
}
