//! The layer: rules written by API and switches, which operators put above the rule files at run time.
//!
//! A layer is read together with the files, by the same reader and with the same checks ([`RuleFiles::load_with_layer`](crate::RuleFiles::load_with_layer)). The
//! result is one set of domains, in which the origin of a rule does not matter.

use crate::model::{RuleMode, SourceLocation};
use crate::problem::{RuleProblem, Severity, quoted};

/// The layer above the rule files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layer {
    /// Rules. No two rules of a domain have the same name.
    pub rules: Vec<LayerRule>,
    /// Switches. Of two with the same scope, the last one applies.
    pub switches: Vec<Switch>,
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

/// The suffix of locations that are not in files.
const BY_API: &str = " (by API)";

// === impl Layer ===

impl Layer {
    /// The layer without the rules that have errors: the fallback if there is nothing better. An error in one rule
    /// must not remove the others and the switches.
    pub fn without_faulty(&self, problems: &[RuleProblem]) -> Layer {
        let faulty = |rule: &LayerRule| {
            let place = rule.source_name();
            problems.iter().any(|problem| problem.severity == Severity::Error && *problem.file == *place)
        };
        Layer {
            rules: self.rules.iter().filter(|rule| !faulty(rule)).cloned().collect(),
            switches: self.switches.clone(),
        }
    }
}

impl LayerRule {
    /// The maximum length of the text, in bytes.
    pub const MAX_BYTES: usize = 256 << 10;

    /// The name in problems, in place of a file's path.
    pub fn source_name(&self) -> String {
        format!("rule {}{BY_API}", shown(&self.name))
    }
}

impl Switch {
    /// The name in problems.
    pub(crate) fn source_name(&self) -> String {
        match (&self.rule, &self.domain) {
            (Some(rule), _) => format!("switch of rule {}{BY_API}", shown(rule)),
            (None, Some(domain)) => format!("switch of domain {}{BY_API}", shown(domain)),
            (None, None) => format!("switch of everything{BY_API}"),
        }
    }
}

/// A name, which may be any text, in one line.
fn shown(name: &str) -> String {
    let shown = quoted(name);
    // Unquoted, if it is an ordinary name.
    if shown.strip_prefix('`').and_then(|shown| shown.strip_suffix('`')) == Some(name) {
        name.to_owned()
    } else {
        shown
    }
}

impl SourceLocation {
    /// Whether it is in the layer.
    pub fn is_by_api(&self) -> bool {
        self.file.ends_with(BY_API)
    }
}

impl RuleProblem {
    /// Whether it is in the layer.
    pub fn is_by_api(&self) -> bool {
        self.file.ends_with(BY_API)
    }

    /// The location in short: `rules.yaml:7`, or `rule per-key:2` for a rule of the layer.
    pub fn at(&self) -> String {
        format!("{}:{}", self.file.strip_suffix(BY_API).unwrap_or(&self.file), self.line)
    }
}
