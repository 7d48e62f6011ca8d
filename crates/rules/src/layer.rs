//! The layer: rules written by API and switches, which operators put above the rule files at run time.
//!
//! A layer is read together with the files, by the same reader and with the same checks ([`RuleFiles::load_with_layer`](crate::RuleFiles::load_with_layer)). The
//! result is one set of domains, in which the origin of a rule does not matter.

use crate::model::{RuleMode, RuleOrigin};
use crate::problem::{RuleProblem, Severity};
use crate::shares::MovingShares;

/// The layer above the rule files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layer {
    /// Rules. No two rules of a domain have the same name.
    pub rules: Vec<LayerRule>,
    /// Switches. Of two with the same scope, the last one applies.
    pub switches: Vec<Switch>,
    /// Shares of rules with `region: {split: moving}`. Those of other rules have no effect.
    pub shares: Vec<LayerShares>,
    /// Whether other shares may be in force elsewhere: regions then have the least share.
    pub are_shares_unknown: bool,
    /// The versions of rule files that were held and released: servers put them in force. Rules do not depend on them.
    pub released_files: Vec<String>,
}

/// The shares of a rule, or of a limit of the tree, that follow demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerShares {
    /// The domain.
    pub domain: String,
    /// The rule's name.
    pub rule: String,
    /// The generation of the write.
    pub generation: u64,
    /// The shares.
    pub shares: MovingShares,
}

/// A rule of a domain's `rules` list. It replaces the file's rule of that name, or is appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerRule {
    /// The domain, which must be in a file.
    pub domain: String,
    /// The rule's name.
    pub name: String,
    /// The rule as JSON or YAML: a map with the keys of a rule in `rules`. `name` may be omitted; otherwise it must
    /// be the same.
    pub rule: String,
    /// Restricts what the rule may do, whatever its text says.
    pub mode: Option<LayerMode>,
    /// The version of the rule, if it has versions.
    pub version: Option<u64>,
}

/// What a rule of the layer may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerMode {
    /// It counts and refuses nothing.
    Shadow,
    /// The rule of that name is off, whether it is this one or the file's. Its text may be empty or invalid: that is
    /// only a warning then.
    Off,
}

/// Overrides the mode of rules, whatever their files say. The most specific switch applies: of a rule, of a domain,
/// of everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    /// The domain; `None` for all.
    pub domain: Option<String>,
    /// The rule, or the limit of the tree, by name; `None` for all.
    pub rule: Option<String>,
    /// The mode.
    pub mode: RuleMode,
}

// === impl Layer ===

impl Layer {
    /// The layer without the rules that have errors: the fallback if there is nothing better. An error in one rule
    /// must not remove the others and the switches.
    pub fn without_faulty(&self, problems: &[RuleProblem]) -> Layer {
        let errors = || problems.iter().filter(|problem| problem.severity == Severity::Error);
        let faulty = |rule: &LayerRule| errors().any(|problem| rule.has(problem));
        Layer {
            rules: self.rules.iter().filter(|rule| !faulty(rule)).cloned().collect(),
            switches: self.switches.clone(),
            shares: self.shares.clone(),
            are_shares_unknown: self.are_shares_unknown,
            released_files: self.released_files.clone(),
        }
    }
}

impl LayerRule {
    /// The maximum length of the text, in bytes.
    pub const MAX_BYTES: usize = 256 << 10;

    /// Where its text is, in problems.
    pub fn origin(&self) -> RuleOrigin {
        RuleOrigin::Rule { domain: self.domain.clone(), name: self.name.clone() }
    }

    /// Whether a problem is in this rule.
    pub fn has(&self, problem: &RuleProblem) -> bool {
        matches!(&*problem.file, RuleOrigin::Rule { domain, name } if *domain == self.domain && *name == self.name)
    }
}

impl Switch {
    /// Where it is, in problems.
    pub(crate) fn origin(&self) -> RuleOrigin {
        RuleOrigin::Switch { domain: self.domain.clone(), rule: self.rule.clone() }
    }
}
