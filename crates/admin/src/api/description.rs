//! Generates `docs/openapi-admin.json` from the annotations of the handlers.

use serde_json::{Value, json};
use utoipa::{IntoParams, OpenApi, ToResponse, ToSchema};

use super::{
    audit, blocks, bulk, control, counters, emergencies, files, observability, openapi, pending, plans, quotas, rules,
    switches, tokens, usage,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tollgate admin API",
        description = "Quotas, rules, switches, emergencies, blocks, counters, tokens, the audit log, and observability of \
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
        pending::list,
        files::show,
        files::release,
        plans::list,
        plans::show,
        plans::approve,
        plans::drop_plan,
        audit::list,
        control::show,
        control::confirm,
        observability::me::show,
        tokens::list,
        tokens::show,
        tokens::create,
        tokens::rotate,
        tokens::delete,
        observability::top::show,
        observability::leases::show,
        observability::lease_changes::put,
        observability::lease_changes::purge,
        observability::regions::show,
        observability::gateway::show,
        observability::gateway::put_shedding,
        observability::sustained::show,
        observability::signals::list,
        observability::plan::try_change,
        observability::plan::traffic,
        observability::overview::show,
        observability::history::show,
        observability::event_sinks::list,
        observability::event_sinks::test,
        observability::events::list,
        observability::rule::show,
        observability::live::follow,
        observability::activity::list,
        observability::tiers::list,
        observability::explain::explain_request,
        observability::decisions::list,
        openapi::show
    ),
    components(responses(Failed), schemas(RuleBody))
)]
struct OpenApiDocument;

/// A page of a list.
#[derive(ToSchema)]
#[allow(dead_code, reason = "it only describes")]
pub(super) struct ListBody {
    items: Vec<Value>,
    /// The `after` of the next page; `null` at the end.
    next: Option<String>,
}

/// A failed request (RFC 9457).
#[derive(ToSchema, ToResponse)]
#[response(description = "The error, with all faults of the request", content_type = "application/problem+json")]
#[allow(dead_code, reason = "it only describes")]
pub(super) struct Failed {
    r#type: String,
    title: String,
    status: u16,
    /// A stable code for programs.
    code: String,
    /// What is wrong, and how to fix it.
    detail: String,
    /// All faults of the body.
    #[schema(nullable = false)]
    faults: Option<Vec<FaultBody>>,
}

/// A fault of the body.
#[derive(ToSchema)]
#[allow(dead_code, reason = "it only describes")]
pub(super) struct FaultBody {
    /// The member: `overrides[0].unit`.
    at: String,
    /// What is wrong, and what to write instead.
    what: String,
}

/// A rule. Its schema is [`rule_body`]: two forms.
#[derive(ToSchema)]
pub(super) struct RuleBody {}

/// Selects a page of a list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "it only describes")]
pub(super) struct Paged {
    /// The `next` of the previous page.
    after: Option<String>,
    /// Items of a page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u64>,
}

/// Selects a page of a list, of one domain or of all.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "it only describes")]
pub(super) struct Listing {
    /// Only this domain.
    domain: Option<String>,
    /// The `next` of the previous page.
    after: Option<String>,
    /// Items of a page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u64>,
}

/// Selects a domain.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "it only describes")]
pub(super) struct OfDomain {
    /// The domain; by default the only one with an `entity`.
    domain: Option<String>,
}

/// Preconditions and idempotency key of a write.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code, reason = "it only describes")]
pub(super) struct Conditions {
    /// The `ETag` of the record, or `*`: it must exist.
    #[param(rename = "If-Match", required = false)]
    if_match: String,
    /// `*`: it must not exist.
    #[param(rename = "If-None-Match", required = false)]
    if_none_match: String,
    /// A key under which the write is done once.
    #[param(rename = "Idempotency-Key", required = false, max_length = 255, min_length = 1)]
    key: String,
    /// The plan as which the same request was held.
    #[param(rename = "Tollgate-Confirm", required = false, max_length = 64, min_length = 1)]
    confirm: String,
}

/// Generates the document.
pub(super) fn generate() -> Value {
    let mut document = OpenApiDocument::openapi();
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    // Texts and numbers are always valid JSON.
    let mut value = serde_json::to_value(&document).unwrap_or_default();
    if let Some(schema) = value.pointer_mut("/components/schemas/RuleBody") {
        *schema = rule_body();
    }
    expand_switches(&mut value);
    add_path_parameters(&mut value);
    value
}

/// Switches have the same operations at three paths.
fn expand_switches(document: &mut Value) {
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

/// Adds the parameters in braces to the operations of each path.
fn add_path_parameters(document: &mut Value) {
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

/// The schema of a rule.
fn rule_body() -> Value {
    let state = json!({"type": "string", "enum": ["draft", "pending", "shadow", "active", "off"], "default": "active"});
    let reason = json!({"type": "string", "maxLength": 4096});
    json!({
        "description": "A rule in the form of the rule files, or in the short form",
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
            {"rule": {"key": ["api_key"], "limit": "100/minute"}, "state": "shadow", "reason": "shadow first"},
        ],
    })
}
