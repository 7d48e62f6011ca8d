//! Activity of rules.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use tollgate::{Algorithm, Limit, Rule, Ruleset};
use tollgate_observe::{Activity, History, Sparkline, TierActivity};
use tollgate_rules::Domain;

use super::{AdminState, ResultsBody, hundredths, seconds};
use crate::api::extract::Query;
use crate::api::{ApiResult, RequestContext, names, records};
use crate::scopes::AccessScope;
use tollgate_observe::display;

/// Selects rules.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActivityQuery {
    domain: Option<String>,
    search: Option<String>,
    offset: Option<usize>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct ActivityPage<'r> {
    /// The generation of the rules.
    generation: u64,
    /// The number of selected rules.
    total: usize,
    offset: usize,
    rows: Vec<ActivityRow<'r>>,
}

#[derive(Serialize)]
pub(super) struct ActivityRow<'r> {
    #[serde(flatten)]
    numbers: RuleNumbers<'r>,
    key: Vec<&'r str>,
    limits: Vec<TierLimit<'r>>,
    sparkline: SparklineBody,
    tiers: Vec<TierBody>,
}

/// The numbers of a row that change with traffic.
#[derive(Serialize)]
pub(super) struct RuleNumbers<'r> {
    domain: &'r str,
    rule: &'r str,
    mode: String,
    /// The utilisation of the fullest counter.
    utilisation: f64,
    rates: ResultsBody<f64>,
    totals: ResultsBody<u64>,
}

#[derive(Serialize)]
struct TierLimit<'r> {
    tier: &'r str,
    limit: String,
}

#[derive(Serialize)]
struct SparklineBody {
    step_seconds: f64,
    allow: Vec<f64>,
    deny: Vec<f64>,
    would_deny: Vec<f64>,
}

#[derive(Serialize)]
struct TierBody {
    tier: String,
    utilisation: f64,
    /// The fewest remaining units of any caller.
    remaining: Option<u64>,
    /// `null` for overrides.
    limit: Option<u64>,
    rates: ResultsBody<f64>,
}

/// Show the activity of rules: rates, totals, utilisation
#[utoipa::path(
    get, path = "/admin/v1/activity", operation_id = "activity", tag = "seeing",
    params(
        ("domain" = Option<String>, Query, description = "Only this domain"),
        ("search" = Option<String>, Query, description = "Part of a rule's name, case-insensitive"),
        ("offset" = Option<u64>, Query, description = "The number of rules to skip"),
        ("limit" = Option<u64>, Query, description = "Rules of a page: 1 to 1000, 100 by default")
    ),
    responses((status = 200, body = Object), (status = "default", response = crate::api::description::Failed))
)]
pub(crate) async fn list(
    State(state): State<Arc<AdminState>>,
    context: RequestContext,
    Query(query): Query<ActivityQuery>,
) -> ApiResult {
    context.require(AccessScope::Read)?;
    let (page_size, offset) = (records::page_size(query.limit)?, query.offset.unwrap_or(0));
    let rules = state.limiter().rules();
    if let Some(domain) = &query.domain {
        names::domain(&rules, Some(domain))?;
    }
    let search = query.search.as_deref().unwrap_or_default().to_lowercase();
    let selected: Vec<_> = all(&rules)
        .filter(|(domain, rule)| {
            query.domain.as_ref().is_none_or(|named| named == domain.name())
                && (search.is_empty() || rule.name().to_lowercase().contains(&search))
        })
        .collect();
    let history = state.observability.sampler.history();
    let page = selected.iter().skip(offset).take(page_size);
    let rows = page.map(|(domain, rule)| ActivityRow::new(domain, rule, &history)).collect();
    drop(history);
    Ok(Json(ActivityPage { generation: rules.generation(), total: selected.len(), offset, rows }).into_response())
}

/// Every rule, with its domain.
pub(super) fn all(rules: &Ruleset) -> impl Iterator<Item = (&Domain, &Rule)> {
    rules.domains().iter().flat_map(|domain| domain.rules().iter().map(move |rule| (domain, rule)))
}

impl<'r> ActivityRow<'r> {
    pub(super) fn new(domain: &'r Domain, rule: &'r Rule, history: &History) -> ActivityRow<'r> {
        let mut activity = history.rule(domain.name(), rule.name());
        // In the order of the domain, placeholders last.
        let place = |tier: &TierActivity| rule.rows(domain).position(|(name, _)| name == tier.tier);
        activity.tiers.sort_by_key(|tier| place(tier).unwrap_or(usize::MAX));
        ActivityRow {
            key: rule.names().collect(),
            limits: limits(domain, rule),
            sparkline: SparklineBody::new(history.sparkline(domain.name(), rule.name())),
            tiers: activity.tiers.iter().map(|tier| TierBody::new(domain, rule, tier)).collect(),
            numbers: RuleNumbers::from_activity(domain, rule, &activity),
        }
    }
}

impl<'r> RuleNumbers<'r> {
    pub(super) fn new(domain: &'r Domain, rule: &'r Rule, history: &History) -> RuleNumbers<'r> {
        RuleNumbers::from_activity(domain, rule, &history.rule(domain.name(), rule.name()))
    }

    fn from_activity(domain: &'r Domain, rule: &'r Rule, activity: &Activity) -> RuleNumbers<'r> {
        RuleNumbers {
            domain: domain.name(),
            rule: rule.name(),
            mode: rule.mode().name().replace(':', ""),
            utilisation: activity.utilisation(),
            rates: ResultsBody::rates(activity.rates),
            totals: ResultsBody::totals(activity.totals),
        }
    }

    /// Whether the rule has had traffic.
    pub(super) fn has_traffic(&self) -> bool {
        [self.totals.allow, self.totals.deny, self.totals.would_deny] != [0; 3]
    }

    /// A digest to detect changes of the row.
    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let RuleNumbers { domain: _, rule: _, mode, utilisation, rates, totals } = self;
        mode.hash(&mut hasher);
        [*utilisation, rates.allow, rates.deny, rates.would_deny].map(f64::to_bits).hash(&mut hasher);
        [totals.allow, totals.deny, totals.would_deny].hash(&mut hasher);
        hasher.finish()
    }

    pub(super) fn name(&self) -> (&'r str, &'r str) {
        (self.domain, self.rule)
    }
}

impl SparklineBody {
    fn new(Sparkline { allow, deny, would_deny }: Sparkline) -> SparklineBody {
        let short_limit = |line: Vec<f64>| line.into_iter().map(hundredths).collect();
        let step_seconds = seconds(Sparkline::STEP);
        SparklineBody {
            step_seconds,
            allow: short_limit(allow),
            deny: short_limit(deny),
            would_deny: short_limit(would_deny),
        }
    }
}

impl TierBody {
    fn new(domain: &Domain, rule: &Rule, TierActivity { tier, activity }: &TierActivity) -> TierBody {
        let row = rule.rows(domain).find(|(name, _)| name == tier);
        let limit = row.and_then(|(_, row)| rule.limit(row)).map(Limit::amount);
        TierBody {
            tier: tier.clone(),
            utilisation: activity.utilisation(),
            remaining: activity.peak.map(|peak| peak.left).or(limit),
            limit,
            rates: ResultsBody::rates(activity.rates),
        }
    }
}

/// The limit of each tier or value; one entry if it is the same for all.
fn limits<'r>(domain: &'r Domain, rule: &'r Rule) -> Vec<TierLimit<'r>> {
    let rows = rule.rows(domain).filter_map(|(tier, row)| {
        let limit = match rule.limit(row) {
            Some(limit) => short_limit(limit),
            None if rule.is_unlimited(row) => "unlimited".to_owned(),
            None => return None,
        };
        Some(TierLimit { tier, limit })
    });
    rows.collect()
}

/// `100/minute`, `20 concurrent`.
fn short_limit(limit: &Limit) -> String {
    match limit.algorithm() {
        Algorithm::Concurrency => format!("{} concurrent", limit.amount()),
        _ => format!("{}/{}", limit.amount(), display::period(limit.period())),
    }
}
