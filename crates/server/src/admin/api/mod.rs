//! The admin API: what operators and billing systems read and write. JSON in, JSON out, faults as problem+json.
//!
//! A write is one straight line: who asks and may they ([`Asked`]), the body in shape ([`body`]), its meaning under the rules in
//! force, then [`records::write`]: one transaction, in force here before it is answered.

mod asked;
mod body;
mod names;
mod problem;
mod quotas;
mod records;
pub(super) mod tokens;
mod usage;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;

use crate::control::Control;

pub(super) use asked::Asked;
pub(super) use problem::Problem;

/// What handlers have at hand.
pub(super) type Api = Arc<Control>;

/// What a handler answers.
pub(super) type Answer = Result<axum::response::Response, Problem>;

pub(super) fn routes(control: Api) -> Router {
    Router::new()
        .route("/admin/v1/quotas", get(quotas::list))
        .route("/admin/v1/quotas/{caller}", get(quotas::show).put(quotas::put).delete(quotas::delete))
        .route("/admin/v1/usage/{caller}", get(usage::show))
        .with_state(control)
}
