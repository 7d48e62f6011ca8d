//! What each rule does, page by page.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use tollgate::{Algorithm, Limit, Rule, Ruleset};
use tollgate_observe::{Activity, History, Sparkline, TierActivity};
use tollgate_rules::Domain;

use super::{See, Told, hundredths, seconds};
use crate::admin::api::extract::Query;
use crate::admin::api::{Answer, Asked, names, records};
use crate::admin::rules::mode;
use crate::admin::who::Scope;
use crate::words;

/// Which rules.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listed {
    domain: Option<String>,
    search: Option<String>,
    offset: Option<usize>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct Page<'r> {
    /// Which of the rulesets since the start.
    generation: u64,
    /// How many rules there are that are meant.
    total: usize,
    offset: usize,
    rows: Vec<Row<'r>>,
}

#[derive(Serialize)]
struct Row<'r> {
    #[serde(flatten)]
    numbers: Numbers<'r>,
    key: Vec<&'r str>,
    limits: Vec<TierLimit<'r>>,
    sparkline: Line,
    tiers: Vec<Tier>,
}

/// What of a row changes as requests come.
#[derive(Serialize)]
pub(super) struct Numbers<'r> {
    domain: &'r str,
    rule: &'r str,
    mode: String,
    /// Of the fullest counter.
    utilisation: f64,
    rates: Told<f64>,
    totals: Told<u64>,
}

#[derive(Serialize)]
struct TierLimit<'r> {
    tier: &'r str,
    limit: String,
}

#[derive(Serialize)]
struct Line {
    step_seconds: f64,
    allow: Vec<f64>,
    deny: Vec<f64>,
    would_deny: Vec<f64>,
}

#[derive(Serialize)]
struct Tier {
    tier: String,
    utilisation: f64,
    /// The fewest units that any caller had left.
    remaining: Option<u64>,
    /// `null` where callers have limits of their own.
    limit: Option<u64>,
    rates: Told<f64>,
}

/// The tier of a limit that is the same for all.
const ALL: &str = "default";

/// What each rule does: rates, totals, how full its fullest counter is
#[utoipa::path(
    get, path = "/admin/v1/activity", operation_id = "activity", tag = "seeing",
    params(
        ("domain" = Option<String>, Query, description = "Of this domain alone"),
        ("search" = Option<String>, Query, description = "Part of a rule's name, in any case"),
        ("offset" = Option<u64>, Query, description = "How many rules to leave out"),
        ("limit" = Option<u64>, Query, description = "Rules of a page: 100, at most 1000")
    ),
    responses((status = 200, body = Object), (status = "default", response = crate::admin::api::openapi::Failed))
)]
pub(crate) async fn list(State(see): State<Arc<See>>, asked: Asked, Query(listed): Query<Listed>) -> Answer {
    asked.may(Scope::Read)?;
    let (most, offset) = (records::most(listed.limit)?, listed.offset.unwrap_or(0));
    let rules = see.limiter().rules();
    if let Some(domain) = &listed.domain {
        names::domain(&rules, Some(domain))?;
    }
    let searched = listed.search.as_deref().unwrap_or_default().to_lowercase();
    let meant: Vec<_> = all(&rules)
        .filter(|(domain, rule)| {
            listed.domain.as_ref().is_none_or(|named| named == domain.name())
                && (searched.is_empty() || rule.name().to_lowercase().contains(&searched))
        })
        .collect();
    let history = see.sight.pulse.history();
    let page = meant.iter().skip(offset).take(most);
    let rows = page.map(|(domain, rule)| Row::new(domain, rule, &history)).collect();
    drop(history);
    Ok(Json(Page { generation: rules.generation(), total: meant.len(), offset, rows }).into_response())
}

/// Every rule, with its domain.
pub(super) fn all(rules: &Ruleset) -> impl Iterator<Item = (&Domain, &Rule)> {
    rules.domains().iter().flat_map(|domain| domain.rules().iter().map(move |rule| (domain, rule)))
}

impl<'r> Row<'r> {
    fn new(domain: &'r Domain, rule: &'r Rule, history: &History) -> Row<'r> {
        let mut activity = history.rule(domain.name(), rule.name());
        // As the domain has them, and what stands for tiers after those.
        let place = |tier: &TierActivity| domain.tiers().iter().position(|known| known.name == tier.tier);
        activity.tiers.sort_by_key(|tier| place(tier).unwrap_or(usize::MAX));
        Row {
            key: rule.names().collect(),
            limits: limits(domain, rule),
            sparkline: Line::new(history.sparkline(domain.name(), rule.name())),
            tiers: activity.tiers.iter().map(|tier| Tier::new(domain, rule, tier)).collect(),
            numbers: Numbers::of(domain, rule, &activity),
        }
    }
}

impl<'r> Numbers<'r> {
    pub(super) fn new(domain: &'r Domain, rule: &'r Rule, history: &History) -> Numbers<'r> {
        Numbers::of(domain, rule, &history.rule(domain.name(), rule.name()))
    }

    fn of(domain: &'r Domain, rule: &'r Rule, activity: &Activity) -> Numbers<'r> {
        Numbers {
            domain: domain.name(),
            rule: rule.name(),
            mode: mode(rule.mode()).replace(':', ""),
            utilisation: activity.utilisation(),
            rates: Told::rates(activity.rates),
            totals: Told::totals(activity.totals),
        }
    }

    /// Whether anybody has met the rule yet.
    pub(super) fn is_met(&self) -> bool {
        [self.totals.allow, self.totals.deny, self.totals.would_deny] != [0; 3]
    }

    /// By what one who was told of the row knows it again.
    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let Numbers { domain: _, rule: _, mode, utilisation, rates, totals } = self;
        mode.hash(&mut hasher);
        [*utilisation, rates.allow, rates.deny, rates.would_deny].map(f64::to_bits).hash(&mut hasher);
        [totals.allow, totals.deny, totals.would_deny].hash(&mut hasher);
        hasher.finish()
    }

    pub(super) fn name(&self) -> (&'r str, &'r str) {
        (self.domain, self.rule)
    }
}

impl Line {
    fn new(Sparkline { allow, deny, would_deny }: Sparkline) -> Line {
        let short = |line: Vec<f64>| line.into_iter().map(hundredths).collect();
        let step_seconds = seconds(Sparkline::STEP);
        Line { step_seconds, allow: short(allow), deny: short(deny), would_deny: short(would_deny) }
    }
}

impl Tier {
    fn new(domain: &Domain, rule: &Rule, TierActivity { tier, activity }: &TierActivity) -> Tier {
        let mut limits = domain.tiers().iter().zip(0..).filter_map(|(known, number)| {
            let limit = rule.limit(number)?;
            (!rule.is_by_tier() && tier == ALL || known.name == *tier).then_some(limit)
        });
        let limit = limits.next().map(Limit::amount);
        Tier {
            tier: tier.clone(),
            utilisation: activity.utilisation(),
            remaining: activity.peak.map(|peak| peak.left).or(limit),
            limit,
            rates: Told::rates(activity.rates),
        }
    }
}

/// What each tier is held to; one entry where that is the same for all.
fn limits<'r>(domain: &'r Domain, rule: &'r Rule) -> Vec<TierLimit<'r>> {
    let by_tier = domain.tiers().iter().zip(0..).filter_map(|(tier, number)| {
        let limit = match rule.limit(number) {
            Some(limit) => short(limit),
            None if rule.is_unlimited(number) => "unlimited".to_owned(),
            None => return None,
        };
        Some(TierLimit { tier: &tier.name, limit })
    });
    if rule.is_by_tier() {
        return by_tier.collect();
    }
    by_tier.take(1).map(|one| TierLimit { tier: ALL, ..one }).collect()
}

/// `100/minute`, `20 concurrent`.
fn short(limit: &Limit) -> String {
    match limit.algorithm() {
        Algorithm::Concurrency => format!("{} concurrent", limit.amount()),
        _ => format!("{}/{}", limit.amount(), words::period(limit.period())),
    }
}
