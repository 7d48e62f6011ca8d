//! `tollgate init`, `completions` and `man`.

use std::fs;

use crate::cli::{directory, tollgate};

#[test]
fn every_first_file_is_valid_and_is_not_overwritten() {
    let home = directory("init");
    for case in ["api-keys", "logins", "llm-tokens", "envoy"] {
        let file = home.join(format!("{case}.yaml"));
        let file = file.to_str().unwrap();
        let written = tollgate(&["init", case, "--file", file], b"");
        assert_eq!((written.code, &*written.err), (0, ""), "{case}");
        assert!(
            written.out.contains(&format!("\n  tollgate {file}\n")) && written.out.contains("  curl "),
            "{}",
            written.out
        );
        let linted = tollgate(&["lint", file], b"");
        let summary = linted.out.lines().collect::<Vec<_>>();
        assert!(matches!(summary[..], [line] if line.ends_with("0 errors, 0 warnings")), "{case}: {}", linted.out);
        // The examples in its comments are commands that work.
        let text = fs::read_to_string(file).unwrap();
        let example = text.lines().find_map(|line| line.strip_prefix("#   tollgate explain ")).unwrap();
        let words = example.split("    ").next().unwrap().replace('\'', "\"");
        let explained = std::process::Command::new("sh")
            .args(["-c", &format!("{} explain {words}", env!("CARGO_BIN_EXE_tollgate"))])
            .output()
            .unwrap();
        let shown = String::from_utf8(explained.stdout).unwrap();
        assert!(shown.contains("applies ") && !shown.contains("No rule knows"), "{case}: {words}: {shown}");

        fs::write(file, "mine").unwrap();
        let refused = tollgate(&["init", case, "--file", file], b"");
        assert_eq!((refused.code, &*refused.out), (1, ""), "{case}");
        assert!(refused.err.contains("exists; write --force"), "{}", refused.err);
        assert_eq!(fs::read_to_string(file).unwrap(), "mine");
        assert_eq!(tollgate(&["init", case, "--file", file, "--force"], b"").code, 0);
        assert_eq!(fs::read_to_string(file).unwrap(), text);
    }
    let printed = tollgate(&["init", "--file", "-"], b"");
    assert!(printed.out.contains("domain: api\n"), "{}", printed.out);
    let unknown = tollgate(&["init", "login"], b"");
    assert!(unknown.code == 2 && unknown.err.contains("logins"), "{}", unknown.err);
}

#[test]
fn pages_and_completions_are_written() {
    let pages = directory("man");
    let output = tollgate(&["man", pages.to_str().unwrap()], b"");
    assert_eq!((output.code, &*output.err), (0, ""));
    for page in ["tollgate.1", "tollgate-lint.1", "tollgate-quota-set.1"] {
        assert!(fs::read_to_string(pages.join(page)).unwrap().contains(".SH NAME"), "{page}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let output = tollgate(&["completions", shell], b"");
        assert!(output.code == 0 && output.out.contains("explain") && output.out.contains("merge-domains"), "{shell}");
    }
}
