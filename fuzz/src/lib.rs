//! The bodies of the fuzz targets: plain functions, so that the ordinary tests run them too.

use tollgate_rules::{LoadOptions, Problem, Ruleset, Source, load_sources};

/// A line that ends one rule file of an input and begins the next.
pub const NEXT_FILE: &str = "# next file\n";

/// The most rule files that an input is cut into.
pub const MOST_FILES: usize = 4;

/// Loads an input as rule files and compiles what they say. Whatever it is, the answer is rules, or problems that a person can
/// find and read. Says whether there were rules.
pub fn load_rules(input: &[u8]) -> bool {
    let text = String::from_utf8_lossy(input);
    let sources: Vec<Source> = text
        .splitn(MOST_FILES, NEXT_FILE)
        .enumerate()
        .map(|(at, text)| Source { name: format!("{at}.yaml"), text: text.to_owned() })
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

/// A problem names one of the files and a line of it, says what is wrong and what to do.
fn assert_helps(problem: &Problem, sources: &[Source]) {
    let source = sources.iter().find(|source| *source.name == *problem.file);
    let Some(source) = source else {
        panic!("there is no such file: {problem:?}");
    };
    // The end of a file is a place too: its last line, or the one after that.
    let lines = source.text.split(['\n', '\r']).count() + 1;
    assert!((1..=lines).contains(&problem.line), "there is no such line: {problem:?}");
    assert!(!problem.message.trim().is_empty(), "no message: {problem:?}");
    assert!(!problem.remedy.trim().is_empty(), "no remedy: {problem:?}");
}
