//! envoyproxy/ratelimit's `descriptors` tree, compiled.
//!
//! Entries are matched one by one, without backtracking: the node with exactly this key and value; otherwise the
//! wildcards of that level in the order of the file; otherwise the node with this key and no value.

use std::collections::HashMap;

use smallvec::SmallVec;
use tollgate_core::key::Home;

use crate::address::{counted, is_address};
use crate::index::{ByText, Id, Patterns};
use crate::model;
use crate::pattern::Pattern;
use crate::rule::{CounterScope, Rule};
use tollgate_core::Value;

/// The tree of one domain.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// The first node is the root, which is not an entry.
    nodes: Vec<TreeNode>,
    match_parents: bool,
}

/// One node.
#[derive(Debug, Default)]
pub(crate) struct TreeNode {
    children: ByText<Children>,
    pub(crate) limit: Option<CompiledNodeLimit>,
    /// The text that represents all values of the node, if they share a counter.
    shared: Option<Box<str>>,
    /// The values are addresses.
    address: bool,
}

/// The limit of a node.
#[derive(Debug)]
pub(crate) struct CompiledNodeLimit {
    /// The index of the rule in the domain.
    pub(crate) rule: Id,
    /// The name from the file.
    pub(crate) name: Option<Box<str>>,
    /// The names of the limits that it replaces.
    pub(crate) replaces: Vec<Box<str>>,
    /// How many bits of an IPv6 address identify a counter.
    ipv6_prefix: u8,
    /// Every IPv6 address on the path is counted by that prefix, not only those of attributes that are known to be
    /// addresses.
    ipv6_prefix_given: bool,
}

/// The children with one key.
#[derive(Debug, Default)]
struct Children {
    values: Patterns,
    /// The nodes of the ids in `values`, in the order of the file.
    nodes: Vec<usize>,
    /// The node for all other values.
    any: Option<usize>,
}

/// A limit that matches a descriptor.
pub(crate) struct TreeMatch<'t> {
    pub(crate) limit: &'t CompiledNodeLimit,
    pub(crate) values: SmallVec<[Value<'t>; 2]>,
}

/// How far a descriptor matches.
pub(crate) struct Walk {
    /// The number of entries that match a node.
    pub(crate) depth: usize,
    /// The nodes, in order.
    path: SmallVec<[usize; 4]>,
}

impl Tree {
    pub(crate) fn compile(domain: &model::Domain, rules: &mut Vec<Rule>) -> Tree {
        let mut tree = Tree { nodes: vec![TreeNode::default()], match_parents: domain.match_parents };
        let mut compiler = TreeCompiler { domain, rules, keys: Vec::new(), path: String::new() };
        compiler.children(&mut tree, 0, &domain.tree);
        tree
    }

    /// Whether the limits of ancestors are charged too.
    pub(crate) fn matches_parents(&self) -> bool {
        self.match_parents
    }

    /// Whether the tree has no nodes.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.len() <= 1
    }

    /// Follows the entries of a descriptor.
    pub(crate) fn walk(&self, entries: &[(&str, &str)]) -> Walk {
        let mut walk = Walk { depth: 0, path: SmallVec::new() };
        let mut at = 0;
        for (key, value) in entries {
            let Some(next) = self.nodes[at].children.get(*key).and_then(|children| children.find(value)) else {
                break;
            };
            walk.path.push(next);
            walk.depth += 1;
            at = next;
        }
        walk
    }

    /// The limits that match a descriptor: that of its last entry, and with `match_parents` those of its ancestors.
    pub(crate) fn met<'t, 'w>(
        &'t self,
        walk: &'w Walk,
        entries: &'t [(&'t str, &'t str)],
    ) -> impl Iterator<Item = TreeMatch<'t>> + use<'t, 'w> {
        let complete = walk.depth == entries.len();
        let last = walk.path.len().saturating_sub(1);
        walk.path.iter().enumerate().filter_map(move |(at, node)| {
            if !(self.match_parents || complete && at == last) {
                return None;
            }
            let node = &self.nodes[*node];
            let limit = node.limit.as_ref()?;
            let values = walk
                .path
                .iter()
                .zip(entries)
                .take(at + 1)
                .map(|(node, (_, value))| self.nodes[*node].value(value, limit));
            Some(TreeMatch { limit, values: values.collect() })
        })
    }
}

impl TreeNode {
    /// A value as part of the key of a limit.
    fn value<'r>(&'r self, value: &'r str, limit: &CompiledNodeLimit) -> Value<'r> {
        match &self.shared {
            Some(shared) => Value::Text(shared),
            None if self.address || limit.ipv6_prefix_given => counted(value, limit.ipv6_prefix),
            None => Value::Text(value),
        }
    }
}

impl Children {
    fn find(&self, value: &str) -> Option<usize> {
        if let [first, ..] = self.values.exact(value) {
            return Some(self.nodes[*first as usize]);
        }
        let mut first: Option<Id> = None;
        self.values.wild(value, |id| first = Some(first.map_or(id, |first| first.min(id))));
        first.map(|id| self.nodes[id as usize]).or(self.any)
    }
}

/// The nodes of one key, in the order of the file.
#[derive(Default)]
struct SiblingNodes<'a> {
    values: Vec<(&'a Pattern, usize)>,
    any: Option<usize>,
}

struct TreeCompiler<'a> {
    domain: &'a model::Domain,
    rules: &'a mut Vec<Rule>,
    /// The keys on the path to the current node.
    keys: Vec<(&'a str, Option<&'a Pattern>)>,
    /// The same with values, as a text that is unique among nodes and rules of the list: those are ASCII.
    path: String,
}

impl<'a> TreeCompiler<'a> {
    fn children(&mut self, tree: &mut Tree, parent: usize, nodes: &'a [model::Node]) {
        let mut by_key: HashMap<&str, SiblingNodes<'_>> = HashMap::new();
        for node in nodes {
            let number = self.node(tree, node);
            let siblings = by_key.entry(&node.key).or_default();
            match &node.value {
                Some(pattern) => siblings.values.push((pattern, number)),
                None => siblings.any = Some(number),
            }
        }
        for (key, SiblingNodes { values, any }) in by_key {
            let nodes = values.iter().map(|(_, number)| *number).collect();
            let values = Patterns::new(values.iter().zip(0..).map(|((pattern, _), id)| (*pattern, id)));
            tree.nodes[parent].children.insert(key.into(), Children { values, nodes, any });
        }
    }

    fn node(&mut self, tree: &mut Tree, node: &'a model::Node) -> usize {
        let (length, number) = (self.path.len(), tree.nodes.len());
        self.keys.push((&node.key, node.value.as_ref()));
        self.path.push('→');
        self.path.push_str(&escaped(&node.key));
        if let Some(value) = &node.value_text {
            self.path.push('=');
            self.path.push_str(&escaped(value));
        }
        let limit = node.limit.as_ref().map(|limit| self.limit(limit, node));
        tree.nodes.push(TreeNode {
            children: ByText::default(),
            limit,
            shared: node.value_text.as_deref().filter(|_| node.share_threshold).map(Into::into),
            address: is_address(&node.key),
        });
        self.children(tree, number, &node.children);
        self.keys.pop();
        self.path.truncate(length);
        number
    }

    fn limit(&mut self, limit: &model::NodeLimit, node: &model::Node) -> CompiledNodeLimit {
        let entity = self.domain.entity.as_deref();
        let home = match self.keys.iter().position(|(key, _)| Some(*key) == entity) {
            Some(at) => Home::Caller(at),
            None => Home::Own,
        };
        let private = self.keys.iter().map(|(key, _)| self.domain.private.contains(key)).collect();
        let (global, is_owned) = (limit.terms.region.global(), limit.terms.region.is_home());
        let counters = CounterScope { domain: &self.domain.name, path: &self.path, home, private, global, is_owned };
        let mut rule = Rule::with_terms(&limit.name, &counters, &limit.terms, node.at.clone());
        rule.named = limit.named;
        rule.metadata = node.metadata.clone().into();
        rule.path = self.keys.iter().map(|(key, value)| ((*key).to_owned(), value.cloned())).collect();
        self.rules.push(rule);
        CompiledNodeLimit {
            rule: self.rules.len() as Id - 1,
            name: limit.named.then(|| limit.name.as_str().into()),
            replaces: limit.replaces.iter().map(|name| name.as_str().into()).collect(),
            ipv6_prefix: limit.terms.ipv6_prefix,
            ipv6_prefix_given: limit.terms.ipv6_prefix_given,
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('=', "%3D").replace('→', "%→")
}
