//! The layer above the files: its rules take their places in the lists of their domains, then the switches are set.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::layer::{Layer, LayerMode, LayerRule, Switch};
use crate::load::domain::{Settings, visit};
use crate::load::reader::Reader;
use crate::load::rules_form;
use crate::model::{Node, Place, Rule, RuleMode};
use crate::problem::{Fault, Problems, quoted};
use crate::yaml::{self, Kind, Yaml, json};

/// A layer, as it is put above one domain after the other.
pub(super) struct Above<'l> {
    /// By domain, until they are put.
    rules: HashMap<&'l str, Vec<Written<'l>>>,
    switches: Switches<'l>,
}

/// A rule of the layer.
struct Written<'l> {
    rule: &'l LayerRule,
    file: Arc<str>,
    /// What its text says, if it can be read.
    value: Option<Yaml>,
}

/// The switches by what they are of.
#[derive(Default)]
struct Switches<'l> {
    all: &'l [Switch],
    everything: Option<RuleMode>,
    domains: HashMap<&'l str, RuleMode>,
    /// With the place in `all`.
    rules: HashMap<(Option<&'l str>, &'l str), (RuleMode, usize)>,
    /// Places of those whose rules are there.
    met: HashSet<usize>,
}

/// How many domains a remedy names.
const MOST_NAMED: usize = 20;

// === impl Above ===

impl<'l> Above<'l> {
    /// Reads the texts of its rules.
    pub(super) fn read(layer: &'l Layer, problems: &mut Problems) -> Above<'l> {
        let mut rules: HashMap<&str, Vec<Written<'_>>> = HashMap::new();
        for rule in &layer.rules {
            let file: Arc<str> = rule.place().into();
            let value = judged(rule, problems, |problems| read_text(rule, &file, problems));
            rules.entry(&rule.domain).or_default().push(Written { rule, file, value });
        }
        Above { rules, switches: Switches::new(&layer.switches) }
    }

    /// Puts a domain's rules where they belong and sets its switches. Says which rules are written here, sound or not.
    pub(super) fn put(
        &mut self,
        domain: &str,
        rules: &mut Vec<Rule>,
        tree: &mut [Node],
        settings: &Settings,
        problems: &mut Problems,
    ) -> Vec<&'l str> {
        let own = self.rules.remove(domain).unwrap_or_default();
        if !own.is_empty() {
            put_rules(&own, rules, tree, settings, problems);
        }
        if !self.switches.all.is_empty() {
            self.switches.set(domain, &own, rules, tree);
        }
        own.iter().map(|above| above.rule.name.as_str()).collect()
    }

    /// Tells what is left: what is of domains and rules that are not there. `all_read`: whether all domains could be read that
    /// the files have.
    pub(super) fn finish(self, domains: &[&str], all_read: bool, problems: &mut Problems) {
        // Of a file that can't be read nobody knows which domains it has.
        if !all_read {
            return;
        }
        let named = domains.iter().take(MOST_NAMED).map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
        let none = |domain: &str| {
            let remedy = if domains.is_empty() {
                "load a file that has it".to_owned()
            } else {
                format!("the domains are {named}")
            };
            Fault::new(format!("there is no domain {}", quoted(domain)), remedy)
        };
        for (domain, rules) in self.rules {
            for above in rules {
                judged(above.rule, problems, |problems| problems.error(&above.file, 1, none(domain)));
            }
        }
        for switch in self.switches.all {
            let fault = match (&switch.domain, &switch.rule) {
                (Some(domain), _) if !domains.contains(&domain.as_str()) => none(domain),
                (domain, Some(rule)) if !self.switches.has_met(domain.as_deref(), rule) => {
                    let of = domain.as_ref().map(|domain| format!(" in domain {}", quoted(domain))).unwrap_or_default();
                    Fault::new(format!("there is no rule {}{of}", quoted(rule)), NOT_NEEDED)
                }
                _ => continue,
            };
            problems.warning(&switch.place().into(), 1, fault);
        }
    }
}

const NOT_NEEDED: &str = "remove the switch if it is not needed any more";

/// What is wrong with a rule that is off is no reason to refuse the others: taking it off is how it is got out of the way.
fn judged<T>(rule: &LayerRule, problems: &mut Problems, look: impl FnOnce(&mut Problems) -> T) -> T {
    if rule.mode == Some(LayerMode::Off) { problems.lowered(look) } else { look(problems) }
}

/// The one value of a rule's text.
fn read_text(rule: &LayerRule, file: &Arc<str>, problems: &mut Problems) -> Option<Yaml> {
    let off = rule.mode == Some(LayerMode::Off);
    if off && rule.rule.trim().is_empty() {
        return None;
    }
    if rule.rule.len() > LayerRule::LONGEST {
        let message = format!("the rule is longer than {} KiB", LayerRule::LONGEST >> 10);
        problems.error(file, 1, Fault::new(message, "write it shorter, or in a file"));
        return None;
    }
    let (mut values, faults) = match json::read(&rule.rule) {
        Some((mut values, faults)) => {
            values.iter_mut().for_each(unquote_words);
            (values, faults)
        }
        None => yaml::read(&rule.rule),
    };
    values.retain(|value| !value.is_null());
    let unreadable = !faults.is_empty();
    for (line, fault) in faults {
        problems.error(file, line, fault);
    }
    if unreadable {
        return None;
    }
    if values.len() != 1 {
        let message = if values.is_empty() { "the rule has no text" } else { "the text is several documents" };
        let line = values.get(1).map_or(1, |value| value.line);
        problems.error(
            file,
            line,
            Fault::new(message, "write one rule: {\"key\": [\"api_key\"], \"limit\": \"100/minute\"}"),
        );
        return None;
    }
    values.pop()
}

/// JSON has no way to write a word but in quotes. So there `"absent"` and `"present"` as whole conditions, and `"default"` of a
/// cost, are the words; the value is `["absent"]`.
fn unquote_words(rule: &mut Yaml) {
    let Kind::Map(entries) = &mut rule.kind else { return };
    for entry in entries {
        let Kind::Map(within) = &mut entry.value.kind else { continue };
        for inner in within {
            match (entry.key.text.as_str(), &mut inner.value.kind) {
                ("match", Kind::Scalar(scalar)) if matches!(scalar.text.as_str(), "absent" | "present") => {
                    scalar.plain = true;
                }
                ("cost", Kind::Map(cases)) => {
                    for case in cases.iter_mut().filter(|case| case.key.text == "default") {
                        case.key.plain = true;
                    }
                }
                _ => {}
            }
        }
    }
}

fn put_rules(own: &[Written<'_>], rules: &mut Vec<Rule>, tree: &[Node], settings: &Settings, problems: &mut Problems) {
    let mut places: HashMap<String, usize> = HashMap::new();
    for (place, rule) in rules.iter().enumerate() {
        places.entry(rule.name.clone()).or_insert(place);
    }
    let mut limits: HashMap<&str, &Place> = HashMap::new();
    visit(tree, &mut |node| {
        if let Some(limit) = &node.limit {
            limits.entry(&limit.name).or_insert(&node.at);
        }
    });
    let mut put: HashSet<&str> = HashSet::new();
    for above in own {
        let name = above.rule.name.as_str();
        if !put.insert(name) {
            let message = format!("there is another rule {} by API in this domain", quoted(name));
            problems.error(&above.file, 1, Fault::new(message, "keep one of the two"));
            continue;
        }
        let rule = judged(above.rule, problems, |problems| {
            let mut reader = Reader::new(above.file.clone(), problems);
            let rule =
                above.value.as_ref().and_then(|value| rules_form::read_rule(value, Some(name), settings, &mut reader));
            let taken = limits.get(name);
            if let Some(at) = taken {
                let message = format!("the name {} is taken by {}:{}", quoted(name), at.file, at.line);
                reader.error(
                    1,
                    message,
                    "give the rule another name; a limit of a tree can be switched off, but not replaced",
                );
            }
            rule.filter(|_| taken.is_none())
        });
        match (rule, places.get(name)) {
            (Some(rule), Some(place)) => rules[*place] = above.bounded(rule),
            (Some(rule), None) => {
                places.insert(name.to_owned(), rules.len());
                rules.push(above.bounded(rule));
            }
            (None, Some(place)) if above.rule.mode == Some(LayerMode::Off) => rules[*place].terms.mode = RuleMode::Off,
            (None, None) if above.rule.mode == Some(LayerMode::Off) && above.value.is_none() => {
                let message = format!("there is no rule {} to switch off", quoted(name));
                problems.warning(&above.file, 1, Fault::new(message, "remove it if it is not needed any more"));
            }
            (None, _) => {}
        }
    }
}

impl Written<'_> {
    /// A rule that does no more than it is allowed to.
    fn bounded(&self, mut rule: Rule) -> Rule {
        rule.version = self.rule.version;
        rule.terms.mode = match (self.rule.mode, rule.terms.mode) {
            (None, mode) => mode,
            (Some(LayerMode::Off), _) | (_, RuleMode::Off) => RuleMode::Off,
            (Some(LayerMode::Shadow), _) => RuleMode::Shadow,
        };
        rule
    }
}

// === impl Switches ===

impl<'l> Switches<'l> {
    fn new(all: &'l [Switch]) -> Switches<'l> {
        let mut switches = Switches { all, ..Switches::default() };
        for (place, Switch { domain, rule, mode }) in all.iter().enumerate() {
            match (domain.as_deref(), rule) {
                (domain, Some(rule)) => {
                    switches.rules.insert((domain, rule), (*mode, place));
                }
                (Some(domain), None) => {
                    switches.domains.insert(domain, *mode);
                }
                (None, None) => switches.everything = Some(*mode),
            }
        }
        switches
    }

    fn set(&mut self, domain: &str, own: &[Written<'_>], rules: &mut [Rule], tree: &mut [Node]) {
        let wide = self.domains.get(domain).copied().or(self.everything);
        let allowed: HashMap<&str, LayerMode> =
            own.iter().filter_map(|above| Some((above.rule.name.as_str(), above.rule.mode?))).collect();
        for rule in rules {
            if let Some(mode) = self.of_rule(domain, &rule.name) {
                rule.terms.mode = mode;
            } else if let Some(mode) = wide {
                // That this rule is in shadow, or off, was decided for it alone.
                match allowed.get(rule.name.as_str()) {
                    Some(LayerMode::Off) => {}
                    Some(LayerMode::Shadow) if mode != RuleMode::Off => {}
                    _ => rule.terms.mode = mode,
                }
            }
        }
        self.set_tree(domain, wide, tree);
    }

    fn set_tree(&mut self, domain: &str, wide: Option<RuleMode>, nodes: &mut [Node]) {
        for node in nodes {
            if let Some(limit) = &mut node.limit
                && let Some(mode) = self.of_rule(domain, &limit.name).or(wide)
            {
                limit.terms.mode = mode;
            }
            self.set_tree(domain, wide, &mut node.children);
        }
    }

    /// What is set for this very rule: in this domain, else in any.
    fn of_rule(&mut self, domain: &str, name: &str) -> Option<RuleMode> {
        let mut found = None;
        for of in [None, Some(domain)] {
            if let Some((mode, place)) = self.rules.get(&(of, name)).copied() {
                self.met.insert(place);
                found = Some(mode);
            }
        }
        found
    }

    fn has_met(&self, domain: Option<&str>, rule: &str) -> bool {
        self.rules.get(&(domain, rule)).is_some_and(|(_, place)| self.met.contains(place))
    }
}
