//! The repository's text files.

use std::fs;
use std::path::Path;

/// A text file of the repository.
pub(crate) struct File {
    /// From the repository's root, with `/` between the parts.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Hidden folders that belong to the repository; the others are tools' own.
const HIDDEN: [&str; 2] = [".ci", ".github"];
/// Folders that hold what was built or found, not what was written.
const BUILT: [&str; 5] = ["target", "node_modules", "artifacts", "grown", "dist"];

impl File {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.starts_with("crates/") && self.path.ends_with(".rs")
    }

    pub(crate) fn is_module(&self) -> bool {
        self.is_rust() && self.path.contains("/src/")
    }

    pub(crate) fn is_in_core(&self) -> bool {
        self.path.starts_with("crates/core/src/")
    }

    pub(crate) fn is_manifest(&self) -> bool {
        self.path.starts_with("crates/") && self.path.ends_with("/Cargo.toml")
    }
}

/// All of them, sorted by path.
pub(crate) fn files() -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    walk(&root, "", &mut files);
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
