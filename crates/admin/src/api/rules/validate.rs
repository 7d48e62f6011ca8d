//! Validation of a rule before it is written: compiled with the files in force and the whole layer.

use std::sync::Arc;

use tollgate::{Layer, LayerMode, LayerRule, RuleProblem, Severity};
use tollgate_control::RecordName;
use tollgate_records::FieldFault;
use tollgate_records::documents::{RuleDocument, RuleState};

use super::super::{Api, ApiProblem};
use crate::problem::rule_fault;
use crate::store_of_record::ControlPlane;

/// Validates a version of a rule and returns its warnings. Compiling runs on a blocking thread.
pub(super) async fn validate(
    api: &Api,
    name: &RecordName,
    document: &RuleDocument,
) -> Result<Vec<FieldFault>, ApiProblem> {
    let (control, rule) = (api.clone(), layer_rule(name, document));
    let validate = tokio::task::spawn_blocking(move || compile(&control, &rule)).await;
    validate.unwrap_or_else(|_| {
        let detail = "the rule could not be validated; see the log";
        Err(ApiProblem::new(http::StatusCode::INTERNAL_SERVER_ERROR, "not_tried", detail))
    })
}

/// The same on this thread.
pub(super) fn validate_now(
    api: &Api,
    name: &RecordName,
    document: &RuleDocument,
) -> Result<Vec<FieldFault>, ApiProblem> {
    compile(api, &layer_rule(name, document))
}

/// The rule as it will be in force; one that will not be, as if it were.
fn layer_rule(name: &RecordName, document: &RuleDocument) -> LayerRule {
    let mode = match document.state {
        RuleState::Draft | RuleState::Pending | RuleState::Active => None,
        RuleState::Shadow => Some(LayerMode::Shadow),
        RuleState::Off => Some(LayerMode::Off),
    };
    let rule = document.rule.get().to_owned();
    LayerRule { domain: name.domain.clone(), name: name.name.clone(), rule, mode, version: Some(document.version) }
}

fn compile(control: &Arc<ControlPlane>, rule: &LayerRule) -> Result<Vec<FieldFault>, ApiProblem> {
    let before = control.current_layer();
    let errors = match control.rules().validate(&with(&before, rule)) {
        Ok((_, warnings)) => return Ok(warnings_of(&warnings, rule)),
        Err(problems) => problems,
    };
    // Other rules may no longer fit the files. They must not prevent a correction of one of them.
    let existing = control.rules().validate(&before).err().unwrap_or_default();
    let is_error = |problem: &&RuleProblem| problem.severity == Severity::Error;
    let own: Vec<&RuleProblem> =
        errors.iter().filter(is_error).filter(|problem| is_new(problem, rule, &existing)).collect();
    if own.is_empty() {
        let mut warnings: Vec<FieldFault> = errors.iter().filter(is_error).map(rule_fault).collect();
        warnings
            .iter_mut()
            .for_each(|fault| fault.what.push_str(" (no change of rules takes effect until this is fixed)"));
        return Ok(warnings);
    }
    Err(ApiProblem::invalid(own.into_iter().map(rule_fault).collect()))
}

/// Whether this rule caused the problem.
fn is_new(problem: &RuleProblem, rule: &LayerRule, existing: &[RuleProblem]) -> bool {
    rule.has(problem) || !existing.contains(problem)
}

/// The layer with this rule added or replaced.
fn with(layer: &Layer, rule: &LayerRule) -> Layer {
    let same = |other: &LayerRule| other.domain == rule.domain && other.name == rule.name;
    let mut layer = layer.clone();
    match layer.rules.iter_mut().find(|other| same(other)) {
        Some(other) => *other = rule.clone(),
        None => layer.rules.push(rule.clone()),
    }
    layer
}

/// The warnings about this rule.
fn warnings_of(problem: &[RuleProblem], rule: &LayerRule) -> Vec<FieldFault> {
    problem.iter().filter(|problem| rule.has(problem)).map(rule_fault).collect()
}
