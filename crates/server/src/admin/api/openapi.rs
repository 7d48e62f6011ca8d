//! `GET /admin/openapi.json`: what the admin API takes and answers.

use axum::extract::State;
use axum::response::IntoResponse;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};
use utoipa::{IntoParams, OpenApi, ToResponse, ToSchema};

use super::{Answer, Api, audit, blocks, bulk, counters, emergencies, quotas, rules, see, switches, tokens, usage};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tollgate, for operators",
        description = "Quotas, rules, switches, emergencies, blocks, counters, tokens, the audit log, and what the server sees of its \
                       decisions"
    ),
    paths(
        quotas::list,
        quotas::show,
        quotas::put,
        quotas::delete,
        usage::show,
        bulk::export,
        bulk::import,
        rules::list,
        rules::show,
        rules::delete,
        rules::write::put,
        rules::write::state,
        rules::write::rollback,
        rules::versions::list,
        rules::versions::show,
        rules::versions::diff,
        switches::list,
        switches::show,
        switches::put,
        switches::delete,
        emergencies::list,
        emergencies::show,
        emergencies::put,
        emergencies::delete,
        emergencies::renew,
        blocks::list,
        blocks::show,
        blocks::put,
        blocks::delete,
        counters::show,
        counters::change,
        audit::list,
        see::me::show,
        tokens::list,
        tokens::show,
        tokens::create,
        tokens::rotate,
        tokens::delete,
        see::top::show,
        see::sustained::show,
        see::overview::show,
        see::live::follow,
        see::activity::list,
        see::tiers::list,
        see::explain::ask,
        see::decisions::list,
        show
    ),
    components(responses(Failed), schemas(RuleBody))
)]
struct Document;

/// A page of a list.
#[derive(ToSchema)]
#[allow(dead_code, reason = "it only describes")]
pub(super) struct ListBody {
    items: Vec<Value>,
    /// Where the next page begins: its `after`; `null` at the end.
    next: Option<String>,
}

/// A request that is not served as it was meant (RFC 9457).
#[derive(ToSchema, ToResponse)]
#[response(description = "What is wrong, with every fault named", content_type = "application/problem+json")]
#[allow(dead_code, reason = "it only describes")]
pub(super) struct Failed {
    r#type: String,
    title: String,
    status: u16,
    /// For programs.
    code: String,
    /// What is wrong, and what to do.
    detail: String,
    /// All that is wrong with a body.
    #[schema(nullable = false)]
    faults: Option<Vec<FaultBody>>,
}

/// What is wrong with a body.
#[derive(ToSchema)]
#[allow(dead_code, reason = "it only describes")]
pub(super) struct FaultBody {
    /// Where: `overrides[0].unit`.
    at: String,
    /// What, and what to write instead.
    what: String,
}

/// A rule. Its schema is [`rule_body`]: two forms.
#[derive(ToSchema)]
pub(super) struct RuleBody {}

/// Which part of a list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "it only describes")]
pub(super) struct Paged {
    /// The `next` of the page before.
    after: Option<String>,
    /// Items of a page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u64>,
}

/// Which part of a list, of one domain or of all.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "it only describes")]
pub(super) struct Listing {
    /// Of this domain alone.
    domain: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    /// Items of a page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u64>,
}

/// Of which domain.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "it only describes")]
pub(super) struct OfDomain {
    /// By default the only one that has an `entity`.
    domain: Option<String>,
}

/// What a write takes for granted, and its name.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code, reason = "it only describes")]
pub(super) struct Conditions {
    /// The `ETag` of what was read, or `*`: it must be there still.
    #[param(rename = "If-Match", required = false)]
    if_match: String,
    /// `*`: it must not be there.
    #[param(rename = "If-None-Match", required = false)]
    if_none_match: String,
    /// The writer's name for the write, under which it is done once.
    #[param(rename = "Idempotency-Key", required = false, max_length = 255, min_length = 1)]
    key: String,
}

/// This document
#[utoipa::path(get, path = "/admin/openapi.json", operation_id = "openapi", responses((status = 200, body = Object)))]
pub(super) async fn show(State(_): State<Api>) -> Answer {
    Ok(([(CONTENT_TYPE, "application/json")], document().to_string()).into_response())
}

/// The document.
pub(super) fn document() -> Value {
    let mut document = Document::openapi();
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    // It is made of texts and numbers, which always have a form in JSON.
    let mut value = serde_json::to_value(&document).unwrap_or_default();
    if let Some(schema) = value.pointer_mut("/components/schemas/RuleBody") {
        *schema = rule_body();
    }
    switches_of(&mut value);
    parameters_of_paths(&mut value);
    value
}

/// Switches have the same form in three places.
fn switches_of(document: &mut Value) {
    let Some(paths) = document.get_mut("paths").and_then(Value::as_object_mut) else { return };
    let Some(everything) = paths.get("/admin/v1/switches/everything").cloned() else { return };
    for (path, suffix) in [
        ("/admin/v1/switches/domains/{domain}", "_domain"),
        ("/admin/v1/switches/domains/{domain}/rules/{rule}", "_rule"),
    ] {
        let mut item = everything.clone();
        for operation in item.as_object_mut().into_iter().flat_map(|item| item.values_mut()) {
            let name = operation["operationId"].as_str().unwrap_or_default();
            operation["operationId"] = json!(format!("{name}{suffix}"));
        }
        paths.insert(path.to_owned(), item);
    }
}

/// What stands in braces in a path is a parameter of all that is done there.
fn parameters_of_paths(document: &mut Value) {
    let Some(paths) = document.get_mut("paths").and_then(Value::as_object_mut) else { return };
    for (path, item) in paths {
        let named: Vec<Value> = path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
            .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
            .collect();
        for operation in item.as_object_mut().into_iter().flat_map(|item| item.values_mut()) {
            let others = operation["parameters"].as_array().cloned().unwrap_or_default();
            operation["parameters"] = named.iter().cloned().chain(others).collect();
        }
    }
}

/// What a rule is written as.
fn rule_body() -> Value {
    let state = json!({"type": "string", "enum": ["draft", "pending", "shadow", "active", "off"], "default": "active"});
    let reason = json!({"type": "string", "maxLength": 4096});
    json!({
        "description": "A rule as files have it, or in its short form",
        "anyOf": [
            {
                "type": "object", "required": ["rule"], "additionalProperties": false,
                "properties": {"rule": {"type": "object"}, "state": state, "reason": reason},
            },
            {
                "type": "object", "required": ["key_pattern", "rate"], "additionalProperties": false,
                "properties": {
                    "key_pattern": {"type": "string"}, "algorithm": {"type": "string"},
                    "rate": {"type": "integer", "minimum": 0}, "burst": {"type": "integer", "minimum": 1},
                    "window": {"type": "string"}, "unit": {"type": "string"}, "state": state, "reason": reason,
                },
            },
        ],
        "examples": [
            {"key_pattern": "user:{user_id}", "algorithm": "token_bucket", "rate": 100, "burst": 150, "window": "1m"},
            {"rule": {"key": ["api_key"], "limit": "100/minute"}, "state": "shadow", "reason": "tried before it counts"},
        ],
    })
}
