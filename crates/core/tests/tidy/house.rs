//! The repository's text files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::paths::Repository;

/// A text file of the repository.
pub(crate) struct File {
    /// From the repository's root, with `/` between the parts.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Hidden folders that belong to the repository; the others are tools' own.
const HIDDEN: [&str; 2] = [".ci", ".github"];
/// Folders that hold what was built or found, not what was written.
const BUILT: [&str; 6] = ["target", "node_modules", "artifacts", "generated", "grown", "dist"];

impl File {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.starts_with("crates/") && self.path.ends_with(".rs")
    }

    pub(crate) fn is_module(&self) -> bool {
        self.is_rust() && self.path.contains("/src/")
    }

    /// A source that is not a test's.
    pub(crate) fn is_production(&self) -> bool {
        let is_test =
            self.path.contains("/tests/") || self.path.ends_with("/tests.rs") || self.path.contains("test_support");
        self.is_module() && !is_test
    }

    /// What people read and write: sources, scripts, pages. Not what these checks name, and not what is over.
    pub(crate) fn is_prose_or_code(&self) -> bool {
        let ends = [".rs", ".ts", ".md", ".sh", ".toml", ".lua", ".yaml", ".html", ".css"];
        let is_exempt = ["crates/core/tests/tidy/names", "docs/GLOSSARY.md", "docs/renames.md"];
        ends.iter().any(|end| self.path.ends_with(end)) && !is_exempt.iter().any(|path| self.path.starts_with(path))
    }

    pub(crate) fn is_in_core(&self) -> bool {
        self.path.starts_with("crates/core/src/")
    }

    pub(crate) fn is_manifest(&self) -> bool {
        self.path.starts_with("crates/") && self.path.ends_with("/Cargo.toml")
    }
}

/// The repository's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What there is at a path, other files than text included.
pub(crate) struct Tree {
    root: PathBuf,
    files: Vec<File>,
}

impl Tree {
    pub(crate) fn new() -> Tree {
        Tree { root: root(), files: files() }
    }
}

impl Repository for Tree {
    fn has(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    fn page(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
    }
}

/// All of them, sorted by path.
pub(crate) fn files() -> Vec<File> {
    let mut files = Vec::new();
    walk(&root(), "", &mut files);
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
}

fn walk(folder: &Path, prefix: &str, files: &mut Vec<File>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let kind = entry.file_type().unwrap();
        let path = format!("{prefix}{name}");
        if kind.is_dir() {
            let is_tools = name.starts_with('.') && !HIDDEN.contains(&name.as_str());
            if !is_tools && !BUILT.contains(&name.as_str()) {
                walk(&entry.path(), &format!("{path}/"), files);
            }
        } else if kind.is_file()
            // A worktree has a file of git's in the place of its folder.
            && path != ".git"
            && let Ok(text) = fs::read_to_string(entry.path())
        {
            files.push(File { path, text });
        }
    }
}
