//! The admin API: what operators and billing systems read and write. JSON in, JSON out, faults as problem+json.
//!
//! A write is one straight line: who asks and may they ([`Asked`]), the body in shape ([`body`]), its meaning under the rules in
//! force, then [`records::write`]: one transaction, in force here before it is answered.

mod asked;
mod audit;
mod blocks;
mod body;
mod bulk;
mod counters;
mod emergencies;
mod extract;
mod feed;
mod fits;
mod names;
mod openapi;
mod problem;
mod quotas;
mod records;
mod rules;
pub(super) mod see;
mod stream;
mod switches;
#[cfg(test)]
pub(super) mod tests;
pub(super) mod tokens;
mod until;
mod usage;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

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
        .route("/admin/v1/export", get(bulk::export))
        .route("/admin/v1/import", post(bulk::import))
        .route("/admin/v1/usage/{caller}", get(usage::show))
        .merge(feed::routes())
        .route("/v1/ratelimit/config", get(rules::list))
        .route("/v1/ratelimit/config/{rule_id}", get(rules::show).put(rules::write::put).delete(rules::delete))
        .route("/v1/ratelimit/config/{rule_id}/versions", get(rules::versions::list))
        .route("/v1/ratelimit/config/{rule_id}/versions/{version}", get(rules::versions::show))
        .route("/v1/ratelimit/config/{rule_id}/diff", get(rules::versions::diff))
        .route("/v1/ratelimit/config/{rule_id}/rollback", post(rules::write::rollback))
        .route("/v1/ratelimit/config/{rule_id}/state", post(rules::write::state))
        .route("/admin/v1/switches", get(switches::list))
        .route("/admin/v1/switches/everything", get(switches::show).put(switches::put).delete(switches::delete))
        .route("/admin/v1/switches/domains/{domain}", get(switches::show).put(switches::put).delete(switches::delete))
        .route(
            "/admin/v1/switches/domains/{domain}/rules/{rule}",
            get(switches::show).put(switches::put).delete(switches::delete),
        )
        .route("/admin/v1/emergencies", get(emergencies::list))
        .route("/admin/v1/emergencies/{name}", get(emergencies::show).put(emergencies::put).delete(emergencies::delete))
        .route("/admin/v1/emergencies/{name}/renew", post(emergencies::renew))
        .route("/admin/v1/blocks", get(blocks::list))
        .route("/admin/v1/blocks/{name}", get(blocks::show).put(blocks::put).delete(blocks::delete))
        .route("/admin/v1/counters/{caller}", get(counters::show).post(counters::change))
        .route("/admin/v1/audit", get(audit::list))
        .route("/admin/openapi.json", get(openapi::show))
        .with_state(control)
}
