//! Paths and the resulting problems or rules.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::super::{LoadOptions, load_paths};
use super::text_of;

/// A temporary directory.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tollgate-rules-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Directory {
        fs::write(self.0.join(name), bytes).unwrap();
        self
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The names of the domains, and the problems with paths relative to `root`.
fn outcome(root: &Directory, paths: &[&Path]) -> (Vec<String>, String) {
    let relative = |problems: &[_]| text_of(problems).replace(&format!("{}/", root.0.display()), "");
    match load_paths(paths, &LoadOptions::default()) {
        Ok(loaded) => (loaded.domains.into_iter().map(|domain| domain.name).collect(), relative(&loaded.warnings)),
        Err(problems) => (Vec::new(), relative(&problems)),
    }
}

#[test]
fn a_directory_is_its_rule_files_by_name() {
    let root = Directory::new();
    root.write("b.yaml", "domain: b\n")
        .write("a.yml", "domain: a\n")
        .write(".hidden.yaml", "[")
        .write("notes.txt", "[");
    fs::create_dir(root.0.join("more.yaml")).unwrap();
    let (domains, reported) = outcome(&root, &[&root.0]);
    assert_eq!(domains, ["a", "b"]);
    assert_eq!(
        reported,
        "more.yaml:1: warning: ignored: directories within are not read; rename it, or name it on its own to load it\n\
         notes.txt:1: warning: ignored: the name does not end in .yaml or .yml; rename it, or name it on its own to load it"
    );
    // A file that is named explicitly is read, whatever its name.
    root.write("rules.conf", "domain: c\n");
    assert_eq!(outcome(&root, &[&root.0.join("rules.conf"), &root.0.join("b.yaml")]).0, ["c", "b"]);
}

#[cfg(unix)]
#[test]
fn a_config_map_of_kubernetes_is_followed_through_its_links() {
    use std::os::unix::fs::symlink;
    let root = Directory::new();
    for (version, domain) in [("..2026_01", "old"), ("..2026_02", "new")] {
        fs::create_dir(root.0.join(version)).unwrap();
        root.write(&format!("{version}/rules.yaml"), format!("domain: {domain}\n"));
    }
    symlink("..2026_01", root.0.join("..data")).unwrap();
    symlink("..data/rules.yaml", root.0.join("rules.yaml")).unwrap();
    assert_eq!(outcome(&root, &[&root.0]), (vec!["old".to_owned()], String::new()));

    symlink("..2026_02", root.0.join("..data_tmp")).unwrap();
    fs::rename(root.0.join("..data_tmp"), root.0.join("..data")).unwrap();
    assert_eq!(outcome(&root, &[&root.0]), (vec!["new".to_owned()], String::new()));
}

#[test]
fn unreadable_files_are_reported_with_all_other_problems() {
    let root = Directory::new();
    root.write("latin.yaml", b"domain: caf\xe9\n").write("rules.yaml", "domain: d\nrulez: []\n");
    let missing = root.0.join("missing.yaml");
    let (domains, reported) = outcome(&root, &[&root.0, &missing]);
    assert_eq!(domains, [] as [String; 0]);
    let lines: Vec<_> = reported.lines().collect();
    assert_eq!(lines.len(), 3, "{reported}");
    assert_eq!(lines[0], "latin.yaml:1: error: byte 11 is not UTF-8; save the file as UTF-8 text");
    assert!(lines[1].starts_with("missing.yaml:1: error: the file can't be read: "), "{reported}");
    assert_eq!(lines[2], "rules.yaml:2: error: `rulez` is not a key of a domain; did you mean `rules`?");
}

#[test]
fn nothing_to_read_is_an_error() {
    let root = Directory::new();
    let no_files =
        format!("{}:1: error: there are no rule files in it; add a file that ends in .yaml", root.0.display());
    assert_eq!(outcome(&root, &[&root.0]).1, no_files);
    assert_eq!(
        text_of(&load_paths::<&Path>(&[], &LoadOptions::default()).unwrap_err()),
        "rules:1: error: no rule files were named; name a file or a directory"
    );
}

#[test]
fn the_files_of_the_tests_load_together() {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    let loaded = load_paths(&[files], &LoadOptions::default()).unwrap();
    let names: Vec<_> = loaded.domains.iter().map(|domain| domain.name.as_str()).collect();
    assert_eq!(names, ["all_keys", "test-domain", "api_platform"]);
}
