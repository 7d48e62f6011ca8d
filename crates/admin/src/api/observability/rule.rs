//! One rule: what it says, and what it does.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tollgate::{Algorithm, Limit, Rule};
use tollgate_observe::{LimitResults, RuleLine, display};
use tollgate_records::Rfc3339;
use tollgate_rules::{Condition, Domain};
use utoipa::IntoParams;

use super::activity::ActivityRow;
use super::history::parse_range;
use super::{AdminState, hundredths, seconds};
use crate::api::extract::{PathParams, Query};
use crate::api::{ApiResult, RequestContext, names};
use crate::scopes::AccessScope;

/// Selects the range of the line.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RuleQuery {
    /// `10m` (the default), `2h` or `24h`.
    range: Option<String>,
}

#[derive(Serialize)]
struct TierTerms<'r> {
    tier: &'r str,
    /// In words.
    limit: String,
    /// `null` if it is unlimited.
    amount: Option<u64>,
    algorithm: Option<&'static str>,
    /// The burst of a bucket.
    burst: Option<u64>,
}

/// Show a rule: conditions, limits by tier, algorithm, policy, mode, location, activity, and its decisions over time
///
/// `line` is `null` if more than a thousand rules have traffic and this one has none of the range.
#[utoipa::path(
    get, path = "/admin/v1/domains/{domain}/rules/{rule}", operation_id = "rule", tag = "seeing",
    params(RuleQuery),
    responses((status = 200, body = Object), (status = "default", response = crate::api::description::Failed))
)]
pub(crate) async fn show(
    State(state): State<Arc<AdminState>>,
    context: RequestContext,
    PathParams((domain, rule)): PathParams<(String, String)>,
    Query(query): Query<RuleQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let range = parse_range(query.range.as_deref())?;
    let rules = state.limiter().rules();
    let domain = names::domain(&rules, Some(&domain))?;
    let rule = names::rule(domain, &rule)?;
    let (row, line) = {
        let history = state.observability.sampler.history();
        (ActivityRow::new(domain, rule, &history), history.rule_line(domain.name(), rule.name(), range))
    };
    let conditions = rule.conditions(domain).into_iter();
    let conditions: Vec<_> =
        conditions.map(|Condition { attribute, test }| json!({"attribute": attribute, "test": test})).collect();
    let location = rule.location();
    Ok(Json(json!({
        "activity": row,
        "conditions": conditions,
        "cost": rule.cost_text(domain),
        "entity": domain.entity(),
        "by_tier": rule.is_by_tier() || rule.limit_by().is_some(),
        "limit_by": rule.limit_by(),
        "shed": rule.sheds(),
        "terms": terms(domain, rule),
        "policy": rule.policy().name(),
        "region": rule.region().text(),
        "label": rule.given_label(),
        "file": location.file.to_string(),
        "line_number": location.line,
        "version": rule.version(),
        "range": range.name(),
        "line": line.map(|line| line_json(&line)),
    }))
    .into_response())
}

/// The limit of each tier or value; one entry if it is the same for all.
fn terms<'r>(domain: &'r Domain, rule: &'r Rule) -> Vec<TierTerms<'r>> {
    let rows = rule.rows(domain).filter_map(|(tier, row)| match rule.whole_limit(row) {
        Some(limit) => Some(TierTerms::new(tier, limit)),
        None if rule.is_unlimited(row) => {
            let limit = "unlimited".to_owned();
            Some(TierTerms { tier, limit, amount: None, algorithm: None, burst: None })
        }
        None => None,
    });
    rows.collect()
}

impl<'r> TierTerms<'r> {
    fn new(tier: &'r str, limit: &Limit) -> TierTerms<'r> {
        let burst = match limit.algorithm() {
            Algorithm::Bucket { burst, .. } => Some(burst),
            _ => None,
        };
        TierTerms {
            tier,
            limit: display::limit(limit),
            amount: Some(limit.amount()),
            algorithm: Some(limit.algorithm().name()),
            burst,
        }
    }
}

fn line_json(line: &RuleLine) -> Value {
    let rates = |of: fn(&LimitResults<f64>) -> f64| -> Value {
        line.points.iter().map(|point| point.as_ref().map(|point| hundredths(of(point)))).collect()
    };
    json!({
        "from": Rfc3339(line.from),
        "step_seconds": seconds(line.step),
        "allow": rates(|point| point.allow),
        "deny": rates(|point| point.deny),
        "would_deny": rates(|point| point.would_deny),
    })
}
