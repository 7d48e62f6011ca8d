//! The bodies of the fuzz targets: plain functions, so that the ordinary tests run them too.

use tollgate_rules::{
    Layer, LayerRule, LoadOptions, RuleFile, RuleFiles, RuleProblem, Ruleset, difference, load_sources, short_form,
};

/// A line that ends one rule file of an input and begins the next.
pub const NEXT_FILE: &str = "# next file\n";

/// The most rule files that an input is cut into.
pub const MOST_FILES: usize = 4;

/// Loads an input as rule files and compiles what they say. Whatever it is, the answer is rules, or problems that a person can
/// find and read. Says whether there were rules.
pub fn load_rules(input: &[u8]) -> bool {
    let text = String::from_utf8_lossy(input);
    let sources: Vec<RuleFile> = text
        .splitn(MOST_FILES, NEXT_FILE)
        .enumerate()
        .map(|(at, text)| RuleFile { name: format!("{at}.yaml"), text: text.to_owned() })
        .collect();
    // Merging is between files.
    let ways = if sources.len() > 1 { &[false, true][..] } else { &[false] };
    let mut compiled = false;
    for &merge_domains in ways {
        match load_sources(&sources, &LoadOptions { merge_domains, ..LoadOptions::default() }) {
            Ok(loaded) => {
                loaded.warnings.iter().for_each(|warning| assert_helps(warning, &sources));
                compiled |= Ruleset::compile(loaded.domains, 1).is_ok();
            }
            Err(problems) => {
                assert!(!problems.is_empty(), "refused, and no reason given");
                problems.iter().for_each(|problem| assert_helps(problem, &sources));
            }
        }
    }
    compiled
}

/// The file that rules by API are put above.
const FILE: &str = "domain: d\nentity: user\nrules:\n  - {name: r, key: [user], limit: 1/s}\n";

/// Puts an input above a file, as a rule by API, and takes it for one in short form and for another version of the file's. Says
/// whether there were rules.
pub fn load_layer(input: &[u8]) -> bool {
    let text = String::from_utf8_lossy(input);
    let rule =
        LayerRule { domain: "d".to_owned(), name: "r".to_owned(), rule: text.to_string(), mode: None, version: None };
    let layer = Layer { rules: vec![rule], ..Layer::default() };
    let file = RuleFile { name: "f".to_owned(), text: FILE.to_owned() };
    let sources = [file.clone(), RuleFile { name: "rule r (by API)".to_owned(), text: text.to_string() }];
    let loaded = Ruleset::load_with_layer(RuleFiles::from_files(vec![file]), &LoadOptions::default(), &layer, 1);
    let (compiled, problems) = match loaded {
        Ok((_, warnings)) => (true, warnings),
        Err(problems) => (false, problems),
    };
    assert!(compiled || !problems.is_empty(), "refused, and no reason given");
    problems.iter().for_each(|problem| assert_helps(problem, &sources));
    match short_form(&text) {
        Ok(full) => assert!(difference(&full, &full).is_empty(), "{full} differs from itself"),
        Err(faults) => assert!(!faults.is_empty(), "refused, and no reason given"),
    }
    assert!(difference(&text, &text).is_empty(), "{text} differs from itself");
    let (there, back) =
        (difference("{key: [user], limit: 1/s}", &text), difference(&text, "{key: [user], limit: 1/s}"));
    assert_eq!(there.len(), back.len(), "{there:?} there, {back:?} back");
    compiled
}

/// A problem names one of the files and a line of it, says what is wrong and what to do.
fn assert_helps(problem: &RuleProblem, sources: &[RuleFile]) {
    let source = sources.iter().find(|source| source.name == problem.file.to_string());
    let Some(source) = source else {
        panic!("there is no such file: {problem:?}");
    };
    // The end of a file is a place too: its last line, or the one after that.
    let lines = source.text.split(['\n', '\r']).count() + 1;
    assert!((1..=lines).contains(&problem.line), "there is no such line: {problem:?}");
    assert!(!problem.message.trim().is_empty(), "no message: {problem:?}");
    assert!(!problem.remedy.trim().is_empty(), "no remedy: {problem:?}");
}
