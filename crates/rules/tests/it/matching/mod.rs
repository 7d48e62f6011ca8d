//! Which rules apply to a request, with which keys and units: files and requests as texts, answers as texts.

mod addresses;
mod asks;
mod clauses;
mod costs;
mod count;
mod endings;
mod explain;
mod forms;
mod keys;
mod layer;
mod limit_by;
mod modes;
mod random_rules;
mod random_trees;
mod requested;
mod scale;
mod selected;
mod tenants;
mod tiers;
mod tree;

use std::fmt::Write as _;

use tollgate_core::{Algorithm, ClaimId, Descriptor, Mode, Request, Value};
use tollgate_rules::{
    AppliedTerms, LoadOptions, RequestError, ResolvedRequest, RuleFile, RuleProblem, Ruleset, load_sources,
};

/// A request in the notation of the tests: descriptors separated by `|`, their entries by `,`. An entry is
/// `name=value`, or `hits N`; a part before the first descriptor that is `cost N |` is the cost of the whole.
pub(crate) struct TestRequest {
    cost: u64,
    descriptors: Vec<TestDescriptor>,
}

struct TestDescriptor {
    entries: Vec<(String, String)>,
    hits: Option<u64>,
}

impl TestRequest {
    pub(crate) fn new(text: &str) -> TestRequest {
        let mut parsed = TestRequest { cost: 1, descriptors: Vec::new() };
        for part in text.split('|').map(str::trim).filter(|part| !part.is_empty()) {
            if let Some(cost) = part.strip_prefix("cost ") {
                parsed.cost = cost.parse().unwrap();
                continue;
            }
            let mut descriptor = TestDescriptor { entries: Vec::new(), hits: None };
            for entry in part.split(", ") {
                match (entry.split_once('='), entry.strip_prefix("hits ")) {
                    (Some((name, value)), _) => descriptor.entries.push((name.to_owned(), value.to_owned())),
                    (None, Some(hits)) => descriptor.hits = Some(hits.parse().unwrap()),
                    (None, None) => panic!("{entry:?} is no entry"),
                }
            }
            parsed.descriptors.push(descriptor);
        }
        parsed
    }

    pub(crate) fn from_entries(entries: Vec<Vec<(String, String)>>) -> TestRequest {
        let descriptors = entries.into_iter().map(|entries| TestDescriptor { entries, hits: None });
        TestRequest { cost: 1, descriptors: descriptors.collect() }
    }

    /// Calls `with` with the request.
    pub(crate) fn with<T>(&self, then: impl FnOnce(&Request<'_>) -> T) -> T {
        let texts: Vec<Vec<(&str, &str)>> = self
            .descriptors
            .iter()
            .map(|descriptor| descriptor.entries.iter().map(|(name, value)| (&**name, &**value)).collect())
            .collect();
        let descriptors: Vec<Descriptor<'_>> = texts
            .iter()
            .zip(&self.descriptors)
            .map(|(entries, descriptor)| Descriptor { hits: descriptor.hits, ..Descriptor::new(entries) })
            .collect();
        then(&Request { domain: None, descriptors: &descriptors, cost: self.cost, ..Request::default() })
    }
}

/// The rules of a valid file.
pub(crate) fn rules(text: &str) -> Ruleset {
    compile(text).unwrap_or_else(|problems| panic!("{problems:#?}\n{text}"))
}

pub(crate) fn compile(text: &str) -> Result<Ruleset, Vec<RuleProblem>> {
    let source = RuleFile { name: "rules.yaml".to_owned(), text: text.to_owned() };
    Ruleset::compile(load_sources(&[source], &LoadOptions::default())?.domains, 1)
}

/// The limits that apply to a request, one a line in order: `rule(values) amount/period`, and unless they are the
/// defaults `×units`, the mode, `@tier`, `burst N`.
#[track_caller]
pub(crate) fn check(file: &str, rows: &[(&str, &[&str])]) {
    let rules = rules(file);
    for (request, expected) in rows {
        let met = met(&rules, request).unwrap_or_else(|error| panic!("{request}: {error}"));
        assert_eq!(met, *expected, "{request}");
    }
}

pub(crate) fn met(rules: &Ruleset, request: &str) -> Result<Vec<String>, RequestError> {
    TestRequest::new(request).with(|request| Ok(describe(&rules.resolve(request, ClaimId(1))?)))
}

pub(crate) fn describe(resolved: &ResolvedRequest<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    for (at, (charge, applied)) in resolved.claim.charges.iter().zip(&resolved.applied).enumerate() {
        assert_eq!(charge.mode, applied.mode);
        let limit = charge.limit;
        let mut line = format!("{}({})", resolved.rule(at).unwrap().name(), values(charge.key.values()));
        let _ = match limit.algorithm() {
            Algorithm::Concurrency => write!(line, " {} concurrent", limit.amount()),
            _ => write!(line, " {}/{}s", limit.amount(), limit.period().span().as_micros() / 1_000_000),
        };
        if let Algorithm::Bucket { burst, .. } = limit.algorithm() {
            let _ = write!(line, " burst {burst}");
        }
        let units = match limit.algorithm() {
            // Any number except 0 is one hold.
            Algorithm::Concurrency => charge.units.min(1),
            _ => charge.units,
        };
        if units != 1 {
            let _ = write!(line, " ×{units}");
        }
        line.push_str(match charge.mode {
            Mode::Enforce => "",
            Mode::AnyOf => " any-of",
            Mode::Shadow => " shadow",
            Mode::Soft => " soft",
        });
        line.push_str(&tier(resolved, applied.terms));
        lines.push(line);
    }
    for applied in &resolved.unlimited {
        let name = resolved.domain.rules()[applied.rule.unwrap() as usize].name();
        lines.push(format!("{name} unlimited{}", tier(resolved, applied.terms)));
    }
    lines
}

fn values(values: &[Value<'_>]) -> String {
    let one = |value: &Value<'_>| match value {
        Value::Absent => "-".to_owned(),
        other => other.to_string(),
    };
    values.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The first tier is the default one.
fn tier(resolved: &ResolvedRequest<'_>, terms: AppliedTerms) -> String {
    match terms {
        AppliedTerms::Tier(0) => String::new(),
        AppliedTerms::Requested(_) => " requested".to_owned(),
        AppliedTerms::Override(_) => " overridden".to_owned(),
        AppliedTerms::Tier(row) => match resolved.domain.tiers().get(usize::from(row)) {
            Some(tier) => format!(" @{}", tier.name),
            None => format!(" row {row}"),
        },
    }
}
