//! `GET /openapi.json`: what this wire takes and answers.
//!
//! The types here are the shapes of what is written and read by hand elsewhere; tests read real answers as them.

use serde::Serialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, OpenApi, ToSchema};

use super::{AUTHORIZE, OPEN, authorize, check, explain, health, settle, status};

#[derive(OpenApi)]
#[openapi(
    info(title = "Tollgate", description = "Rate limits: may this request pass, and how does its caller stand?"),
    paths(
        check::handle,
        settle::handle,
        explain::handle,
        status::handle,
        authorize::handle,
        health::healthcheck,
        health::livez,
        health::readyz,
        handle
    ),
    components(schemas(CheckBody, SettleBody))
)]
struct Document;

/// What a check asks. Its schema is [`check_body`]: three forms, which no type of ours mirrors.
#[derive(ToSchema)]
pub(super) struct CheckBody {}

/// What a settlement tells. Its schema is [`settle_body`].
#[derive(ToSchema)]
pub(super) struct SettleBody {}

/// The caller's name for a request.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code, reason = "it only describes")]
pub(super) struct Idempotency {
    /// The caller's name for the request, under which it is decided once; `X-Idempotency-Key` is the same.
    #[param(
        rename = "Idempotency-Key",
        required = false,
        pattern = "^[!#-~]{1,255}$",
        max_length = 255,
        min_length = 1
    )]
    key: String,
}

/// A request that passes.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct Allowed {
    /// Always true.
    pub(super) allowed: bool,
    /// Units in a window of the tightest rule that applies. Missing, as all that follow, where none may be shown.
    #[schema(nullable = false)]
    pub(super) limit: Option<u64>,
    /// What is left of them.
    #[schema(nullable = false)]
    pub(super) remaining: Option<u64>,
    /// Unix seconds at which the quota is back; missing while the store can't say.
    #[schema(nullable = false)]
    pub(super) reset_at: Option<u64>,
    /// The rule's name.
    #[schema(nullable = false)]
    pub(super) rule: Option<String>,
    /// How its limit came to be the one that applies: `default`, `tier`, `override`, `override_glob`, `override_all`, `emergency` or
    /// `request`.
    #[schema(nullable = false)]
    pub(super) resolved_by: Option<String>,
    /// The most units that can pass at once.
    #[schema(nullable = false)]
    pub(super) burst: Option<u64>,
    /// Who says so: `store`, `cache`, `local`, `assumed` or `shed`. Missing where nothing was counted.
    #[schema(nullable = false)]
    pub(super) source: Option<String>,
    /// How much of a store that servers share answers: `degraded`, `local-only` or `open`. Missing where all of it does.
    #[schema(nullable = false)]
    pub(super) level: Option<String>,
    /// The rules that apply do not limit.
    #[schema(nullable = false)]
    pub(super) unlimited: Option<bool>,
    /// How long to hold the request back so that requests leave evenly spaced (leaky bucket).
    #[schema(nullable = false)]
    pub(super) delay_ms: Option<u64>,
    /// What to settle when the request has ended. Missing where there is nothing to settle, unless it was asked for.
    #[schema(nullable = false)]
    pub(super) receipt: Option<String>,
    /// With `receipt`: within how many seconds.
    #[schema(nullable = false)]
    pub(super) settle_within: Option<u64>,
    /// The soft limits that the request went past, up to 16.
    #[schema(nullable = false)]
    pub(super) signals: Option<Vec<String>>,
    /// It passes only because refusals are told and not enforced.
    #[schema(nullable = false)]
    pub(super) shadow: Option<bool>,
    /// With `shadow`: which rule would have refused.
    #[schema(nullable = false)]
    pub(super) denied_by: Option<String>,
}

/// A request that does not pass: a problem, with the members of a check's answer.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct Refused {
    /// `…#quota-exceeded` (429), `…#temporary-reduced-capacity` (503), or `…#abnormal-usage-detected` (403, 429 by choice) where
    /// the caller or its address is blocked.
    pub(super) r#type: String,
    pub(super) title: String,
    pub(super) status: u16,
    /// A sentence for people.
    pub(super) detail: String,
    /// The policies without room, as `RateLimit-Policy` names them.
    #[serde(rename = "violated-policies")]
    pub(super) violated_policies: Vec<String>,
    /// Always false.
    pub(super) allowed: bool,
    /// The refusing rule's units in a window. Missing for a rule that is not shown, and on a 503.
    #[schema(nullable = false)]
    pub(super) limit: Option<u64>,
    #[schema(nullable = false)]
    pub(super) remaining: Option<u64>,
    /// Unix seconds at which its quota is back.
    #[schema(nullable = false)]
    pub(super) reset_at: Option<u64>,
    /// How its limit came to be the one that applies, as in the answer to a request that passes.
    #[schema(nullable = false)]
    pub(super) resolved_by: Option<String>,
    /// Seconds to stay away, as in `Retry-After`. Missing if no wait helps.
    #[schema(nullable = false)]
    pub(super) retry_after: Option<u64>,
    /// Whether the same request can ever pass.
    pub(super) retryable: bool,
    /// The refusing rule's label.
    #[schema(nullable = false)]
    pub(super) denied_by: Option<String>,
    /// Who says so: `store`, `cache`, `local`, `assumed` or `shed`; `block` where nothing was counted since the caller is blocked.
    pub(super) source: String,
    /// How much of a store that servers share answers: `degraded`, `local-only` or `open`. Missing where all of it does.
    #[schema(nullable = false)]
    pub(super) level: Option<String>,
    pub(super) error: RefusedError,
}

/// The same in one object.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct RefusedError {
    /// `RATE_LIMITED` or `REDUCED_CAPACITY`.
    pub(super) code: String,
    pub(super) message: String,
    #[schema(nullable = false)]
    pub(super) retry_after: Option<u64>,
    #[schema(nullable = false)]
    pub(super) limit: Option<u64>,
    /// `1m`, `30s`, `month`; `concurrent` for requests in flight.
    #[schema(nullable = false)]
    pub(super) window: Option<String>,
    /// What the counter is named by: `api_key:abcd…`.
    #[schema(nullable = false)]
    pub(super) scope: Option<String>,
}

/// What became of a receipt.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct SettledBody {
    /// Whether it is done: not while the request is running, nor while the store has not heard of it.
    pub(super) settled: bool,
    /// The store is away, and is told when it is back. Missing otherwise.
    #[schema(nullable = false)]
    pub(super) deferred: Option<bool>,
    /// `ok`, `failed` or `running`, as it was told.
    pub(super) outcome: String,
    /// While it is running: the receipt from now on.
    #[schema(nullable = false)]
    pub(super) receipt: Option<String>,
    /// With `receipt`: within how many seconds to settle it.
    #[schema(nullable = false)]
    pub(super) settle_within: Option<u64>,
    /// The rules of whose counters something moved, as far as they may be seen.
    pub(super) rules: Vec<SettledRuleBody>,
}

/// What became of what one rule took.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct SettledRuleBody {
    /// The rule's name.
    pub(super) rule: String,
    /// Its slot was released; false if it had ended by itself.
    #[schema(nullable = false)]
    pub(super) released: Option<bool>,
    /// Its slot is held for longer; false if it had ended by itself and there is no other.
    #[schema(nullable = false)]
    pub(super) extended: Option<bool>,
    /// So many units were given back.
    #[schema(nullable = false)]
    pub(super) returned: Option<u64>,
    /// So many units were added, past the limit if need be.
    #[schema(nullable = false)]
    pub(super) debited: Option<u64>,
    /// The store has not heard of it: what moves is not known yet.
    #[schema(nullable = false)]
    pub(super) deferred: Option<bool>,
    /// Units in a window.
    #[schema(nullable = false)]
    pub(super) limit: Option<u64>,
    /// What was left of them then.
    #[schema(nullable = false)]
    pub(super) remaining: Option<u64>,
}

/// A request that can't be answered as it is (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct ProblemBody {
    /// `about:blank`: the status says what kind it is.
    pub(super) r#type: String,
    pub(super) title: String,
    pub(super) status: u16,
    /// For programs.
    pub(super) code: String,
    /// What is wrong, and what to do.
    pub(super) detail: String,
}

/// This document
#[utoipa::path(get, path = "/openapi.json", operation_id = "openapi", responses((status = 200, body = Object)))]
#[allow(dead_code, reason = "it only carries the description; the document itself is built once")]
pub(super) fn handle() {}

/// The document, with what others add to it; and with what is answered without a token, where one is needed.
pub(super) fn document(extra: Option<utoipa::openapi::OpenApi>, needs_token: bool) -> String {
    let mut document = Document::openapi();
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    if let Some(extra) = extra {
        document.merge(extra);
    }
    // It is made of texts and numbers, which always have a form in JSON.
    let mut value = serde_json::to_value(&document).unwrap_or_default();
    for (name, body) in [("CheckBody", check_body()), ("SettleBody", settle_body())] {
        if let Some(schema) = value.pointer_mut(&format!("/components/schemas/{name}")) {
            *schema = body;
        }
    }
    if needs_token {
        describe_tokens(&mut value);
    }
    value.to_string()
}

/// Says where a token is needed, how it is shown, and what is answered to one who shows none.
fn describe_tokens(document: &mut Value) {
    document["components"]["securitySchemes"] = json!({
        "bearer": {"type": "http", "scheme": "bearer", "description": "A token with the scope `check`"},
        "header": {"type": "apiKey", "in": "header", "name": "X-Tollgate-Token", "description": "The same in a header of its own"},
    });
    let no_token = json!({
        "description": "It shows no token that may check",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemBody"}}},
    });
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    for (path, item) in paths.filter(|(path, _)| !OPEN.contains(&path.as_str())) {
        let ways = match path.as_str() {
            // Its `Authorization` is that of the request which the proxy asks about.
            AUTHORIZE => json!([{"header": []}]),
            _ => json!([{"bearer": []}, {"header": []}]),
        };
        for operation in item.as_object_mut().into_iter().flat_map(|item| item.values_mut()) {
            operation["security"] = ways.clone();
            operation["responses"]["401"] = no_token.clone();
        }
    }
}

/// A whole number, or one that is written as a text.
fn cost(description: &str, most: u64, digits: &str) -> Value {
    json!({
        "description": description,
        "anyOf": [{"type": "integer", "minimum": 0, "maximum": most}, {"type": "string", "pattern": digits}],
    })
}

/// What a settlement takes. The example can't be settled: a receipt is nothing that one could write down.
fn settle_body() -> Value {
    json!({
        "type": "object", "required": ["receipt"], "additionalProperties": false,
        "properties": {
            "receipt": {"type": "string", "description": "That of the check's answer, unchanged"},
            "outcome": {"type": "string", "enum": ["ok", "failed", "running"], "default": "ok", "description": "How the request ended"},
            "cost": cost("What it really cost; not while it is running", (1 << 53) - 1, "^[0-9]{1,15}$"),
        },
        "examples": [{"receipt": "tgr_AQ", "outcome": "ok", "cost": 1874}],
    })
}

/// What a check takes. The flat form takes every name but three, which a type can't say.
fn check_body() -> Value {
    let text = json!({"type": ["string", "number", "boolean"], "maxLength": 4096});
    let cost = cost("What the request costs; 0 is a look", u64::MAX, "^[0-9]{1,19}$");
    let receipt = json!({"type": "boolean", "default": false, "description": "Answer a receipt in any case"});
    let domain = json!({"description": "Whose rules; needed where there are several domains", "type": "string", "maxLength": 4096});
    let names = json!({"maxLength": 4096});
    let entry = json!({
        "type": "object", "required": ["key", "value"], "additionalProperties": false,
        "properties": {"key": text, "value": text},
    });
    let descriptor = json!({
        "type": "object", "required": ["entries"], "additionalProperties": false,
        "properties": {
            "entries": {"type": "array", "maxItems": 32, "items": entry},
            "hits_addend": {"anyOf": [cost, {"type": "null"}]},
        },
    });
    json!({
        "description": "A request: `attributes`, Envoy's `descriptors`, or attributes beside `domain`, `cost` and `receipt`",
        "anyOf": [
            {
                "type": "object", "required": ["attributes"], "additionalProperties": false,
                "properties": {
                    "domain": domain, "cost": cost, "receipt": receipt,
                    "attributes": {"type": "object", "maxProperties": 32, "propertyNames": names, "additionalProperties": text},
                },
            },
            {
                "type": "object", "required": ["descriptors"], "additionalProperties": false,
                // Two names of one thing.
                "not": {"required": ["cost", "hits_addend"]},
                "properties": {
                    "domain": domain, "cost": cost, "receipt": receipt,
                    "hits_addend": cost,
                    "descriptors": {"type": "array", "maxItems": 64, "items": descriptor},
                },
            },
            {
                "type": "object", "maxProperties": 32, "propertyNames": names, "additionalProperties": text,
                "properties": {
                    "domain": domain, "cost": cost, "receipt": receipt, "attributes": {"not": {}}, "descriptors": {"not": {}},
                },
            },
        ],
        "examples": [
            {"attributes": {"api_key": "k1", "endpoint": "POST /orders"}, "cost": 1},
            {"user_id": "u_42", "endpoint": "/v1/charges", "cost": 1},
        ],
    })
}
