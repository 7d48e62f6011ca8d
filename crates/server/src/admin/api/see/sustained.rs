//! Callers that have been near a limit for long, and the tier that would fit them.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde_json::{Value, json};
use tollgate::control::Moment;
use tollgate::{Algorithm, Limit, Ruleset, Timestamp};
use tollgate_observe::{Fit, Sustained};

use super::{See, keys_for, ratio};
use crate::admin::api::extract::{Nothing, Query};
use crate::admin::api::{Answer, Asked};
use crate::admin::who::Scope;
use crate::observe::{Keys, Sight};
use crate::words;

/// Callers near a limit for five minutes or longer
///
/// Those that used 80 % or more of a limit in each of the last five minutes or longer, as this server saw it, with the tier that would fit
/// what they ask for. Who lacks the scope `audit` sees keys as hashes.
#[utoipa::path(
    get, path = "/admin/v1/sustained", operation_id = "sustained", tag = "seeing",
    responses((status = 200, body = Object), (status = "default", response = crate::admin::api::openapi::Failed))
)]
pub(crate) async fn show(State(see): State<Arc<See>>, asked: Asked, Query(Nothing {}): Query<Nothing>) -> Answer {
    asked.may(Scope::Read)?;
    let (keys, rules) = (keys_for(&asked), see.control.limiter().rules());
    let all = see.sight.observer.hitters().sustained(see.control.now());
    let items: Vec<_> = all.iter().map(|one| item(&see.sight, &rules, one, keys)).collect();
    Ok(Json(json!({ "keys_shown": keys == Keys::Shown, "items": items })).into_response())
}

/// One of them, as the list and the live page have it.
pub(crate) fn item(sight: &Sight, rules: &Ruleset, one: &Sustained, keys: Keys) -> Value {
    let (name, limit) = (&one.name, &one.terms.limit);
    let key = if name.key().is_empty() { String::new() } else { sight.shown(name.key(), keys) };
    let fit = one.fits(tiers(rules, one));
    let fit_words = fit.map(|fit| (fit.tier, fit.limit.map_or_else(|| "unlimited".to_owned(), rate)));
    let fit_words = fit_words.as_ref().map(|(tier, limit)| (*tier, limit.as_str()));
    json!({
        "domain": name.domain(),
        "rule": name.rule(),
        "key": key,
        "caller": name.caller().map(|caller| sight.shown(caller, keys)),
        "tier": one.terms.tier,
        "limit": limit.amount(),
        "period": period(limit),
        "utilisation": ratio(one.used_of_1_000),
        "since": Moment(one.since),
        "fits": fit.map(|fit| fit.tier),
        "fits_limit": fit.and_then(|fit| fit.limit).map(Limit::amount),
        "says": one.says(&key, &rate(limit), &clock(one.since), fit_words),
    })
}

/// What the rule in force holds each tier to. A rule without tiers holds all to the same: none of them is another.
fn tiers<'r>(rules: &'r Ruleset, one: &Sustained) -> Vec<Fit<'r>> {
    let domain = rules.domains().iter().find(|domain| domain.name() == one.name.domain());
    let rule = domain.and_then(|domain| domain.rules().iter().find(|rule| rule.name() == one.name.rule()));
    let (Some(domain), Some(rule)) = (domain, rule.filter(|rule| rule.is_by_tier())) else { return Vec::new() };
    let tiers = (0u16..).zip(domain.tiers()).filter_map(|(place, tier)| match rule.limit(place) {
        Some(limit) => Some(Fit { tier: &tier.name, limit: Some(limit) }),
        None => rule.is_unlimited(place).then_some(Fit { tier: &tier.name, limit: None }),
    });
    tiers.collect()
}

/// `minute`, and `concurrent` for requests in flight.
fn period(limit: &Limit) -> String {
    match limit.algorithm() {
        Algorithm::Concurrency => "concurrent".to_owned(),
        _ => words::period(limit.period()),
    }
}

fn rate(limit: &Limit) -> String {
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
