//! Reads a domain from its documents: first the settings, because limits are given by tier, then the rules of both
//! forms.

use std::collections::HashMap;

use crate::load::keys;
use crate::load::overlay::Overlay;
use crate::load::partitions;
use crate::load::reader::{Fields, FileReader};
use crate::load::terms::{ALGORITHMS, LEASES};
use crate::load::{ban, rules_form, signals, tree_form};
use crate::model::{Counting, Domain, Lease, NeverBan, Node, Rule, SourceLocation, Tier};
use crate::private::PrivateAttributes;
use crate::problem::{Problems, TextFault, choose, quoted};
use crate::regions::KnownRegions;
use crate::yaml::{Yaml, YamlEntry};

/// One document of a file.
pub(super) struct DomainDocument<'y> {
    /// The domain's name, if it is valid.
    pub(super) name: Option<String>,
    pub(super) at: SourceLocation,
    fields: Fields<'y>,
}

/// The settings of a domain that apply to all of its rules.
pub(super) struct DomainSettings {
    pub(super) tiers: Vec<Tier>,
    pub(super) default_tier: usize,
    pub(super) default_algorithm: Counting,
    pub(super) default_lease: Lease,
    pub(super) regions: KnownRegions,
    pub(super) entity: Option<String>,
    entity_at: Option<SourceLocation>,
    private: PrivateAttributes,
    tier_from: Option<String>,
    default_rule: Option<(String, SourceLocation)>,
    match_parents: bool,
    never_ban: NeverBan,
}

/// The maximum number of tiers in a domain: each rule has an entry for each.
const MAX_TIERS: usize = 64;

/// The maximum number of private attributes in a domain.
const MAX_PRIVATE: usize = 64;

impl<'y> DomainDocument<'y> {
    /// A document, if it is a map.
    pub(super) fn read(value: &'y Yaml, reader: &mut FileReader<'_>) -> Option<DomainDocument<'y>> {
        let fields = reader.fields(value, &keys::DOMAIN)?;
        let name = match fields.get("domain") {
            Some(name) => reader.attribute(name, "domain"),
            None => {
                reader.error(fields.line, "the domain has no name", "write `domain: NAME`");
                None
            }
        };
        let line = fields.entry("domain").map_or(fields.line, |entry| entry.line);
        Some(DomainDocument { name, at: reader.place(line), fields })
    }

    fn reader<'p>(&self, problems: &'p mut Problems) -> FileReader<'p> {
        FileReader::new(self.at.file.clone(), problems)
    }
}

/// The domain of these documents with a layer. There is at least one document.
pub(super) fn read(
    documents: &[DomainDocument<'_>],
    regions: &KnownRegions,
    overlay: &mut Overlay<'_>,
    problems: &mut Problems,
) -> Option<Domain> {
    let first = documents.first()?;
    let settings = DomainSettings::read(documents, regions, problems);
    let (mut rules, mut tree, mut watched) = (Vec::new(), Vec::new(), Vec::new());
    for document in documents {
        let mut reader = document.reader(problems);
        if let Some(list) = document.fields.get_given("rules") {
            rules.extend(rules_form::read(list, &settings, &mut reader));
        }
        if let Some(list) = document.fields.get_given("descriptors") {
            tree.extend(tree_form::read(list, &settings, &mut reader));
        }
        if let Some(list) = document.fields.get_given("signals") {
            signals::read(list, &settings, &mut watched, &mut reader);
        }
    }
    refuse_twin_rules(&rules, &tree, problems);
    refuse_twin_nodes(&tree, problems);
    let overlay = match &first.name {
        Some(name) => overlay.put(name, &mut rules, &mut tree, &settings, problems),
        None => Vec::new(),
    };
    let domain = Domain {
        name: first.name.clone().unwrap_or_default(),
        entity: settings.entity,
        private: settings.private,
        tiers: settings.tiers,
        default_tier: settings.default_tier,
        tier_from: settings.tier_from,
        default_rule: settings.default_rule.as_ref().map(|(name, _)| name.clone()),
        rules,
        tree,
        signals: watched,
        never_ban: settings.never_ban,
        match_parents: settings.match_parents,
        default_algorithm: settings.default_algorithm,
        default_lease: settings.default_lease,
        regions: settings.regions,
        at: first.at.clone(),
    };
    if let Some((name, at)) = &settings.default_rule {
        let written = documents.iter().filter_map(|document| document.fields.get("rules")).flat_map(rules_form::names);
        check_default_rule(name, at, written.chain(overlay).collect(), &domain.tree, problems);
    }
    partitions::check(&domain, settings.entity_at.as_ref().unwrap_or(&domain.at), problems);
    Some(domain)
}

// === impl Settings ===

impl DomainSettings {
    fn read(documents: &[DomainDocument<'_>], regions: &KnownRegions, problems: &mut Problems) -> DomainSettings {
        let mut setting = |key: &str| -> Option<(&Yaml, &DomainDocument<'_>)> { sole(documents, key, problems) };
        let [
            entity,
            private,
            tiers,
            default_tier,
            tier_from,
            default_rule,
            default_algorithm,
            lease,
            match_parents,
            never_ban,
        ] = [
            setting("entity"),
            setting("private"),
            setting("tiers"),
            setting("default_tier"),
            setting("tier_from"),
            setting("default_rule"),
            setting("default_algorithm"),
            setting("lease"),
            setting("match_parents"),
            setting("never_ban"),
        ];
        let tiers = tiers
            .and_then(|(value, document)| read_tiers(value, &mut document.reader(problems)))
            .unwrap_or_else(usual_tiers);
        let has_callers = entity.is_some();
        DomainSettings {
            never_ban: never_ban
                .and_then(|(value, document)| ban::read_never(value, has_callers, &mut document.reader(problems)))
                .unwrap_or_default(),
            regions: regions.clone(),
            default_tier: default_tier
                .and_then(|(value, document)| read_default_tier(value, &tiers, &mut document.reader(problems)))
                .unwrap_or(0),
            tiers,
            entity_at: entity.map(|(value, document)| document.reader(problems).place(value.line)),
            entity: entity.and_then(|(value, document)| document.reader(problems).attribute(value, "entity")),
            private: private
                .and_then(|(value, document)| read_private(value, &mut document.reader(problems)))
                .unwrap_or_default(),
            tier_from: tier_from.and_then(|(value, document)| document.reader(problems).attribute(value, "tier_from")),
            default_rule: default_rule.and_then(|(value, document)| {
                let mut reader = document.reader(problems);
                Some((reader.attribute(value, "default_rule")?, reader.place(value.line)))
            }),
            default_algorithm: default_algorithm
                .and_then(|(value, document)| document.reader(problems).word(value, "default_algorithm", ALGORITHMS))
                .unwrap_or(Counting::SlidingWindow),
            default_lease: lease
                .and_then(|(value, document)| document.reader(problems).word(value, "lease", LEASES))
                .unwrap_or_default(),
            match_parents: match_parents
                .and_then(|(value, document)| document.reader(problems).boolean(value, "match_parents"))
                .unwrap_or(false),
        }
    }
}

/// A setting, which only one of a domain's documents may have.
fn sole<'d, 'y>(
    documents: &'d [DomainDocument<'y>],
    key: &str,
    problems: &mut Problems,
) -> Option<(&'y Yaml, &'d DomainDocument<'y>)> {
    let mut having = documents.iter().filter_map(|document| Some((document.fields.entry(key)?, document)));
    let (first, document) = having.next()?;
    for (entry, other) in having {
        let message = format!("`{key}` of this domain is also set in {}:{}", document.at.file, first.line);
        problems.error(&other.at.file, entry.line, TextFault::new(message, "keep it in one of the merged files"));
    }
    Some((&first.value, document))
}

/// A list of attributes, which may be empty.
fn read_private(value: &Yaml, reader: &mut FileReader<'_>) -> Option<PrivateAttributes> {
    let items = reader.list(value, "private", "private: [api_key, user], or [] for none")?;
    if items.len() > MAX_PRIVATE {
        let message = format!("`private` has {} attributes", items.len());
        reader.error(value.line, message, format!("write at most {MAX_PRIVATE}"));
        return None;
    }
    let names = items.iter().filter_map(|item| reader.attribute(item, "private")).map(Into::into);
    Some(PrivateAttributes::Listed(names.collect()))
}

fn usual_tiers() -> Vec<Tier> {
    let tier = |name: &str, paid| Tier { name: name.to_owned(), paid, priority: 0 };
    vec![tier("free", false), tier("pro", true), tier("enterprise", true), tier("custom", true)]
}

fn read_tiers(value: &Yaml, reader: &mut FileReader<'_>) -> Option<Vec<Tier>> {
    let entries = reader.entries(value, "tiers", "tiers: {free: {paid: false}, pro: {}}")?;
    if entries.is_empty() || entries.len() > MAX_TIERS {
        let message = format!("there are {} tiers here", entries.len());
        reader.error(value.line, message, format!("write 1 to {MAX_TIERS}, or remove the key for the usual ones"));
    }
    // Further tiers are not read; the error that there are too many has been reported.
    let tiers: Vec<Tier> = entries.iter().take(MAX_TIERS).filter_map(|entry| read_tier(entry, reader)).collect();
    (!tiers.is_empty()).then_some(tiers)
}

fn read_tier(entry: &YamlEntry, reader: &mut FileReader<'_>) -> Option<Tier> {
    let name = reader.as_name(entry.line, &entry.key.text, "tiers")?;
    let mut tier = Tier { name, paid: true, priority: 0 };
    if entry.value.is_null() {
        return Some(tier);
    }
    // A tier with invalid settings is still a tier that limits may name.
    let Some(fields) = reader.fields(&entry.value, &keys::TIER) else { return Some(tier) };
    if let Some(paid) = fields.get("paid").and_then(|value| reader.boolean(value, "paid")) {
        tier.paid = paid;
    }
    let priority = fields.get("priority").and_then(|value| reader.number(value, "priority", 0..=u32::MAX.into()));
    tier.priority = priority.and_then(|priority| u32::try_from(priority).ok()).unwrap_or(0);
    Some(tier)
}

fn read_default_tier(value: &Yaml, tiers: &[Tier], reader: &mut FileReader<'_>) -> Option<usize> {
    let name = reader.text(value, "default_tier")?;
    let place = tiers.iter().position(|tier| tier.name == name);
    if place.is_none() {
        let remedy = choose(name, tiers.iter().map(|tier| tier.name.as_str()));
        reader.error(value.line, format!("`default_tier`: there is no tier {}", quoted(name)), remedy);
    }
    place
}

// === checks over all rules of a domain ===

/// Rules and tree limits share one namespace: headers, metrics and counters identify them by name.
fn refuse_twin_rules(rules: &[Rule], tree: &[Node], problems: &mut Problems) {
    let mut names: HashMap<&str, &SourceLocation> = HashMap::new();
    visit(tree, &mut |node| {
        if let Some(limit) = &node.limit {
            names.entry(&limit.name).or_insert(&node.at);
        }
    });
    for rule in rules {
        if let Some(first) = names.get(rule.name.as_str()) {
            let message = format!("the name {} is taken by {}:{}", quoted(&rule.name), first.file, first.line);
            problems.error(&rule.at.file, rule.at.line, TextFault::new(message, "give each rule a name of its own"));
        } else {
            names.insert(&rule.name, &rule.at);
        }
    }
}

fn refuse_twin_nodes(siblings: &[Node], problems: &mut Problems) {
    let mut seen: HashMap<(&str, Option<&str>), &SourceLocation> = HashMap::new();
    for node in siblings {
        let entry = (node.key.as_str(), node.value_text.as_deref());
        if let Some(first) = seen.get(&entry) {
            let shown = quoted(&tree_form::entry_text(entry.0, entry.1));
            let message = format!("the descriptor {shown} is already in {}:{}", first.file, first.line);
            problems.error(&node.at.file, node.at.line, TextFault::new(message, "keep one of the two, or join them"));
        } else {
            seen.insert(entry, &node.at);
        }
        refuse_twin_nodes(&node.children, problems);
    }
}

/// `names` are those of the rules as written: errors in a rule are reported at the rule, not here.
fn check_default_rule<'r>(
    name: &str,
    at: &SourceLocation,
    mut names: Vec<&'r str>,
    tree: &'r [Node],
    problems: &mut Problems,
) {
    visit(tree, &mut |node| names.extend(node.limit.as_ref().map(|limit| limit.name.as_str())));
    if !names.contains(&name) {
        let message = format!("`default_rule`: there is no rule {}", quoted(name));
        let remedy = if names.is_empty() { "remove it".to_owned() } else { choose(name, names.iter().copied()) };
        problems.error(&at.file, at.line, TextFault::new(message, remedy));
    }
}

pub(super) fn visit<'n>(nodes: &'n [Node], look: &mut impl FnMut(&'n Node)) {
    for node in nodes {
        look(node);
        visit(&node.children, look);
    }
}
