//! What the server sees of its decisions: pages of numbers for operators, the dashboard and `tollgate top`.

pub(super) mod me;
pub(super) mod sustained;
pub(super) mod top;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;

use super::{Api, Asked};
use crate::admin::auth::Auth;
use crate::admin::who::Scope;
use crate::health::Health;
use crate::observe::metrics::Metrics;
use crate::observe::{Keys, Sight};

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
        .route("/admin/v1/top", get(top::show))
        .route("/admin/v1/sustained", get(sustained::show))
        .with_state(Arc::new(see))
}

/// Callers' keys are for those who may see what callers did.
fn keys_for(asked: &Asked) -> Keys {
    if asked.who.scopes.has(Scope::Audit) { Keys::Shown } else { Keys::Hidden }
}

/// Thousandths as a ratio.
fn ratio(of_1_000: u32) -> f64 {
    f64::from(of_1_000) / 1_000.0
}
