//! The rules in force, page by page.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tollgate::{Limiter, Rule, Ruleset};
use tollgate_rules::Domain;

use tollgate_observe::display;
use tollgate_store::Counters;

/// Selects a page of rules or domains.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesQuery {
    domain: Option<String>,
    offset: Option<usize>,
    limit: Option<usize>,
}

/// A page of a list.
#[derive(Serialize)]
struct OffsetPage<T> {
    /// The generation of the rules.
    generation: u64,
    /// The length of the list.
    total: usize,
    offset: usize,
    items: Vec<T>,
}

#[derive(Serialize)]
struct DomainItem<'r> {
    name: &'r str,
    entity: Option<&'r str>,
    tiers: Vec<&'r str>,
    rules: usize,
}

#[derive(Serialize)]
struct RuleItem<'r> {
    domain: &'r str,
    name: &'r str,
    mode: Cow<'static, str>,
    policy: &'static str,
    /// What the limits mean in several regions.
    region: Cow<'static, str>,
    /// By tier; tiers without a limit are omitted.
    limits: Vec<TierItem<'r>>,
    file: String,
    line: usize,
}

#[derive(Serialize)]
struct TierItem<'r> {
    tier: &'r str,
    limit: String,
}

/// Items of a page.
const MAX_ITEMS: usize = 1_000;
/// Items of a page by default.
const DEFAULT_ITEMS: usize = 100;
/// Lines of the text.
const MAX_LINES: usize = 10_000;

type SharedLimiter = Arc<Limiter<Counters>>;
/// A rejected query.
type QueryError = (StatusCode, String);

pub(super) fn routes(limiter: SharedLimiter) -> Router {
    Router::new()
        .route("/admin/v1/domains", get(domains))
        .route("/admin/v1/rules", get(rules))
        .route("/rlconfig", get(text))
        .with_state(limiter)
}

async fn domains(
    State(limiter): State<SharedLimiter>,
    Query(query): Query<RulesQuery>,
) -> Result<Response, QueryError> {
    let ruleset = limiter.rules();
    let domains = query.domains(&ruleset)?.iter();
    query.page(&ruleset, domains.collect(), DomainItem::new)
}

async fn rules(State(limiter): State<SharedLimiter>, Query(query): Query<RulesQuery>) -> Result<Response, QueryError> {
    let ruleset = limiter.rules();
    let domains = query.domains(&ruleset)?.iter();
    let rules = domains.flat_map(|domain| domain.rules().iter().map(move |rule| (domain, rule)));
    query.page(&ruleset, rules.collect(), |(domain, rule)| RuleItem::new(domain, rule))
}

/// The page of envoyproxy/ratelimit with this name: one limit per line.
async fn text(State(limiter): State<SharedLimiter>) -> String {
    let ruleset = limiter.rules();
    let rules = || ruleset.domains().iter().flat_map(|domain| domain.rules().iter().map(move |rule| (domain, rule)));
    let mut text = String::new();
    // Writing to a String can't fail.
    for (domain, rule) in rules().take(MAX_LINES) {
        let limits = RuleItem::new(domain, rule).limits;
        let _ = write!(text, "{}.{}:", domain.name(), rule.name());
        match limits.split_first() {
            Some((first, others)) if others.iter().all(|other| other.limit == first.limit) => {
                let _ = write!(text, " {}", first.limit);
            }
            _ => {
                for TierItem { tier, limit } in &limits {
                    let _ = write!(text, " {tier}: {limit};");
                }
            }
        }
        let _ = writeln!(text, " ({}, {})", rule.mode().name(), rule.policy().name());
    }
    let all = rules().count();
    if all > MAX_LINES {
        let _ = writeln!(text, "and {} more; /admin/v1/rules lists all", all - MAX_LINES);
    }
    text
}

impl RulesQuery {
    /// The selected domains.
    fn domains<'r>(&self, ruleset: &'r Ruleset) -> Result<&'r [Domain], QueryError> {
        let Some(name) = &self.domain else { return Ok(ruleset.domains()) };
        let found = ruleset.domain_number(Some(name)).and_then(|number| ruleset.domains().get(number..=number));
        found.ok_or_else(|| (StatusCode::NOT_FOUND, "no such domain; /admin/v1/domains lists all\n".to_owned()))
    }

    /// The selected page. Only its elements are converted to items.
    fn page<T, I: Serialize>(
        &self,
        ruleset: &Ruleset,
        list: Vec<T>,
        item: impl Fn(T) -> I,
    ) -> Result<Response, QueryError> {
        let (offset, limit) = (self.offset.unwrap_or(0), self.limit.unwrap_or(DEFAULT_ITEMS));
        if !(1..=MAX_ITEMS).contains(&limit) {
            return Err((StatusCode::BAD_REQUEST, format!("limit={limit}: must be between 1 and {MAX_ITEMS}\n")));
        }
        let total = list.len();
        let items = list.into_iter().skip(offset).take(limit).map(item).collect();
        Ok(Json(OffsetPage { generation: ruleset.generation(), total, offset, items }).into_response())
    }
}

impl DomainItem<'_> {
    fn new(domain: &Domain) -> DomainItem<'_> {
        DomainItem {
            name: domain.name(),
            entity: domain.entity(),
            tiers: domain.tiers().iter().map(|tier| tier.name.as_str()).collect(),
            rules: domain.rules().len(),
        }
    }
}

impl<'r> RuleItem<'r> {
    fn new(domain: &'r Domain, rule: &'r Rule) -> RuleItem<'r> {
        // A rule without tiers lists the same limit for each of them.
        let tiers = domain.tiers().iter().map(|tier| tier.name.as_str()).zip(0..);
        let rows: Vec<_> = if rule.limit_by().is_some() { rule.rows(domain).collect() } else { tiers.collect() };
        let limits = rows.into_iter().filter_map(|(tier, row)| {
            let limit = match rule.whole_limit(row) {
                Some(limit) => display::limit(limit),
                None if rule.is_unlimited(row) => "unlimited".to_owned(),
                None => return None,
            };
            Some(TierItem { tier, limit })
        });
        let place = rule.location();
        RuleItem {
            domain: domain.name(),
            name: rule.name(),
            mode: rule.mode().name(),
            policy: rule.policy().name(),
            region: rule.region().text(),
            limits: limits.collect(),
            file: place.file.to_string(),
            line: place.line,
        }
    }
}
