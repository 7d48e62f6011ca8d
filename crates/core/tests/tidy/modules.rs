//! Modules of a crate depend on each other one way.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::code;

/// For each module of a crate, the modules that it uses. Only those directly below the crate's root count: what is inside of one is its
/// own affair.
pub(crate) type Uses = BTreeMap<String, BTreeSet<String>>;

/// The modules of a crate and what they use, from the paths (below `src/`) and texts of its sources.
pub(crate) fn uses<'f>(files: impl Iterator<Item = (&'f str, &'f str)> + Clone) -> Uses {
    let modules: BTreeSet<_> = files.clone().filter_map(|(path, _)| module(path)).collect();
    let root = files.clone().find(|(path, _)| *path == "lib.rs").map(|(_, text)| code(text)).unwrap_or_default();
    let exports = exports(&root, &modules);
    let mut uses = Uses::new();
    for (path, text) in files {
        let Some(user) = module(path) else { continue };
        let used = paths(&code(text), path).into_iter().filter_map(|first| {
            let of_module = modules.contains(&first).then(|| first.clone());
            of_module.or_else(|| exports.get(&first).cloned())
        });
        let used: BTreeSet<_> = used.filter(|used| *used != user).collect();
        uses.entry(user).or_default().extend(used);
    }
    uses
}

/// A cycle among modules, if there is one: each uses the next, and the last the first.
pub(crate) fn cycle(uses: &Uses) -> Option<Vec<String>> {
    uses.keys().find_map(|start| {
        let mut path = vec![start.clone()];
        let mut visited = BTreeSet::new();
        find(uses, start, start, &mut path, &mut visited).then_some(path)
    })
}

/// Whether a way leads from one module to another; `path` is that way.
fn find(uses: &Uses, from: &str, to: &str, path: &mut Vec<String>, visited: &mut BTreeSet<String>) -> bool {
    for next in uses.get(from).into_iter().flatten() {
        if next == to {
            return true;
        }
        if visited.insert(next.clone()) {
            path.push(next.clone());
            if find(uses, next, to, path, visited) {
                return true;
            }
            path.pop();
        }
    }
    false
}

/// The module directly below the root that a file belongs to.
fn module(path: &str) -> Option<String> {
    let first = path.split('/').next()?;
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (!["lib", "main"].contains(&name)).then(|| name.to_owned())
}

/// The first segments behind `crate::`, and behind as many `super::` as lead to the root.
fn paths(code: &str, file: &str) -> Vec<String> {
    let depth = file.trim_end_matches("/mod.rs").trim_end_matches(".rs").split('/').count();
    let to_root = "super::".repeat(depth);
    let mut found = Vec::new();
    for (at, prefix) in code.match_indices("crate::").chain(code.match_indices(&to_root)) {
        // `pub(in crate::a)` says who may use it, not what it uses.
        let is_visibility = code[..at].ends_with("in ");
        let is_longer =
            code[..at].ends_with("super::") || code[..at].chars().next_back().is_some_and(char::is_alphanumeric);
        let rest = &code[at + prefix.len()..];
        if is_visibility || is_longer || rest.starts_with("super::") {
            continue;
        }
        match rest.strip_prefix('{') {
            None => found.push(name(rest)),
            Some(group) => found.extend(top_level(group).map(name)),
        }
    }
    found
}

/// The entries of a `{…}`, without what is inside of braces of their own.
fn top_level(group: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let end = group.char_indices().find(|(_, c)| {
        depth += i32::from(*c == '{') - i32::from(*c == '}');
        depth < 0
    });
    let group = &group[..end.map_or(group.len(), |(at, _)| at)];
    let mut depth = 0;
    group.split(move |c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    })
}

fn name(text: &str) -> String {
    text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// What the root exports, and of which module: `pub use module::{A, B}`.
fn exports(root: &str, modules: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for statement in root.split(';') {
        let Some((_, path)) = statement.split_once("use ") else { continue };
        let Some((first, rest)) = path.split_once("::") else { continue };
        let first = first.trim();
        if !modules.contains(first) {
            continue;
        }
        let names: Vec<_> = match rest.split_once('{') {
            Some((_, group)) => top_level(group).map(last).collect(),
            None => vec![last(rest)],
        };
        // A trailing comma leaves an entry without a name.
        let names = names.into_iter().filter(|name| !name.is_empty());
        exports.extend(names.map(|name| (name, first.to_owned())));
    }
    exports
}

/// The name that a path brings into scope.
fn last(path: &str) -> String {
    let path = path.rsplit(" as ").next().unwrap_or_default();
    name(path.rsplit("::").next().unwrap_or_default())
}
