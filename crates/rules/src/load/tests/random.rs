//! No text makes the loader panic.

use proptest::prelude::*;

use super::load;

/// Fragments of rule files and of YAML, so that random texts get past the parser and deep into the readers.
const PIECES: &[&str] = &[
    "domain: d\n",
    "rules:\n",
    "descriptors:\n",
    "- ",
    "  - ",
    "    ",
    "  ",
    "\n",
    "\t",
    " ",
    ": ",
    ":",
    "? ",
    ",",
    "[",
    "]",
    "{",
    "}",
    "|",
    ">",
    ">-\n",
    "\"",
    "'",
    "#",
    "&a ",
    "*a",
    "<<: *a\n",
    "!!str ",
    "!x ",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "%TAG",
    "name: r",
    "key: ",
    "[a]",
    "[]",
    "value: ",
    "limit: ",
    "1/s",
    "5/5m",
    "1/month from day 17 in Europe/Berlin",
    "20 concurrent",
    "unlimited",
    "{free: 1/s}",
    "match: ",
    "absent",
    "{not: x}",
    "{cidr: 10.0.0.0/8}",
    "::/0",
    "cost: ",
    "burst: ",
    "2x",
    "1.5x",
    "99999999999999999999",
    "18446744073709551615",
    "0",
    "-1",
    "algorithm: token_bucket",
    "sub_windows: 3",
    "enforce: 10%",
    "mode: shadow",
    "hold: 60s",
    "policy: cost",
    "tiers: ",
    "entity: a",
    "default_tier: free",
    "default_rule: r",
    "rate_limit: ",
    "{unit: day, requests_per_unit: 5}",
    "unit: ",
    "replaces: [{name: x}]",
    "metadata: ",
    "shadow_mode: true",
    "share_threshold: true",
    "*",
    "é",
    "\u{85}",
    "\u{2028}",
    "\0",
    "\u{feff}",
    "\r",
    "\\",
    "\\u",
    "~",
    "null",
    "true",
    "1e5",
    ".inf",
];

fn text_of_pieces() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(PIECES), 0..60).prop_map(|pieces| pieces.concat())
}

/// A valid file with a few characters changed: such files reach most error paths of the readers.
fn damaged_file() -> impl Strategy<Value = String> {
    const FILES: [&str; 3] = [
        include_str!("../../../tests/files/design.yaml"),
        include_str!("../../../tests/files/envoy.yaml"),
        include_str!("../../../tests/files/seed.yaml"),
    ];
    let damage = prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(PIECES), 0..8_usize), 1..6);
    (prop::sample::select(&FILES[..]), damage).prop_map(|(file, damage)| {
        let mut characters: Vec<char> = file.chars().collect();
        for (at, piece, removed) in damage {
            let start = at.index(characters.len());
            let end = (start + removed).min(characters.len());
            characters.splice(start..end, piece.chars());
        }
        characters.into_iter().collect()
    })
}

/// Problems have existing lines, and each has a remedy.
fn check(text: &str) -> Result<(), TestCaseError> {
    if let Err(problems) = load(text) {
        prop_assert!(!problems.is_empty());
        for problem in problems {
            let lines = text.matches(['\n', '\r']).count() + 1;
            prop_assert!((1..=lines).contains(&problem.line), "{problem}\n{text:?}");
            prop_assert!(!problem.message.is_empty() && !problem.remedy.is_empty(), "{problem}");
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_text(text in any::<String>()) {
        check(&text)?;
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&String::from_utf8_lossy(&bytes))?;
    }

    #[test]
    fn texts_made_of_pieces(text in text_of_pieces()) {
        check(&text)?;
    }

    #[test]
    fn damaged_files(text in damaged_file()) {
        check(&text)?;
    }
}
