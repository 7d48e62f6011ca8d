//! Generates `docs/openapi.json` from the annotations of the handlers.
//!
//! These types mirror what is written and read by hand elsewhere; tests deserialize real responses into them.

use serde::Serialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, OpenApi, ToSchema};

use super::{authorize, check, explain, health, settle, status};

#[derive(OpenApi)]
#[openapi(
    info(title = "Tollgate", description = "Rate limits: check requests, settle receipts, read a caller's counters"),
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
struct ApiDocument;

/// The body of a check. Its schema is [`check_body`]: three forms, which no Rust type mirrors.
#[derive(ToSchema)]
pub(super) struct CheckBody {}

/// The body of a settlement. Its schema is [`settle_body`].
#[derive(ToSchema)]
pub(super) struct SettleBody {}

/// The idempotency key of a request.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code, reason = "it only describes")]
pub(super) struct IdempotencyHeader {
    /// The caller's name for the request, under which it is decided once: up to 255 visible ASCII characters.
    /// `X-Idempotency-Key` is an alias.
    #[param(rename = "Idempotency-Key", required = false)]
    key: String,
}

/// A request that passes.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct Allowed {
    /// Always true.
    pub(super) allowed: bool,
    /// Units per window of the tightest rule that applies. This and the following members are missing if no rule may be
    /// shown.
    #[schema(nullable = false)]
    pub(super) limit: Option<u64>,
    /// How many units are left.
    #[schema(nullable = false)]
    pub(super) remaining: Option<u64>,
    /// When the quota is replenished, in Unix seconds; missing while the store is unavailable.
    #[schema(nullable = false)]
    pub(super) reset_at: Option<u64>,
    /// The rule's name.
    #[schema(nullable = false)]
    pub(super) rule: Option<String>,
    /// How the limit was resolved: `default`, `tier`, `override`, `override_glob`, `override_all`, `emergency` or
    /// `request`.
    #[schema(nullable = false)]
    pub(super) resolved_by: Option<String>,
    /// The largest number of units that can pass at once.
    #[schema(nullable = false)]
    pub(super) burst: Option<u64>,
    /// The source of the decision: `store`, `lease`, `cache`, `summed`, `local`, `assumed` or `shed`. Missing if nothing was counted.
    #[schema(nullable = false)]
    pub(super) source: Option<String>,
    /// The level of a shared store: `degraded`, `local-only` or `open`. Missing if it is fully available.
    #[schema(nullable = false)]
    pub(super) level: Option<String>,
    /// How other regions are doing, if limits of all regions apply: `lagging` (such limits are lowered) or `apart`. Missing
    /// if they are together.
    #[schema(nullable = false)]
    pub(super) regions: Option<String>,
    /// Whether the rules that apply have no limit.
    #[schema(nullable = false)]
    pub(super) unlimited: Option<bool>,
    /// How long to delay the request, so that requests leave evenly spaced (leaky bucket).
    #[schema(nullable = false)]
    pub(super) delay_ms: Option<u64>,
    /// The receipt to settle when the request has ended. Missing if there is nothing to settle and none was requested.
    #[schema(nullable = false)]
    pub(super) receipt: Option<String>,
    /// With `receipt`: the seconds within which it must be settled.
    #[schema(nullable = false)]
    pub(super) settle_within: Option<u64>,
    /// The soft limits that the request exceeded, up to 16.
    #[schema(nullable = false)]
    pub(super) signals: Option<Vec<String>>,
    /// The request passes only because of shadow mode.
    #[schema(nullable = false)]
    pub(super) shadow: Option<bool>,
    /// With `shadow`: the rule that would have refused.
    #[schema(nullable = false)]
    pub(super) denied_by: Option<String>,
}

/// A refused request: a problem document, with the members of a check's response.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct Refused {
    /// `…#quota-exceeded` (429), `…#temporary-reduced-capacity` (503), or `…#abnormal-usage-detected` (403, or 429 if
    /// configured) if the caller or its address is blocked.
    pub(super) r#type: String,
    pub(super) title: String,
    pub(super) status: u16,
    /// A sentence for people.
    pub(super) detail: String,
    /// The policies without room, named as in `RateLimit-Policy`.
    #[serde(rename = "violated-policies")]
    pub(super) violated_policies: Vec<String>,
    /// Always false.
    pub(super) allowed: bool,
    /// Units per window of the refusing rule. Missing for a hidden rule, and in a 503.
    #[schema(nullable = false)]
    pub(super) limit: Option<u64>,
    #[schema(nullable = false)]
    pub(super) remaining: Option<u64>,
    /// When its quota is replenished, in Unix seconds.
    #[schema(nullable = false)]
    pub(super) reset_at: Option<u64>,
    /// How the limit was resolved, as for a request that passes.
    #[schema(nullable = false)]
    pub(super) resolved_by: Option<String>,
    /// Seconds to wait before a retry, as in `Retry-After`. Missing if no wait helps.
    #[schema(nullable = false)]
    pub(super) retry_after: Option<u64>,
    /// Whether the same request can ever pass.
    pub(super) retryable: bool,
    /// The shedder, `fleet`, if a rule refused the request to protect the service.
    #[schema(nullable = false)]
    pub(super) shed: Option<String>,
    /// The refusing rule's label.
    #[schema(nullable = false)]
    pub(super) denied_by: Option<String>,
    /// The source of the decision: `store`, `lease`, `cache`, `summed`, `local`, `assumed` or `shed`; `block` if nothing was counted
    /// because the caller is blocked.
    pub(super) source: String,
    /// The level of a shared store: `degraded`, `local-only` or `open`. Missing if it is fully available.
    #[schema(nullable = false)]
    pub(super) level: Option<String>,
    /// How other regions are doing, if limits of all regions apply: `lagging` (such limits are lowered) or `apart`. Missing
    /// if they are together.
    #[schema(nullable = false)]
    pub(super) regions: Option<String>,
    pub(super) error: RefusedError,
}

/// The refusal as one object.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct RefusedError {
    /// `RATE_LIMITED`, `REDUCED_CAPACITY` or `BLOCKED`.
    pub(super) code: String,
    pub(super) message: String,
    #[schema(nullable = false)]
    pub(super) retry_after: Option<u64>,
    #[schema(nullable = false)]
    pub(super) limit: Option<u64>,
    /// `1m`, `30s`, `month`; `concurrent` for requests in flight.
    #[schema(nullable = false)]
    pub(super) window: Option<String>,
    /// The scope of the counter: `api_key:abcd…`.
    #[schema(nullable = false)]
    pub(super) scope: Option<String>,
}

/// The result of a settlement.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct SettledBody {
    /// Whether the receipt is settled: not while the request is running, nor while the settlement is deferred.
    pub(super) settled: bool,
    /// The store is unavailable, and the settlement is sent later. Missing otherwise.
    #[schema(nullable = false)]
    pub(super) deferred: Option<bool>,
    /// `ok`, `failed` or `running`, as in the request.
    pub(super) outcome: String,
    /// While the request is running: the renewed receipt.
    #[schema(nullable = false)]
    pub(super) receipt: Option<String>,
    /// With `receipt`: the seconds within which it must be settled.
    #[schema(nullable = false)]
    pub(super) settle_within: Option<u64>,
    /// The visible rules whose counters changed.
    pub(super) rules: Vec<SettledRuleBody>,
}

/// The change of one rule's counter.
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct SettledRuleBody {
    /// The rule's name.
    pub(super) rule: String,
    /// The slot was released; false if it had expired.
    #[schema(nullable = false)]
    pub(super) released: Option<bool>,
    /// The slot was extended; false if it had expired and no other was free.
    #[schema(nullable = false)]
    pub(super) extended: Option<bool>,
    /// How many units were given back.
    #[schema(nullable = false)]
    pub(super) returned: Option<u64>,
    /// How many units were added, past the limit if necessary.
    #[schema(nullable = false)]
    pub(super) debited: Option<u64>,
    /// The settlement is deferred: the change is not known yet.
    #[schema(nullable = false)]
    pub(super) deferred: Option<bool>,
    /// Units per window.
    #[schema(nullable = false)]
    pub(super) limit: Option<u64>,
    /// How many units were left then.
    #[schema(nullable = false)]
    pub(super) remaining: Option<u64>,
}

/// A request that can't be served (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
#[cfg_attr(test, derive(serde::Deserialize), serde(deny_unknown_fields))]
pub(super) struct ProblemBody {
    /// `about:blank`: the status is the type of the problem.
    pub(super) r#type: String,
    pub(super) title: String,
    pub(super) status: u16,
    /// Identifies the problem to programs.
    pub(super) code: String,
    /// What is wrong and how to fix it.
    pub(super) detail: String,
}

/// This document
#[utoipa::path(get, path = "/openapi.json", operation_id = "openapi", responses((status = 200, body = Object)))]
#[allow(dead_code, reason = "it only carries the description; the document itself is built once")]
pub(super) fn handle() {}

/// The schemas of requests, in which unknown members are rejected.
const REQUESTS: [&str; 6] =
    ["CheckBody", "SettleBody", "RateLimitRequest", "RateLimitDescriptor", "Entry", "RateLimitOverride"];

/// The document, generated from the annotations: the paths of this wire, and `/json`.
pub(super) fn generate() -> Value {
    let mut document = ApiDocument::openapi();
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    document.merge(crate::envoy::description());
    let mut value = serde_json::to_value(&document).unwrap();
    for (name, body) in [("CheckBody", check_body()), ("SettleBody", settle_body())] {
        value["components"]["schemas"][name] = body;
    }
    // Tests reject unknown members of responses. Clients must not: responses may get new ones.
    for (name, schema) in value["components"]["schemas"].as_object_mut().unwrap() {
        if !REQUESTS.contains(&name.as_str()) {
            schema.as_object_mut().unwrap().remove("additionalProperties");
        }
    }
    value
}

/// A whole number, possibly as a string.
fn cost(description: &str, max: u64, digits: &str) -> Value {
    json!({
        "description": description,
        "anyOf": [{"type": "integer", "minimum": 0, "maximum": max}, {"type": "string", "pattern": digits}],
    })
}

/// The body of a settlement. The example can't be settled: a receipt can't be written by hand.
fn settle_body() -> Value {
    json!({
        "type": "object", "required": ["receipt"], "additionalProperties": false,
        "properties": {
            "receipt": {"type": "string", "description": "The `receipt` of the check's response, unchanged"},
            "outcome": {"type": "string", "enum": ["ok", "failed", "running"], "default": "ok", "description": "The outcome of the request"},
            "cost": cost("The real cost; not while the request is running", (1 << 53) - 1, "^[0-9]{1,15}$"),
        },
        "examples": [{"receipt": "tgr_AQ", "outcome": "ok", "cost": 1874}],
    })
}

/// The body of a check. The flat form accepts every name except three, which a type can't express.
fn check_body() -> Value {
    // Clients may choose these, so none is an error.
    let text = json!({"description": "A string, or anything else as it is written; null: the attribute is absent. Long ones count by a digest"});
    let cost =
        json!({"description": "The cost of the request, a whole number; 0 peeks, and anything else counts as 1"});
    let key = json!({"type": ["string", "number", "boolean"]});
    let receipt = json!({"type": "boolean", "default": false, "description": "Return a receipt in any case"});
    let domain = json!({"description": "The domain of the rules; required if there are several", "type": "string"});
    let entry = json!({
        "type": "object", "required": ["key", "value"], "additionalProperties": false,
        "properties": {"key": key, "value": text},
    });
    let descriptor = json!({
        "type": "object", "required": ["entries"], "additionalProperties": false,
        "properties": {
            "entries": {"type": "array", "items": entry},
            "hits_addend": cost,
        },
    });
    json!({
        "description": "A request: `attributes`, Envoy's `descriptors`, or attributes next to `domain`, `cost` and `receipt`",
        "anyOf": [
            {
                "type": "object", "required": ["attributes"], "additionalProperties": false,
                "properties": {
                    "domain": domain, "cost": cost, "receipt": receipt,
                    "attributes": {"type": "object", "additionalProperties": text},
                },
            },
            {
                "type": "object", "required": ["descriptors"], "additionalProperties": false,
                // Two names of the same member.
                "not": {"required": ["cost", "hits_addend"]},
                "properties": {
                    "domain": domain, "cost": cost, "receipt": receipt,
                    "hits_addend": cost,
                    "descriptors": {"type": "array", "items": descriptor},
                },
            },
            {
                "type": "object", "additionalProperties": text,
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
