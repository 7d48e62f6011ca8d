//! The documentation against the repository: every path that a page names exists, and every link to a section has its heading.

use crate::checks::Findings;

/// Folders at the root, by which a path from the root is recognised.
const FOLDERS: [&str; 9] =
    ["crates/", "docs/", "deploy/", "demo/", "dashboard/", "bench/", "examples/", "fuzz/", "scripts/"];
/// Folders that a build creates.
const BUILT: [&str; 2] = ["dashboard/dist", "dashboard/node_modules"];

/// A page that is written by the program, whose table says where it comes from.
const GENERATED: &str = "docs/metrics.md";

/// The repository, as far as this check needs it.
pub(crate) trait Repository {
    /// Whether there is a file or folder at this path from the root.
    fn has(&self, path: &str) -> bool;
    /// The text of a page.
    fn page(&self, path: &str) -> Option<&str>;
}

/// Whether a file is a page whose paths are checked.
pub(crate) fn is_page(path: &str) -> bool {
    let in_folder = ["docs/", "deploy/", "fuzz/"].iter().any(|folder| path.starts_with(folder));
    path.ends_with(".md") && path != GENERATED && (in_folder || !path.contains('/'))
}

/// What is wrong with a page.
pub(crate) fn exist(path: &str, text: &str, repository: &impl Repository) -> Findings {
    let mut findings = Findings::new();
    let mut in_block = false;
    for (at, line) in text.lines().enumerate() {
        let mut say = |what: String| findings.push(format!(":{}: {what}", at + 1));
        in_block ^= line.starts_with("```");
        for target in links(line).into_iter().filter(|_| !in_block) {
            if let Err(what) = leads_somewhere(path, target, text, repository) {
                say(what);
            }
        }
        for (package, test) in test_binaries(line) {
            let folder = format!("crates/{}/tests/{test}", package.strip_prefix("tollgate-").unwrap_or(package));
            if !repository.has(&format!("{folder}.rs")) && !repository.has(&format!("{folder}/main.rs")) {
                say(format!("{package} has no test binary {test}"));
            }
        }
        for named in line.split(|c: char| c.is_whitespace() || "`()[]\"'|<>;=".contains(c)) {
            let named = named.trim_end_matches([',', '.', ':', '…', '!', '?']);
            let is_path = FOLDERS.iter().any(|folder| named.strip_prefix(folder).is_some_and(|rest| !rest.is_empty()));
            let is_built = BUILT.iter().any(|folder| named.starts_with(folder));
            let is_link = line.contains(&format!("]({named}")) || line.contains(&format!("\"{named}"));
            if is_path && !is_built && !is_link {
                for one in expanded(named.split('#').next().unwrap_or_default()) {
                    if !repository.has(&one) {
                        say(format!("there is no {one}"));
                    }
                }
            }
        }
    }
    findings
}

/// The packages and test binaries of commands such as `cargo test -p PACKAGE --test NAME`.
fn test_binaries(line: &str) -> Vec<(&str, &str)> {
    let word = |rest: &'static str, from: &str| -> Option<usize> { from.find(rest).map(|at| at + rest.len()) };
    let first = |text: &'_ str| text.split(|c: char| c.is_whitespace() || "`),".contains(c)).next().map_or(0, str::len);
    let commands = line.match_indices("cargo test ").map(|(at, _)| &line[at..]);
    let named = commands.filter_map(|command| {
        let (package, test) = (&command[word(" -p ", command)?..], &command[word(" --test ", command)?..]);
        Some((&package[..first(package)], &test[..first(test)]))
    });
    named.collect()
}

/// The targets of links and pictures in a line.
fn links(line: &str) -> Vec<&str> {
    let after = |sign: &'static str, end: char| {
        line.match_indices(sign).filter_map(move |(at, sign)| line[at + sign.len()..].split(end).next())
    };
    let reference = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    let reference = reference.filter(|(name, _)| !name.contains(']')).map(|(_, target)| target.trim());
    after("](", ')').chain(after("src=\"", '"')).chain(reference).collect()
}

fn leads_somewhere(path: &str, target: &str, text: &str, repository: &impl Repository) -> Result<(), String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(());
    }
    let (file, section) = target.split_once('#').map_or((target, None), |(file, section)| (file, Some(section)));
    let to = if file.is_empty() { path.to_owned() } else { resolved(path, file) };
    if !file.is_empty() && !repository.has(&to) {
        return Err(format!("the link {target} leads to {to}, which does not exist"));
    }
    let Some(section) = section else { return Ok(()) };
    let page = if file.is_empty() { Some(text) } else { repository.page(&to) };
    match page {
        Some(page) if sections(page).iter().any(|other| other == section) => Ok(()),
        _ => Err(format!("the link {target} leads to a section that {to} does not have")),
    }
}

/// A path relative to a page, from the root.
fn resolved(page: &str, target: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The paths that one with `{a,b}` stands for. From a `*` on, only the folder counts.
fn expanded(path: &str) -> Vec<String> {
    if let Some((before, rest)) = path.split_once('{') {
        let (inside, after) = rest.split_once('}').unwrap_or((rest, ""));
        return inside.split(',').flat_map(|one| expanded(&format!("{before}{one}{after}"))).collect();
    }
    let fixed = path.split(['*', '…']).next().unwrap_or_default();
    let folder = if fixed.len() < path.len() { fixed.rsplit_once('/').map_or("", |(folder, _)| folder) } else { fixed };
    vec![folder.trim_end_matches('/').to_owned()]
}

/// The names by which links reach the headings of a page.
fn sections(page: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut in_block = false;
    for line in page.lines() {
        in_block ^= line.starts_with("```");
        let Some(heading) = line.strip_prefix('#').filter(|_| !in_block) else { continue };
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let signs = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let name: String = signs.map(|c| if c == ' ' { '-' } else { c }).collect();
        let before =
            names.iter().filter(|other| other.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-') == name);
        let count = before.count();
        names.push(if count == 0 { name } else { format!("{name}-{count}") });
    }
    names
}

/// The list of the pages of the site.
pub(crate) const SUMMARY: &str = "docs/site/SUMMARY.md";

/// The folders whose pages are all in the list.
const SITE_FOLDERS: [&str; 3] = ["docs", "docs/guides", "docs/adr"];

/// The pages that the list lacks.
pub(crate) fn unlisted<'p>(files: impl Iterator<Item = &'p str>, summary: &str) -> Findings {
    let is_page = |path: &&str| {
        path.ends_with(".md") && path.rsplit_once('/').is_some_and(|(folder, _)| SITE_FOLDERS.contains(&folder))
    };
    let is_unlisted = |path: &&str| !summary.contains(&format!("](../{})", path.trim_start_matches("docs/")));
    files.filter(is_page).filter(is_unlisted).map(|path| format!("{SUMMARY} does not list {path}")).collect()
}
