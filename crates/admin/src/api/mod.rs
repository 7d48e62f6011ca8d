//! The admin API for operators and billing systems: JSON requests and responses, errors as problem+json.
//!
//! A write takes these steps: authorization ([`RequestContext`]), parsing ([`body`]), validation under the rules in force, a
//! judgement of what it would refuse ([`guarded`]), then [`records::write`]: one transaction, in force here before the response.

mod audit;
mod blocks;
mod body;
mod bulk;
mod context;
mod control;
mod counters;
#[cfg(test)]
mod description;
mod emergencies;
mod expiry;
mod extract;
mod feed;
mod files;
mod guarded;
mod names;
pub(super) mod observability;
#[cfg(any(test, feature = "openapi"))]
mod openapi;
mod pending;
mod plans;
mod quotas;
mod records;
mod rules;
mod selection;
mod stream;
mod switches;
#[cfg(test)]
pub(super) mod tests;
pub(super) mod tokens;
mod urgent;
mod usage;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use crate::problem::ApiProblem;
use crate::store_of_record::ControlPlane;
pub(crate) use blocks::MAX_RANGES;

pub(super) use context::RequestContext;

/// The state of handlers.
pub(super) type Api = Arc<ControlPlane>;

/// The result of a handler.
pub(super) type ApiResult = Result<axum::response::Response, ApiProblem>;

/// The result of a write, which may repeat an earlier response.
pub(super) type WriteResult = Result<axum::response::Response, body::Interruption>;

pub(super) fn routes(control: Api) -> Router {
    let routes = Router::new()
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
        .route("/admin/v1/pending", get(pending::list))
        .route("/admin/v1/files", get(files::show))
        .route("/admin/v1/files/{version}/release", post(files::release))
        .route("/admin/v1/plans", get(plans::list))
        .route("/admin/v1/plans/{id}", get(plans::show).delete(plans::drop_plan))
        .route("/admin/v1/plans/{id}/approve", post(plans::approve))
        .route("/admin/v1/audit", get(audit::list))
        .route("/admin/v1/control", get(control::show))
        .route("/admin/v1/control/confirm", post(control::confirm));
    #[cfg(any(test, feature = "openapi"))]
    let routes = routes.route("/admin/openapi.json", get(openapi::show));
    routes.with_state(control)
}
