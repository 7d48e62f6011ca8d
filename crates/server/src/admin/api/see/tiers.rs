//! What each tier does.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde_json::{Value, json};
use tollgate_control::{Filter, Kind};
use tollgate_observe::Activity;
use tollgate_rules::Domain;

use super::{See, Told};
use crate::admin::api::extract::{Nothing, Query};
use crate::admin::api::{Answer, Asked};
use crate::admin::who::Scope;

/// The most tiers whose callers are counted: each is a question to the store of record.
const MOST_COUNTED: usize = 100;
/// And how long all of them may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// What each tier does, of all rules that tell tiers apart, and how many callers have it
#[utoipa::path(
    get, path = "/admin/v1/tiers", operation_id = "tiers", tag = "seeing",
    responses((status = 200, body = Object), (status = "default", response = crate::admin::api::openapi::Failed))
)]
pub(crate) async fn list(State(see): State<Arc<See>>, asked: Asked, Query(Nothing {}): Query<Nothing>) -> Answer {
    asked.may(Scope::Read)?;
    let rules = see.limiter().rules();
    let named = |domain: &Domain| -> Vec<_> {
        domain.tiers().iter().map(|tier| (domain.name().to_owned(), tier.name.clone())).collect()
    };
    let names: Vec<_> = rules.domains().iter().flat_map(named).take(MOST_COUNTED).collect();
    let mut callers = callers(&see, names).await.into_iter();
    let mut tiers: Vec<Value> = Vec::new();
    for domain in rules.domains() {
        let activity = see.sight.pulse.history().tiers(domain.name());
        let activity: HashMap<_, _> = activity.into_iter().map(|tier| (tier.tier, tier.activity)).collect();
        for (number, tier) in domain.tiers().iter().enumerate() {
            let nothing = Activity::default();
            let activity = activity.get(&tier.name).unwrap_or(&nothing);
            tiers.push(json!({
                "domain": domain.name(),
                "tier": tier.name,
                "default": number == domain.default_tier(),
                "callers": callers.next().flatten(),
                "utilisation": activity.utilisation(),
                "rates": Told::rates(activity.rates),
            }));
        }
    }
    Ok(Json(json!({"tiers": tiers})).into_response())
}

/// How many quota records name each of these tiers, in their order; of those that could not be counted in time, nothing.
async fn callers(see: &See, names: Vec<(String, String)>) -> Vec<Option<u64>> {
    let Some(db) = see.control.db() else { return Vec::new() };
    let mut counts = Vec::new();
    let counting = async {
        for (domain, tier) in names {
            let member = Some(("tier".to_owned(), tier));
            let filter = Filter { domain: Some(domain), member, ..Filter::of(Kind::Quota) };
            counts.push(db.count(&filter).await.ok());
        }
    };
    // What was counted by then is told.
    let _ = tokio::time::timeout(PATIENCE, counting).await;
    counts
}
