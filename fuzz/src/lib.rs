//! The bodies of the fuzz targets: plain functions, so that the ordinary tests run them too.

use tollgate_rules::{LoadOptions, Source, load_sources};

/// A line that ends one rule file of an input and begins the next.
pub const NEXT_FILE: &str = "# next file\n";

/// The most rule files that an input is cut into.
pub const MOST_FILES: usize = 4;

/// Loads an input as rule files. Whatever it is, the answer is rules, or problems that a person can find and read.
pub fn load_rules(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let sources: Vec<Source> = text
        .splitn(MOST_FILES, NEXT_FILE)
        .enumerate()
        .map(|(at, text)| Source { name: format!("{at}.yaml"), text: text.to_owned() })
        .collect();
    if let Err(problems) = load_sources(&sources, &LoadOptions::default()) {
        assert!(!problems.is_empty(), "refused, and no reason given");
        for problem in problems {
            assert!(!problem.to_string().trim().is_empty(), "a problem without words");
        }
    }
}
