//! Files and the resulting problems or rules.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails may panic")]

mod bounds;
mod files;
mod forms;
mod random;
mod regions;

use super::{LoadOptions, LoadedRules, RuleFile, load_sources};
use crate::model::Domain;
use crate::problem::RuleProblem;

/// Cases: a name after `#####`, a file, `-----`, and the problems of that file.
const PROBLEMS: &str = include_str!("../../tests/files/problems.txt");

pub(super) fn load(text: &str) -> Result<LoadedRules, Vec<RuleProblem>> {
    load_sources(&[RuleFile { name: "f".to_owned(), text: text.to_owned() }], &LoadOptions::default())
}

/// The single domain of a valid file.
pub(super) fn domain(text: &str) -> Domain {
    let loaded = load(text).unwrap_or_else(|problems| panic!("{}\n{text}", text_of(&problems)));
    assert_eq!(loaded.domains.len(), 1, "{text}");
    loaded.domains.into_iter().next().unwrap()
}

pub(super) fn text_of(problems: &[RuleProblem]) -> String {
    problems.iter().map(RuleProblem::to_string).collect::<Vec<_>>().join("\n")
}

/// Checks that a file has exactly these problems, errors and warnings.
fn check(name: &str, text: &str, expected: &str) {
    let problems = match load(text) {
        Ok(loaded) => loaded.warnings,
        Err(problems) => problems,
    };
    assert_eq!(text_of(&problems), expected, "\n{name}:\n{text}");
}

#[test]
fn every_problem_has_its_line_and_its_remedy() {
    let mut cases = 0;
    for case in PROBLEMS.split("#####").skip(1) {
        let (name, rest) = case.split_once('\n').unwrap();
        let (text, expected) = rest.split_once("-----\n").unwrap();
        check(name.trim(), text, expected.trim_end());
        cases += 1;
    }
    assert!(cases > 100, "only {cases} cases were found");
}

#[test]
fn what_can_not_stand_in_the_list_of_cases() {
    check(
        "a zero byte",
        "domain: d\n\0rules: []\n",
        "f:2: error: there is a zero byte in this line; remove it; the file must be text",
    );
    check("a byte order mark is not text", "\u{feff}domain: d\n", "");
}

#[test]
fn one_bad_file_does_not_hide_the_problems_of_another() {
    let source = |name: &str, text: &str| RuleFile { name: name.to_owned(), text: text.to_owned() };
    let sources = [source("a", "domain: ["), source("b", "domain: d\nrulez: []\n"), source("c", "domain: e\n")];
    let problems = load_sources(&sources, &LoadOptions::default()).unwrap_err();
    let places: Vec<_> = problems.iter().map(|problem| format!("{}:{}", problem.file, problem.line)).collect();
    assert_eq!(places, ["a:1", "b:2"]);
}

#[test]
fn merged_domains_share_their_settings_and_refuse_twins() {
    let source = |name: &str, text: &str| RuleFile { name: name.to_owned(), text: text.to_owned() };
    let first = source("a", "domain: d\nentity: u\ntiers: {x: {}}\nrules: [{name: r, key: [u], limit: {x: 1/s}}]\n");
    let second = source("b", "domain: d\nrules: [{name: s, key: [u], limit: {x: 2/s}}]\ndescriptors: [{key: k}]\n");
    let merge = LoadOptions { merge_domains: true, ..LoadOptions::default() };

    let loaded = load_sources(&[first.clone(), second.clone()], &merge).unwrap();
    assert_eq!(loaded.domains.len(), 1);
    let domain = &loaded.domains[0];
    assert_eq!(domain.entity.as_deref(), Some("u"));
    let rules: Vec<_> = domain.rules.iter().map(|rule| format!("{} in {}", rule.name, rule.at.file)).collect();
    assert_eq!(rules, ["r in a", "s in b"]);
    assert_eq!(domain.tree.len(), 1);

    let twins =
        source("c", "domain: d\nentity: v\nrules: [{name: r, key: [u], limit: 1/s}]\ndescriptors: [{key: k}]\n");
    let problems = load_sources(&[first.clone(), second.clone(), twins], &merge).unwrap_err();
    assert_eq!(
        text_of(&problems),
        "c:2: error: `entity` of this domain is also set in a:2; keep it in one of the merged files\n\
         c:3: error: the name `r` is taken by a:4; give each rule a name of its own\n\
         c:4: error: the descriptor `k` is already in b:3; keep one of the two, or join them"
    );

    let problems = load_sources(&[first, second], &LoadOptions::default()).unwrap_err();
    let message =
        "the domain `d` is also in a:1; put both in one file, rename one, or have domains merged (`--merge-domains`)";
    assert!(text_of(&problems).starts_with(&format!("b:1: error: {message}")), "{}", text_of(&problems));
}
