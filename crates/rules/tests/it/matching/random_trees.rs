//! The compiled tree compared with a recursive matcher that is written from the description.

use proptest::prelude::*;
use tollgate_core::ClaimId;
use tollgate_rules::Ruleset;
use tollgate_rules::model::{Node, NodeLimit, RuleMode};
use tollgate_rules::pattern::Pattern;

use crate::matching::TestRequest;
use crate::matching::random_rules::{domain, pattern_text, place, terms, value};

const KEYS: [&str; 3] = ["a", "b", "c"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_tree_finds_what_its_description_says(
        mut tree in prop::collection::vec(node(), 0..8),
        match_parents in any::<bool>(),
        requests in prop::collection::vec(entries(), 1..20),
    ) {
        settle_names(&mut tree, "");
        let mut domain = domain(Vec::new());
        domain.tree = tree.clone();
        domain.match_parents = match_parents;
        let compiled = Ruleset::compile(vec![domain], 1).unwrap();
        for entries in requests {
            let mut expected = Vec::new();
            walk(&tree, &entries, &mut Vec::new(), match_parents, &mut expected);
            let found = TestRequest::from_entries(vec![entries.clone()]).with(|request| {
                let resolved = compiled.resolve(request, ClaimId(1)).unwrap();
                let one = |at: usize| {
                    (resolved.rule(at).unwrap().name().to_owned(), crate::matching::values(resolved.claim.charges[at].key.values()))
                };
                (0..resolved.applied.len()).map(one).collect::<Vec<_>>()
            });
            prop_assert_eq!(found, expected, "{:?}", entries);
        }
    }
}

/// 1. the node with exactly this key and value; 2. otherwise the wildcards of that level in file order; 3. otherwise the
///    node with this key and no value. The limit at the last entry applies; with `match_parents` those before it, too.
fn walk(
    level: &[Node],
    entries: &[(String, String)],
    values: &mut Vec<String>,
    match_parents: bool,
    met: &mut Vec<(String, String)>,
) {
    let Some(((key, value), rest)) = entries.split_first() else { return };
    let keyed = || level.iter().filter(|node| node.key == *key);
    let text = |node: &&Node| node.value_text.clone();
    let exactly = keyed().find(|node| text(node).as_ref() == Some(value) && !value.contains('*'));
    let wild = keyed().find(|node| {
        text(node).is_some_and(|text| text.contains('*')) && node.value.as_ref().is_some_and(|it| it.matches(value))
    });
    let alone = keyed().find(|node| node.value_text.is_none());
    let Some(node) = exactly.or(wild).or(alone) else { return };
    let shared = node.value_text.clone().filter(|_| node.share_threshold);
    values.push(shared.unwrap_or_else(|| value.clone()));
    if let Some(limit) = &node.limit
        && (rest.is_empty() || match_parents)
        && limit.terms.mode != RuleMode::Off
    {
        met.push((limit.name.clone(), values.join(", ")));
    }
    walk(&node.children, rest, values, match_parents, met);
}

/// Files name each limit by its path and reject duplicates.
fn settle_names(nodes: &mut Vec<Node>, parents: &str) {
    let mut seen = std::collections::HashSet::new();
    nodes.retain(|node| seen.insert((node.key.clone(), node.value_text.clone())));
    for (number, node) in nodes.iter_mut().enumerate() {
        let path = format!("{parents}/{number}");
        if let Some(limit) = &mut node.limit {
            limit.name.clone_from(&path);
        }
        settle_names(&mut node.children, &path);
    }
}

fn node() -> impl Strategy<Value = Node> {
    leaf(Just(Vec::new())).prop_recursive(3, 40, 6, |inner| leaf(prop::collection::vec(inner, 0..6)))
}

fn leaf(children: impl Strategy<Value = Vec<Node>>) -> impl Strategy<Value = Node> {
    let value = prop::option::weighted(0.8, pattern_text().prop_filter("an empty value is none", |it| !it.is_empty()));
    let limit = prop::option::weighted(0.8, prop::bool::weighted(0.1));
    (prop::sample::select(&KEYS), value, limit, any::<bool>(), children).prop_map(
        |(key, value_text, limit, share, children)| Node {
            key: key.to_owned(),
            value: value_text.as_deref().map(Pattern::new),
            share_threshold: share && value_text.as_ref().is_some_and(|text| text.contains('*')),
            value_text,
            limit: limit.map(|off| NodeLimit {
                name: String::new(),
                named: false,
                replaces: Vec::new(),
                terms: terms(if off { RuleMode::Off } else { RuleMode::Enforce }),
            }),
            detailed_metric: false,
            value_to_metric: false,
            metadata: Vec::new(),
            children,
            at: place(),
        },
    )
}

fn entries() -> impl Strategy<Value = Vec<(String, String)>> {
    prop::collection::vec((prop::sample::select(&KEYS), value()), 0..5)
        .prop_map(|entries| entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}
