//! Where the programs are that these tests run.

use std::env;
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

/// A program of a package of the system's.
#[track_caller]
pub(crate) fn system(name: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    // Where Debian keeps servers, which not every user's path has.
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = folders.map(|folder| folder.join(name)).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("{name} is not installed: run make setup-tests"))
}

/// A program in the tests' own environment.
#[track_caller]
pub(crate) fn own(name: &str) -> PathBuf {
    let path = root().join("target/venv").join(name);
    assert!(path.is_file(), "{} is missing: run make setup-tests", path.display());
    path
}
