//! The configurations in `deploy/`.

use std::fs;
use std::path::{Path, PathBuf};

/// The repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A file of `deploy/`, as it is.
#[track_caller]
pub(crate) fn deployed(name: &str) -> String {
    let path = root().join("deploy").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Other words in the place of some of a configuration's. They must be there: a name that was changed in the file would
/// otherwise leave a test that looks at something else.
#[track_caller]
pub(crate) fn replaced(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "there is no `{old}` in the configuration");
    text.replace(old, new)
}
