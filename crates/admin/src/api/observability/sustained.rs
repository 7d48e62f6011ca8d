//! Keys with sustained use, and the tier that would fit them.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde_json::{Value, json};
use tollgate::{Algorithm, Limit, Ruleset, Timestamp};
use tollgate_observe::{SustainedKey, TierFit};
use tollgate_records::Rfc3339;

use super::{AdminState, keys_for, ratio};
use crate::api::extract::{EmptyQuery, Query};
use crate::api::{ApiResult, RequestContext};
use crate::observe::{KeyVisibility, Observability};
use crate::scopes::AccessScope;
use tollgate_observe::display;

/// List callers near a limit for five minutes or longer
///
/// Callers that used 80 % or more of a limit in each of the last five minutes or longer, as observed by this server, with the tier
/// that would fit their demand. Without the scope `audit` keys are hashed.
#[utoipa::path(
    get, path = "/admin/v1/sustained", operation_id = "sustained", tag = "seeing",
    responses((status = 200, body = Object), (status = "default", response = crate::api::description::Failed))
)]
pub(crate) async fn show(
    State(state): State<Arc<AdminState>>,
    context: RequestContext,
    Query(EmptyQuery {}): Query<EmptyQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let (keys, rules) = (keys_for(&context), state.control.limiter().rules());
    let all = state.observability.observer.heavy_hitters().sustained(state.control.now());
    let items: Vec<_> = all.iter().map(|one| item(&state.observability, &rules, one, keys)).collect();
    Ok(Json(json!({ "keys_shown": keys == KeyVisibility::Plain, "items": items })).into_response())
}

/// The item of a key, in the list and in live events.
pub(crate) fn item(observability: &Observability, rules: &Ruleset, one: &SustainedKey, keys: KeyVisibility) -> Value {
    let (name, limit) = (&one.name, &one.terms.limit);
    let key = if name.key().is_empty() { String::new() } else { observability.display_key(name, keys) };
    let fit = one.best_fit(tiers(rules, one));
    let fit_text = fit.map(|fit| (fit.tier, fit.limit.map_or_else(|| "unlimited".to_owned(), limit_text)));
    let fit_text = fit_text.as_ref().map(|(tier, limit)| (*tier, limit.as_str()));
    json!({
        "domain": name.domain(),
        "rule": name.rule(),
        "key": key,
        "caller": observability.display_caller(name, keys),
        "tier": one.terms.tier,
        "limit": limit.amount(),
        "period": period(limit),
        "utilisation": ratio(one.used_permille),
        "since": Rfc3339(one.since),
        "fits": fit.map(|fit| fit.tier),
        "fits_limit": fit.and_then(|fit| fit.limit).map(Limit::amount),
        "says": one.describe(&key, &limit_text(limit), &clock(one.since), fit_text),
    })
}

/// The limits of a rule by tier. Empty for a rule without tiers.
fn tiers<'r>(rules: &'r Ruleset, one: &SustainedKey) -> Vec<TierFit<'r>> {
    let domain = rules.domains().iter().find(|domain| domain.name() == one.name.domain());
    let rule = domain.and_then(|domain| domain.rules().iter().find(|rule| rule.name() == one.name.rule()));
    let (Some(domain), Some(rule)) = (domain, rule.filter(|rule| rule.is_by_tier())) else { return Vec::new() };
    let tiers = (0u16..).zip(domain.tiers()).filter_map(|(place, tier)| match rule.limit(place) {
        Some(limit) => Some(TierFit { tier: &tier.name, limit: Some(limit) }),
        None => rule.is_unlimited(place).then_some(TierFit { tier: &tier.name, limit: None }),
    });
    tiers.collect()
}

/// `minute`, and `concurrent` for requests in flight.
fn period(limit: &Limit) -> String {
    match limit.algorithm() {
        Algorithm::Concurrency => "concurrent".to_owned(),
        _ => display::period(limit.period()),
    }
}

fn limit_text(limit: &Limit) -> String {
    match limit.algorithm() {
        Algorithm::Concurrency => format!("{} concurrent", limit.amount()),
        _ => format!("{}/{}", limit.amount(), period(limit)),
    }
}

/// `14:03`.
fn clock(at: Timestamp) -> String {
    let minutes = at.as_micros() / 60_000_000 % (24 * 60);
    format!("{:02}:{:02} UTC", minutes / 60, minutes % 60)
}
