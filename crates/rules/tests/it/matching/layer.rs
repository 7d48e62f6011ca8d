//! The layer above the files: the resulting rules, and its problems.

use tollgate_rules::model::RuleMode;
use tollgate_rules::{Layer, LayerMode, LayerRule, LoadOptions, RuleFile, RuleFiles, RuleProblem, Ruleset, Switch};

use crate::matching::met;

/// Cases: a name after `#####`, a file, the parts of a layer after `=====`, `-----`, and the problems of both.
const LAYERS: &str = include_str!("../../files/layers.txt");

/// A file, and the parts of its layer.
fn parse(text: &str) -> (RuleFiles, Layer) {
    let (file, parts) = text.split_once("===== ").unwrap_or((text, ""));
    let files = RuleFiles::from_files(vec![RuleFile { name: "f".to_owned(), text: file.to_owned() }]);
    let mut layer = Layer::default();
    for part in parts.split("===== ").filter(|part| !part.is_empty()) {
        let (head, text) = part.split_once('\n').unwrap_or((part, ""));
        match head.split(' ').collect::<Vec<_>>().as_slice() {
            ["rule", name, rest @ ..] => {
                let (domain, name) = name.split_once('/').unwrap();
                let mode = rest.first().map(|mode| match *mode {
                    "shadow" => LayerMode::Shadow,
                    "off" => LayerMode::Off,
                    other => panic!("{other} is no mode of a rule"),
                });
                let (domain, name) = (domain.to_owned(), name.to_owned());
                layer.rules.push(LayerRule { domain, name, rule: text.to_owned(), mode, version: None });
            }
            ["switch", of @ .., mode] => layer.switches.push(switch(of, mode)),
            _ => panic!("{head} is no part of a layer"),
        }
    }
    (files, layer)
}

fn switch(of: &[&str], mode: &str) -> Switch {
    let (domain, rule) = match of {
        ["everything"] => (None, None),
        ["domain", domain] => (Some(*domain), None),
        ["rule", rule] => (None, Some(*rule)),
        [both] => both.split_once('/').map(|(domain, rule)| (Some(domain), Some(rule))).unwrap(),
        _ => panic!("{of:?} can't be switched"),
    };
    let mode = match mode {
        "enforce" => RuleMode::Enforce,
        "shadow" => RuleMode::Shadow,
        "soft" => RuleMode::Soft,
        "off" => RuleMode::Off,
        other => panic!("{other} is no mode"),
    };
    Switch { domain: domain.map(str::to_owned), rule: rule.map(str::to_owned), mode }
}

fn load(text: &str) -> Result<(Ruleset, Vec<RuleProblem>), Vec<RuleProblem>> {
    let (files, layer) = parse(text);
    Ruleset::load_with_layer(files, &LoadOptions::default(), &layer, 1)
}

#[track_caller]
fn rules(text: &str) -> Ruleset {
    load(text).unwrap_or_else(|problems| panic!("{problems:#?}\n{text}")).0
}

/// The limits that apply to a request under a file and a layer.
#[track_caller]
fn check(text: &str, rows: &[(&str, &[&str])]) {
    let rules = rules(text);
    for (request, expected) in rows {
        assert_eq!(met(&rules, request).unwrap(), *expected, "{request}\n{text}");
    }
}

#[test]
fn every_problem_of_a_layer_has_its_place_and_its_remedy() {
    let mut cases = 0;
    for case in LAYERS.split("##### ").skip(1) {
        let (name, rest) = case.split_once('\n').unwrap();
        let (text, expected) = rest.split_once("-----\n").unwrap();
        let problems = load(text).map_or_else(|problems| problems, |(_, warnings)| warnings);
        let reported = problems.iter().map(RuleProblem::to_string).collect::<Vec<_>>().join("\n");
        assert_eq!(reported, expected.trim_end(), "\n{name}:\n{text}");
        assert!(problems.iter().all(|problem| problem.is_by_api() != (problem.file.to_string() == "f")));
        cases += 1;
    }
    assert!(cases >= 15, "only {cases} cases were found");
}

const LIST: &str = "
domain: d
entity: user
rules:
  - {name: first, key: [user], limit: 1/s}
  - {name: second, key: [user], limit: 2/s, match: {path: /x}}
  - {name: third, key: [user], limit: 3/s, mode: shadow}
  - {name: share, key: [user], limit: 4/s, enforce: 0%}
";

#[test]
fn a_rule_takes_the_place_of_its_name_or_the_last() {
    let text = format!(
        r#"{LIST}
===== rule d/new
{{"key": ["user"], "limit": "9/m", "algorithm": "token_bucket", "burst": 12}}
===== rule d/second
{{"key": [], "limit": "20/s"}}
===== rule d/quiet shadow
key: [user]
limit: 5/s
===== rule d/quiet-off shadow
{{key: [user], limit: 5/s, enabled: false}}
===== rule d/third off
{{"key": ["user"], "limit": "1/s"}}
"#
    );
    let expected =
        ["first(u) 1/1s", "second() 20/1s", "share(u) 4/1s shadow", "new(u) 9/60s burst 12", "quiet(u) 5/1s shadow"];
    check(&text, &[("user=u", &expected)]);
    let rules = rules(&text);
    let places: Vec<_> = rules.domains()[0].rules().iter().map(|rule| rule.location().is_by_api()).collect();
    assert_eq!(places, [false, true, true, false, true, true, true]);
}

/// What is possible in JSON and not in YAML, and keywords that JSON has to quote.
#[test]
fn json_is_read_as_json() {
    let text = r#"
domain: d
===== rule d/smile
{"key": [], "limit": "1/s", "match": {"path": "\/\ud83d\ude00"}}
===== rule d/absent
{"key": [], "limit": "2/s", "match": {"user": "absent", "path": "present"}, "cost": {"path": {"/a": 3, "default": 2}}}
===== rule d/value
{
	"key": [],
	"limit": "3/s", "match": {"user": ["absent"]}
}
===== rule d/word
{key: [], limit: 4/s, match: {user: "absent"}}
"#;
    check(
        text,
        &[
            ("path=/😀", &["smile() 1/1s", "absent() 2/1s ×2"]),
            ("path=/a", &["absent() 2/1s ×3"]),
            ("user=absent, path=/a", &["value() 3/1s", "word() 4/1s"]),
            ("user=u", &[]),
        ],
    );
}

#[test]
fn the_most_specific_switch_counts() {
    let of = |switches: &str| format!("{LIST}{switches}");
    let all =
        |mode: &str| [format!("first(u) 1/1s{mode}"), format!("third(u) 3/1s{mode}"), format!("share(u) 4/1s{mode}")];
    for (word, mode) in [("enforce", ""), ("shadow", " shadow"), ("soft", " soft")] {
        for what in ["everything", "domain d"] {
            let rules = rules(&of(&format!("===== switch {what} {word}\n")));
            assert_eq!(met(&rules, "user=u").unwrap(), all(mode), "{what} {word}");
        }
    }
    let none: &[&str] = &[];
    check(&of("===== switch everything off\n"), &[("user=u, path=/x", none)]);
    check(&of("===== switch domain d off\n"), &[("user=u, path=/x", none)]);
    check(
        &of("===== switch domain e off\n===== switch everything shadow\n"),
        &[("user=u", &all(" shadow").each_ref().map(|s| &**s))],
    );
    check(
        &of("===== switch d/first enforce\n===== switch domain d soft\n===== switch everything off\n"),
        &[("user=u", &["first(u) 1/1s", "third(u) 3/1s soft", "share(u) 4/1s soft"])],
    );
    check(
        &of("===== switch rule first off\n===== switch d/first soft\n===== switch rule third enforce\n"),
        &[("user=u", &["first(u) 1/1s soft", "third(u) 3/1s", "share(u) 4/1s shadow"])],
    );
    // Of two switches with the same scope, the last one applies.
    check(
        &of(
            "===== switch everything off\n===== switch everything soft\n===== switch d/first off\n===== switch d/first shadow\n",
        ),
        &[("user=u", &["first(u) 1/1s shadow", "third(u) 3/1s soft", "share(u) 4/1s soft"])],
    );
}

#[test]
fn switches_of_a_tree() {
    let tree = "
domain: d
descriptors:
  - key: user
    rate_limit: {unit: second, requests_per_unit: 1}
    descriptors:
      - {key: path, value: /x, rate_limit: {name: named, unit: second, requests_per_unit: 2}, quota_mode: true}
      - {key: path, rate_limit: {unit: second, requests_per_unit: 3}}
";
    let rows: [&str; 3] = ["user=u", "user=u, path=/x", "user=u, path=/y"];
    let matched = |switches: &str| {
        let rules = rules(&format!("{tree}{switches}"));
        rows.map(|request| met(&rules, request).unwrap().join("; "))
    };
    assert_eq!(matched(""), ["user(u) 1/1s", "named(u, /x) 2/1s any-of", "user/path(u, /y) 3/1s"]);
    assert_eq!(
        matched("===== switch d/user/path off\n===== switch rule named shadow\n"),
        ["user(u) 1/1s", "named(u, /x) 2/1s shadow", ""]
    );
    assert_eq!(matched("===== switch everything off\n===== switch rule user soft\n"), ["user(u) 1/1s soft", "", ""]);
}

/// The mode of a rule by API was set individually; only a switch of this very rule overrides it.
#[test]
fn what_a_rule_is_allowed_bounds_switches_of_more() {
    let text = |switches: &str| {
        format!(
            "domain: d\n===== rule d/quiet shadow\n{{key: [], limit: 1/s}}\n===== rule d/off off\n{{key: [], limit: 2/s}}\n{switches}"
        )
    };
    for wide in ["everything enforce", "domain d soft", "domain d shadow"] {
        check(&text(&format!("===== switch {wide}\n")), &[("", &["quiet() 1/1s shadow"])]);
    }
    check(&text("===== switch domain d off\n"), &[("", &[])]);
    check(
        &text("===== switch d/quiet enforce\n===== switch rule off soft\n===== switch everything off\n"),
        &[("", &["quiet() 1/1s", "off() 2/1s soft"])],
    );
}

#[test]
fn a_rule_that_is_off_takes_the_files_rule_along() {
    for text in ["", "{\"limit\": 5}", "{\"key\": [\"user\"], \"limit\": \"9/s\"}", "]"] {
        check(
            &format!("{LIST}===== rule d/first off\n{text}\n"),
            &[("user=u", &["third(u) 3/1s shadow", "share(u) 4/1s shadow"])],
        );
    }
}

#[test]
fn a_layer_without_what_is_at_fault() {
    let (files, layer) = parse(&format!(
        "{LIST}===== rule d/good\n{{key: [], limit: 1/s}}\n===== rule d/bad\n{{key: []}}\n===== rule e/lost\n{{key: [], limit: 1/s}}\n===== switch rule x off\n"
    ));
    let problems = files.load_with_layer(&LoadOptions::default(), &layer).unwrap_err();
    let rest = layer.without_faulty(&problems);
    assert_eq!(rest.rules.iter().map(|rule| rule.name.as_str()).collect::<Vec<_>>(), ["good"]);
    assert_eq!(rest.switches, layer.switches);
}

#[test]
fn a_faulty_rule_leaves_its_namesake_in_another_domain() {
    let (files, layer) = parse(
        "domain: d\n---\ndomain: e\n===== rule d/same\n{key: [], limit: 1/s}\n===== rule e/same\n{key: []}\n===== rule e/other off\n{key: []}\n",
    );
    let problems = files.load_with_layer(&LoadOptions::default(), &layer).unwrap_err();
    let rest = layer.without_faulty(&problems);
    let names: Vec<_> = rest.rules.iter().map(|rule| (rule.domain.as_str(), rule.name.as_str())).collect();
    assert_eq!(names, [("d", "same"), ("e", "other")]);
}

#[test]
fn a_file_with_the_name_of_a_rule_by_api_is_a_file() {
    let (_, layer) = parse("domain: d\n===== rule d/same\n{key: [], limit: 1/s}\n");
    let file = RuleFile { name: "rule same (by API)".to_owned(), text: "domain: d\nrules: 7\n".to_owned() };
    let problems = RuleFiles::from_files(vec![file]).load_with_layer(&LoadOptions::default(), &layer).unwrap_err();
    assert!(problems.iter().all(|problem| !problem.is_by_api()), "{problems:?}");
    assert_eq!(layer.without_faulty(&problems), layer);
}

#[test]
fn a_text_may_be_so_long_and_no_longer() {
    let rule = |length: usize| {
        let text = "{\"key\": [], \"limit\": \"1/s\"}";
        let rule = format!("{text}{}", " ".repeat(length - text.len()));
        let layer = Layer {
            rules: vec![LayerRule { domain: "d".to_owned(), name: "r".to_owned(), rule, mode: None, version: None }],
            ..Layer::default()
        };
        let files = RuleFiles::from_files(vec![RuleFile { name: "f".to_owned(), text: "domain: d\n".to_owned() }]);
        files.load_with_layer(&LoadOptions::default(), &layer).map(drop)
    };
    assert!(rule(LayerRule::MAX_BYTES).is_ok());
    let problems = rule(LayerRule::MAX_BYTES + 1).unwrap_err();
    assert_eq!(
        problems[0].to_string(),
        "rule r (by API):1: error: the rule is longer than 256 KiB; write it shorter, or in a file"
    );
}
