//! The rules in force, page by page.

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
use tollgate_rules::model::{Policy, RuleMode};

use crate::counters::Counters;
use crate::words;

/// Which of the rules or domains.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    domain: Option<String>,
    offset: Option<usize>,
    limit: Option<usize>,
}

/// A part of a list.
#[derive(Serialize)]
struct Page<T> {
    /// Which of the rulesets since the start.
    generation: u64,
    /// How long the list is.
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
    mode: String,
    policy: &'static str,
    /// By tier. A tier that the rule does not apply to is not here.
    limits: Vec<TierItem<'r>>,
    file: &'r str,
    line: usize,
}

#[derive(Serialize)]
struct TierItem<'r> {
    tier: &'r str,
    limit: String,
}

/// The most items of a page.
const MOST_ITEMS: usize = 1_000;
/// How many a page has that does not say.
const ITEMS: usize = 100;
/// The most lines of the text.
const MOST_LINES: usize = 10_000;

type Limits = Arc<Limiter<Counters>>;
/// What is wrong with what was asked.
type Refusal = (StatusCode, String);

pub(super) fn routes(limiter: Limits) -> Router {
    Router::new()
        .route("/admin/v1/domains", get(domains))
        .route("/admin/v1/rules", get(rules))
        .route("/rlconfig", get(text))
        .with_state(limiter)
}

async fn domains(State(limiter): State<Limits>, Query(asked): Query<Asked>) -> Result<Response, Refusal> {
    let ruleset = limiter.rules();
    let domains = asked.domains(&ruleset)?.iter();
    asked.page(&ruleset, domains.collect(), DomainItem::new)
}

async fn rules(State(limiter): State<Limits>, Query(asked): Query<Asked>) -> Result<Response, Refusal> {
    let ruleset = limiter.rules();
    let domains = asked.domains(&ruleset)?.iter();
    let rules = domains.flat_map(|domain| domain.rules().iter().map(move |rule| (domain, rule)));
    asked.page(&ruleset, rules.collect(), |(domain, rule)| RuleItem::new(domain, rule))
}

/// What envoyproxy/ratelimit shows under this name: a limit a line.
async fn text(State(limiter): State<Limits>) -> String {
    let ruleset = limiter.rules();
    let rules = || ruleset.domains().iter().flat_map(|domain| domain.rules().iter().map(move |rule| (domain, rule)));
    let mut text = String::new();
    // Writing to a String can't fail.
    for (domain, rule) in rules().take(MOST_LINES) {
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
        let _ = writeln!(text, " ({}, {})", mode(rule.mode()), policy(rule.policy()));
    }
    let all = rules().count();
    if all > MOST_LINES {
        let _ = writeln!(text, "and {} more: /admin/v1/rules has all of them, page by page", all - MOST_LINES);
    }
    text
}

impl Asked {
    /// The domains that are asked for.
    fn domains<'r>(&self, ruleset: &'r Ruleset) -> Result<&'r [Domain], Refusal> {
        let Some(name) = &self.domain else { return Ok(ruleset.domains()) };
        let found = ruleset.domain_number(Some(name)).and_then(|number| ruleset.domains().get(number..=number));
        found
            .ok_or_else(|| (StatusCode::NOT_FOUND, "there is no such domain: /admin/v1/domains names all\n".to_owned()))
    }

    /// The part of a list that is asked for. Only that part is turned into items.
    fn page<T, I: Serialize>(
        &self,
        ruleset: &Ruleset,
        list: Vec<T>,
        item: impl Fn(T) -> I,
    ) -> Result<Response, Refusal> {
        let (offset, limit) = (self.offset.unwrap_or(0), self.limit.unwrap_or(ITEMS));
        if !(1..=MOST_ITEMS).contains(&limit) {
            return Err((StatusCode::BAD_REQUEST, format!("limit={limit}: write a number from 1 to {MOST_ITEMS}\n")));
        }
        let total = list.len();
        let items = list.into_iter().skip(offset).take(limit).map(item).collect();
        Ok(Json(Page { generation: ruleset.generation(), total, offset, items }).into_response())
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
        let limits = domain.tiers().iter().zip(0..).filter_map(|(tier, number)| {
            let limit = match rule.limit(number) {
                Some(limit) => words::limit(limit),
                None if rule.is_unlimited(number) => "unlimited".to_owned(),
                None => return None,
            };
            Some(TierItem { tier: &tier.name, limit })
        });
        let place = rule.place();
        RuleItem {
            domain: domain.name(),
            name: rule.name(),
            mode: mode(rule.mode()),
            policy: policy(rule.policy()),
            limits: limits.collect(),
            file: &place.file,
            line: place.line,
        }
    }
}

pub(super) fn mode(mode: RuleMode) -> String {
    match mode {
        RuleMode::Enforce => "enforce".to_owned(),
        RuleMode::Share { of_10_000 } => {
            let (whole, parts) = (of_10_000 / 100, of_10_000 % 100);
            let share = format!("{whole}.{parts:02}");
            format!("enforce: {}%", share.trim_end_matches('0').trim_end_matches('.'))
        }
        RuleMode::AnyOf => "any_of".to_owned(),
        RuleMode::Shadow => "shadow".to_owned(),
        RuleMode::Soft => "soft".to_owned(),
        RuleMode::Off => "off".to_owned(),
    }
}

fn policy(policy: Policy) -> &'static str {
    match policy {
        Policy::Comfort => "comfort",
        Policy::Security => "security",
        Policy::Cost => "cost",
        Policy::Quota => "quota",
    }
}
