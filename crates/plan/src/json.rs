//! A report as JSON, for the admin API and the command line.

use serde_json::{Map, Value, json};
use tollgate_records::Rfc3339;

use crate::report::{CallerImpact, Impact, PlanExample, PlanReport, RuleImpact, TierImpact};

/// How callers are named.
#[derive(Clone, Copy)]
pub enum NameForm<'f> {
    /// As they were recorded, with examples of their requests.
    Recorded,
    /// In another form, without examples.
    Hidden(&'f dyn Fn(&str) -> String),
}

/// The report as JSON.
pub fn report_json(report: &PlanReport, names: NameForm<'_>) -> Value {
    let mut json = impact_json(&report.all);
    json["from"] = json!(Rfc3339(report.from));
    json["to"] = json!(Rfc3339(report.to));
    json["records"] = json!(report.records);
    json["callers"] = json!({"all": report.callers, "changed": report.changed_callers});
    json["rules"] = report.rules.iter().map(|rule| rule_json(rule, names)).collect();
    json["tiers"] = report.tiers.iter().map(tier_json).collect();
    json["worst_callers"] = report.worst.iter().map(|caller| caller_json(caller, names)).collect();
    json["worst_paid_caller"] = report.worst_paid.as_ref().map(|caller| caller_json(caller, names)).into();
    let uncertain = report.uncertain.iter().map(|one| json!({"domain": one.domain, "rule": one.rule, "why": one.why}));
    json["uncertain"] = uncertain.collect();
    json["undecided"] = json!(report.undecided);
    json
}

fn rule_json(one: &RuleImpact, names: NameForm<'_>) -> Value {
    let mut json = impact_json(&one.impact);
    json["domain"] = json!(one.domain);
    json["rule"] = json!(one.rule);
    json["callers"] = json!(one.callers);
    let examples = if let NameForm::Recorded = names { one.examples.as_slice() } else { &[] };
    json["examples"] = examples.iter().map(example_json).collect();
    json
}

fn tier_json(one: &TierImpact) -> Value {
    let mut json = impact_json(&one.impact);
    json["domain"] = json!(one.domain);
    json["tier"] = json!(one.tier);
    json
}

fn caller_json(one: &CallerImpact, names: NameForm<'_>) -> Value {
    let name = match names {
        NameForm::Recorded => one.caller.clone(),
        NameForm::Hidden(form) => form(&one.caller),
    };
    let mut json = impact_json(&one.impact);
    json["domain"] = json!(one.domain);
    json["caller"] = json!(name);
    json["tier"] = json!(one.tier);
    json["paid"] = json!(one.is_paid);
    json
}

fn impact_json(impact: &Impact) -> Value {
    let Impact { requests, refused_before, refused_after, newly_refused, newly_admitted } = *impact;
    json!({
        "requests": requests,
        "refused_before": refused_before,
        "refused_after": refused_after,
        "newly_refused": newly_refused,
        "newly_admitted": newly_admitted,
        "newly_refused_percent": impact.newly_refused_bps() as f64 / 100.0,
    })
}

fn example_json(example: &PlanExample) -> Value {
    let attributes: Map<_, _> = example.attributes.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    json!({
        "at": Rfc3339(example.at),
        "attributes": attributes,
        "admitted": example.is_admitted,
        "retry_after": example.wait.map(|wait| wait.as_micros() as f64 / 1e6),
    })
}
