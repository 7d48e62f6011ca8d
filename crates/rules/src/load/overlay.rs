//! Applies a layer to the files: its rules are added to the lists of their domains, then its switches are set.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tollgate_core::RegionShare;

use crate::layer::{Layer, LayerMode, LayerRule, LayerShares, Switch};
use crate::load::domain::{DomainSettings, visit};
use crate::load::reader::FileReader;
use crate::load::rules_form;
use crate::model::{Node, Rule, RuleMode, RuleOrigin, SourceLocation};
use crate::problem::{Problems, TextFault, quoted};
use crate::regions::{KnownRegions, MovingOrigin, RegionMode, Split};
use crate::shares::MovingShares;
use crate::yaml::{self, Yaml, YamlKind, json};

/// A layer that is applied to one domain after the other.
pub(super) struct Overlay<'l> {
    /// By domain, until they are applied.
    rules: HashMap<&'l str, Vec<OverlayRule<'l>>>,
    switches: Switches<'l>,
    shares: Shares<'l>,
}

/// A rule of the layer.
struct OverlayRule<'l> {
    rule: &'l LayerRule,
    file: Arc<RuleOrigin>,
    /// The parsed text, if it is valid YAML or JSON.
    value: Option<Yaml>,
}

/// The shares that follow demand, by domain and rule.
struct Shares<'l> {
    of_rules: HashMap<(&'l str, &'l str), &'l LayerShares>,
    are_unknown: bool,
}

/// The switches by scope.
#[derive(Default)]
struct Switches<'l> {
    all: &'l [Switch],
    everything: Option<RuleMode>,
    domains: HashMap<&'l str, RuleMode>,
    /// With the index in `all`.
    rules: HashMap<(Option<&'l str>, &'l str), (RuleMode, usize)>,
    /// The indices of switches whose rules exist.
    met: HashSet<usize>,
}

/// The maximum number of domains in a remedy.
const MAX_NAMED: usize = 20;

// === impl Above ===

impl<'l> Overlay<'l> {
    /// Parses the texts of the layer's rules.
    pub(super) fn read(layer: &'l Layer, problems: &mut Problems) -> Overlay<'l> {
        let mut rules: HashMap<&str, Vec<OverlayRule<'_>>> = HashMap::new();
        for rule in &layer.rules {
            let file = Arc::new(rule.origin());
            let value = with_severity(rule, problems, |problems| read_text(rule, &file, problems));
            rules.entry(&rule.domain).or_default().push(OverlayRule { rule, file, value });
        }
        Overlay { rules, switches: Switches::new(&layer.switches), shares: Shares::new(layer) }
    }

    /// Adds a domain's rules and sets its switches. Returns the names of the layer's rules in this domain, valid or
    /// not.
    pub(super) fn put(
        &mut self,
        domain: &str,
        rules: &mut Vec<Rule>,
        tree: &mut [Node],
        settings: &DomainSettings,
        problems: &mut Problems,
    ) -> Vec<&'l str> {
        let own = self.rules.remove(domain).unwrap_or_default();
        if !own.is_empty() {
            put_rules(&own, rules, tree, settings, problems);
        }
        if !self.switches.all.is_empty() {
            self.switches.set(domain, &own, rules, tree);
        }
        self.shares.set(domain, &settings.regions, rules, tree);
        own.iter().map(|overlaid| overlaid.rule.name.as_str()).collect()
    }

    /// Reports the rules and switches of domains and rules that do not exist. `all_read`: whether all domains of the
    /// files could be read.
    pub(super) fn finish(self, domains: &[&str], all_read: bool, problems: &mut Problems) {
        // The domains of an unreadable file are unknown.
        if !all_read {
            return;
        }
        let named = domains.iter().take(MAX_NAMED).map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
        let none = |domain: &str| {
            let remedy = if domains.is_empty() {
                "load a file that has it".to_owned()
            } else {
                format!("the domains are {named}")
            };
            TextFault::new(format!("there is no domain {}", quoted(domain)), remedy)
        };
        for (domain, rules) in self.rules {
            for overlaid in rules {
                with_severity(overlaid.rule, problems, |problems| problems.error(&overlaid.file, 1, none(domain)));
            }
        }
        for switch in self.switches.all {
            let fault = match (&switch.domain, &switch.rule) {
                (Some(domain), _) if !domains.contains(&domain.as_str()) => none(domain),
                (domain, Some(rule)) if !self.switches.has_met(domain.as_deref(), rule) => {
                    let of = domain.as_ref().map(|domain| format!(" in domain {}", quoted(domain))).unwrap_or_default();
                    TextFault::new(format!("there is no rule {}{of}", quoted(rule)), NOT_NEEDED)
                }
                _ => continue,
            };
            problems.warning(&Arc::new(switch.origin()), 1, fault);
        }
    }
}

const NOT_NEEDED: &str = "remove the switch if it is not needed any more";

/// A problem in a rule that is off must not reject the others: switching a rule off is the way to get rid of it.
fn with_severity<T>(rule: &LayerRule, problems: &mut Problems, look: impl FnOnce(&mut Problems) -> T) -> T {
    if rule.mode == Some(LayerMode::Off) { problems.as_warnings(look) } else { look(problems) }
}

/// The single value of a rule's text.
fn read_text(rule: &LayerRule, file: &Arc<RuleOrigin>, problems: &mut Problems) -> Option<Yaml> {
    let off = rule.mode == Some(LayerMode::Off);
    if off && rule.rule.trim().is_empty() {
        return None;
    }
    if rule.rule.len() > LayerRule::MAX_BYTES {
        let message = format!("the rule is longer than {} KiB", LayerRule::MAX_BYTES >> 10);
        problems.error(file, 1, TextFault::new(message, "write it shorter, or in a file"));
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
            TextFault::new(message, "write one rule: {\"key\": [\"api_key\"], \"limit\": \"100/minute\"}"),
        );
        return None;
    }
    values.pop()
}

/// In JSON every word is quoted. `"absent"` and `"present"` as whole conditions, and `"default"` in a cost, are
/// therefore keywords there; the value is written `["absent"]`.
fn unquote_words(rule: &mut Yaml) {
    let YamlKind::Map(entries) = &mut rule.kind else { return };
    for entry in entries {
        let YamlKind::Map(within) = &mut entry.value.kind else { continue };
        for inner in within {
            match (entry.key.text.as_str(), &mut inner.value.kind) {
                ("match", YamlKind::Scalar(scalar)) if matches!(scalar.text.as_str(), "absent" | "present") => {
                    scalar.plain = true;
                }
                ("cost", YamlKind::Map(cases)) => {
                    for case in cases.iter_mut().filter(|case| case.key.text == "default") {
                        case.key.plain = true;
                    }
                }
                _ => {}
            }
        }
    }
}

fn put_rules(
    own: &[OverlayRule<'_>],
    rules: &mut Vec<Rule>,
    tree: &[Node],
    settings: &DomainSettings,
    problems: &mut Problems,
) {
    let mut places: HashMap<String, usize> = HashMap::new();
    for (place, rule) in rules.iter().enumerate() {
        places.entry(rule.name.clone()).or_insert(place);
    }
    let mut limits: HashMap<&str, &SourceLocation> = HashMap::new();
    visit(tree, &mut |node| {
        if let Some(limit) = &node.limit {
            limits.entry(&limit.name).or_insert(&node.at);
        }
    });
    let mut put: HashSet<&str> = HashSet::new();
    for overlaid in own {
        let name = overlaid.rule.name.as_str();
        if !put.insert(name) {
            let message = format!("there is another rule {} by API in this domain", quoted(name));
            problems.error(&overlaid.file, 1, TextFault::new(message, "keep one of the two"));
            continue;
        }
        let rule = with_severity(overlaid.rule, problems, |problems| {
            let mut reader = FileReader::new(overlaid.file.clone(), problems);
            let rule = overlaid
                .value
                .as_ref()
                .and_then(|value| rules_form::read_rule(value, Some(name), settings, &mut reader));
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
            (Some(rule), Some(place)) => rules[*place] = overlaid.bounded(rule),
            (Some(rule), None) => {
                places.insert(name.to_owned(), rules.len());
                rules.push(overlaid.bounded(rule));
            }
            (None, Some(place)) if overlaid.rule.mode == Some(LayerMode::Off) => {
                rules[*place].terms.mode = RuleMode::Off
            }
            (None, None) if overlaid.rule.mode == Some(LayerMode::Off) && overlaid.value.is_none() => {
                let message = format!("there is no rule {} to switch off", quoted(name));
                problems.warning(&overlaid.file, 1, TextFault::new(message, "remove it if it is not needed any more"));
            }
            (None, _) => {}
        }
    }
}

impl OverlayRule<'_> {
    /// Restricts a rule to what it is allowed to do.
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

// === impl Shares ===

impl<'l> Shares<'l> {
    fn new(layer: &'l Layer) -> Shares<'l> {
        let named = layer.shares.iter().map(|one| ((&*one.domain, &*one.rule), one));
        Shares { of_rules: named.collect(), are_unknown: layer.are_shares_unknown }
    }

    fn set(&self, domain: &str, regions: &KnownRegions, rules: &mut [Rule], tree: &mut [Node]) {
        let Some(names) = regions.all() else { return };
        for rule in rules {
            self.set_one(domain, &rule.name, names.here(), &mut rule.terms.region);
        }
        self.set_tree(domain, names.here(), tree);
    }

    fn set_tree(&self, domain: &str, here: &str, nodes: &mut [Node]) {
        for node in nodes {
            if let Some(limit) = &mut node.limit {
                self.set_one(domain, &limit.name, here, &mut limit.terms.region);
            }
            self.set_tree(domain, here, &mut node.children);
        }
    }

    fn set_one(&self, domain: &str, name: &str, here: &str, region: &mut RegionMode) {
        let RegionMode::Split(Split { shares: crate::regions::Shares::Moving { origin, .. }, here: share }) = region
        else {
            return;
        };
        if let Some(written) = self.of_rules.get(&(domain, name)) {
            // A region that is new gets a share with the next write.
            let bps = written.shares.of.get(here).map_or(0, |at| at.share);
            (*origin, *share) = (MovingOrigin::Written(written.generation), Some(RegionShare::of_bps(bps)));
        }
        if self.are_unknown {
            let least = share.map_or(0, |share| share.parts).min(MovingShares::LEAST);
            (*origin, *share) = (MovingOrigin::Unknown, Some(RegionShare::of_bps(least)));
        }
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

    fn set(&mut self, domain: &str, own: &[OverlayRule<'_>], rules: &mut [Rule], tree: &mut [Node]) {
        let wide = self.domains.get(domain).copied().or(self.everything);
        let allowed: HashMap<&str, LayerMode> =
            own.iter().filter_map(|overlaid| Some((overlaid.rule.name.as_str(), overlaid.rule.mode?))).collect();
        for rule in rules {
            if let Some(mode) = self.of_rule(domain, &rule.name) {
                rule.terms.mode = mode;
            } else if let Some(mode) = wide {
                // The mode of this rule was set individually.
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

    /// The mode set for this very rule: in this domain, otherwise in any.
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
