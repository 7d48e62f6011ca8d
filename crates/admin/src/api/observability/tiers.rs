//! Activity of tiers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde_json::{Value, json};
use tollgate_control::RecordFilter;
use tollgate_observe::Activity;
use tollgate_records::RecordKind;
use tollgate_rules::{Domain, Rule};

use super::{AdminState, ResultsBody};
use crate::api::extract::{EmptyQuery, Query};
use crate::api::{ApiResult, RequestContext};
use crate::scopes::AccessScope;

/// Tiers whose callers are counted: each is a query to the store of record.
const MAX_COUNTED: usize = 100;
/// Time limit of all counts.
const COUNT_TIMEOUT: Duration = Duration::from_secs(2);

/// Show the activity of tiers, summed over rules with limits by tier, and their number of callers
///
/// `limited` is whether a rule has a limit of its own for the tier.
#[utoipa::path(
    get, path = "/admin/v1/tiers", operation_id = "tiers", tag = "seeing",
    responses((status = 200, body = Object), (status = "default", response = crate::api::description::Failed))
)]
pub(crate) async fn list(
    State(state): State<Arc<AdminState>>,
    context: RequestContext,
    Query(EmptyQuery {}): Query<EmptyQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let rules = state.limiter().rules();
    let tier_names = |domain: &Domain| -> Vec<_> {
        domain.tiers().iter().map(|tier| (domain.name().to_owned(), tier.name.clone())).collect()
    };
    let names: Vec<_> = rules.domains().iter().flat_map(tier_names).take(MAX_COUNTED).collect();
    let mut callers = callers(&state, names).await.into_iter();
    let mut tiers: Vec<Value> = Vec::new();
    for domain in rules.domains() {
        let activity = state.observability.sampler.history().tiers(domain.name());
        let activity: HashMap<_, _> = activity.into_iter().map(|tier| (tier.tier, tier.activity)).collect();
        for (number, tier) in domain.tiers().iter().enumerate() {
            let idle = Activity::default();
            let activity = activity.get(&tier.name).unwrap_or(&idle);
            tiers.push(json!({
                "domain": domain.name(),
                "tier": tier.name,
                "default": number == domain.default_tier(),
                "limited": domain.rules().iter().any(|rule| has_own_limit(rule, number)),
                "callers": callers.next().flatten(),
                "utilisation": activity.utilisation(),
                "rates": ResultsBody::rates(activity.rates),
            }));
        }
    }
    Ok(Json(json!({"tiers": tiers})).into_response())
}

/// Whether a rule distinguishes tiers, and has a limit for this one.
fn has_own_limit(rule: &Rule, tier: usize) -> bool {
    let Ok(tier) = u16::try_from(tier) else { return false };
    rule.is_by_tier() && (rule.limit(tier).is_some() || rule.is_unlimited(tier))
}

/// The number of quota records of each tier, in order; `None` if it could not be counted in time.
async fn callers(state: &AdminState, names: Vec<(String, String)>) -> Vec<Option<u64>> {
    let Some(db) = state.control.db() else { return Vec::new() };
    let mut counts = Vec::new();
    let counting = async {
        for (domain, tier) in names {
            let member = Some(("tier".to_owned(), tier));
            let filter = RecordFilter { domain: Some(domain), member, ..RecordFilter::new(RecordKind::Quota) };
            counts.push(db.count(&filter).await.ok());
        }
    };
    // Partial counts are returned.
    let _ = tokio::time::timeout(COUNT_TIMEOUT, counting).await;
    counts
}
