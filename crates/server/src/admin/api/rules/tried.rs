//! A rule is tried before it is written: with the files in force and all that is above them, by the reader that will read it.

use std::sync::Arc;

use tollgate::control::Fault;
use tollgate::control::documents::{RuleDocument, RuleState};
use tollgate::{Layer, LayerMode, LayerRule, Problem as Told, Severity};
use tollgate_control::Name;

use super::super::{Api, Problem};
use crate::control::Control;

/// Tries a version of a rule; says what its author should know. Compiling takes its time, which others do not wait for.
pub(super) async fn tried(api: &Api, name: &Name, document: &RuleDocument) -> Result<Vec<Fault>, Problem> {
    let (control, rule) = (api.clone(), layer_rule(name, document));
    let tried = tokio::task::spawn_blocking(move || try_now(&control, &rule)).await;
    tried.unwrap_or_else(|_| {
        let detail = "the rule could not be tried; the log says why";
        Err(Problem::new(http::StatusCode::INTERNAL_SERVER_ERROR, "not_tried", detail))
    })
}

/// The same at once.
pub(super) fn tried_now(api: &Api, name: &Name, document: &RuleDocument) -> Result<Vec<Fault>, Problem> {
    try_now(api, &layer_rule(name, document))
}

/// The rule as it will be in force; one that will not be, as if it were.
fn layer_rule(name: &Name, document: &RuleDocument) -> LayerRule {
    let mode = match document.state {
        RuleState::Draft | RuleState::Pending | RuleState::Active => None,
        RuleState::Shadow => Some(LayerMode::Shadow),
        RuleState::Off => Some(LayerMode::Off),
    };
    let rule = document.rule.get().to_owned();
    LayerRule { domain: name.domain.clone(), name: name.name.clone(), rule, mode, version: Some(document.version) }
}

fn try_now(control: &Arc<Control>, rule: &LayerRule) -> Result<Vec<Fault>, Problem> {
    let before = control.current_layer();
    let errors = match control.rules().try_out(&with(&before, rule)) {
        Ok((_, warnings)) => return Ok(of_rule(&warnings, rule)),
        Err(problems) => problems,
    };
    // Rules that others wrote may have ceased to fit the files. They must not keep anybody from mending one of them.
    let known = control.rules().try_out(&before).err().unwrap_or_default();
    let is_error = |told: &&Told| told.severity == Severity::Error;
    let own: Vec<&Told> = errors.iter().filter(is_error).filter(|told| is_new(told, rule, &known)).collect();
    if own.is_empty() {
        let mut warnings: Vec<Fault> = errors.iter().filter(is_error).map(fault).collect();
        warnings.iter_mut().for_each(|fault| fault.what.push_str(" (no change of rules is in force before that)"));
        return Ok(warnings);
    }
    Err(Problem::invalid(own.into_iter().map(fault).collect()))
}

/// Whether it is this rule's doing.
fn is_new(told: &Told, rule: &LayerRule, known: &[Told]) -> bool {
    *told.file == *rule.place() || !known.contains(told)
}

/// The layer with a rule in it, in the place of the one of its name.
fn with(layer: &Layer, rule: &LayerRule) -> Layer {
    let same = |other: &LayerRule| other.domain == rule.domain && other.name == rule.name;
    let mut layer = layer.clone();
    match layer.rules.iter_mut().find(|other| same(other)) {
        Some(other) => *other = rule.clone(),
        None => layer.rules.push(rule.clone()),
    }
    layer
}

/// What is told of this rule.
fn of_rule(told: &[Told], rule: &LayerRule) -> Vec<Fault> {
    let place = rule.place();
    told.iter().filter(|told| *told.file == *place).map(fault).collect()
}

fn fault(told: &Told) -> Fault {
    Fault { at: told.at(), what: format!("{}; {}", told.message, told.remedy) }
}
