//! What operators put above the rule files while the service runs: rules written by API, and switches.
//!
//! A layer says nothing on its own. It is read together with the files, by the same reader, under the same checks
//! ([`Files::load_under`]): what comes out is one set of domains, in which nobody has to ask where a rule came from.

use crate::compiled::Ruleset;
use crate::load::{Files, LoadOptions, Loaded};
use crate::model::{Place, RuleMode};
use crate::problem::{Problem, Severity, quoted};

/// What stands above the rule files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layer {
    /// Rules; no two of a domain with the same name.
    pub rules: Vec<LayerRule>,
    /// Switches; of two of the same thing the last counts.
    pub switches: Vec<Switch>,
}

/// A rule of a domain's `rules` list. It takes the place of the file's rule of that name, or is added after them all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerRule {
    /// The domain, which a file must have.
    pub domain: String,
    /// The rule's name.
    pub name: String,
    /// The rule as JSON or YAML: a map with the keys of a rule in `rules`. `name` may be absent; else it is the same.
    pub rule: String,
    /// What the rule is allowed to do, whatever its text says.
    pub mode: Option<LayerMode>,
    /// Which of its versions this is, where it has any.
    pub version: Option<u64>,
}

/// What a rule above the files is allowed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerMode {
    /// It counts and refuses nobody.
    Shadow,
    /// The rule of that name is switched off, be it this one or the file's. Its text may be empty or bad: that is a warning then.
    Off,
}

/// Sets how rules refuse, whatever their files say. The most specific one counts: of a rule, of a domain, of everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    /// The domain; `None`: all of them.
    pub domain: Option<String>,
    /// The rule, or the limit of the tree, by its name; `None`: all of them.
    pub rule: Option<String>,
    /// How they refuse.
    pub mode: RuleMode,
}

/// How the places of problems end that are not of files.
const BY_API: &str = " (by API)";

// === impl Layer ===

impl Layer {
    /// The same without the rules that errors are told of: what is left to run on where there is nothing better. What is wrong
    /// with one rule must not take the others and the switches away.
    pub fn without_faulty(&self, problems: &[Problem]) -> Layer {
        let faulty = |rule: &LayerRule| {
            let place = rule.place();
            problems.iter().any(|problem| problem.severity == Severity::Error && *problem.file == *place)
        };
        Layer {
            rules: self.rules.iter().filter(|rule| !faulty(rule)).cloned().collect(),
            switches: self.switches.clone(),
        }
    }
}

impl LayerRule {
    /// The longest text, in bytes.
    pub const LONGEST: usize = 256 << 10;

    /// What it is called in problems, where a file has its path.
    pub fn place(&self) -> String {
        format!("rule {}{BY_API}", shown(&self.name))
    }
}

impl Switch {
    /// What it is called in problems.
    pub(crate) fn place(&self) -> String {
        match (&self.rule, &self.domain) {
            (Some(rule), _) => format!("switch of rule {}{BY_API}", shown(rule)),
            (None, Some(domain)) => format!("switch of domain {}{BY_API}", shown(domain)),
            (None, None) => format!("switch of everything{BY_API}"),
        }
    }
}

/// A name that may be anything, in one line.
fn shown(name: &str) -> String {
    let shown = quoted(name);
    // As it is, where it is an ordinary one.
    if shown.strip_prefix('`').and_then(|shown| shown.strip_suffix('`')) == Some(name) {
        name.to_owned()
    } else {
        shown
    }
}

impl Place {
    /// Whether it is in the layer above the files.
    pub fn is_by_api(&self) -> bool {
        self.file.ends_with(BY_API)
    }
}

impl Problem {
    /// Whether it is one of the layer above the files.
    pub fn is_by_api(&self) -> bool {
        self.file.ends_with(BY_API)
    }

    /// Where it is, in a word: `rules.yaml:7`, and `rule per-key:2` of a rule of the layer.
    pub fn at(&self) -> String {
        format!("{}:{}", self.file.strip_suffix(BY_API).unwrap_or(&self.file), self.line)
    }
}

impl Ruleset {
    /// Loads files under a layer and compiles them; with the warnings.
    ///
    /// # Errors
    /// All problems of the files and of the layer, if one of them is an error.
    pub fn load_under(
        files: Files,
        options: &LoadOptions,
        layer: &Layer,
        generation: u64,
    ) -> Result<(Ruleset, Vec<Problem>), Vec<Problem>> {
        let Loaded { domains, warnings } = files.load_under(options, layer)?;
        match Ruleset::compile(domains, generation) {
            Ok(ruleset) => Ok((ruleset, warnings)),
            Err(errors) => Err(errors.into_iter().chain(warnings).collect()),
        }
    }
}
