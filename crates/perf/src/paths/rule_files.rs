//! Loading and compiling rule files.

use std::fmt::Write as _;
use std::hint::black_box;

use tollgate_rules::{LoadOptions, RuleFile, load_sources};

use super::Iteration;

const RULES: usize = 1_000;

pub(super) fn load() -> Iteration {
    let mut text = "domain: api\nentity: api_key\nrules:\n".to_owned();
    for number in 0..RULES {
        let _ = writeln!(
            text,
            "  - name: rule-{number}\n    key: [api_key]\n    match: {{endpoint: \"GET /v1/things/{number}*\"}}\n    limit: {{free: {}/minute, pro: 1000/minute}}",
            number + 1
        );
    }
    let files = [RuleFile { name: "rules.yaml".to_owned(), text }];
    Box::new(move || {
        let loaded = load_sources(&files, &LoadOptions::default()).map(|loaded| loaded.domains);
        let rules = loaded.map(|domains| tollgate::Ruleset::compile(domains, 1));
        assert!(matches!(rules, Ok(Ok(_))), "the rules are sound");
        black_box(rules).ok();
    })
}
