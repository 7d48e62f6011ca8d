//! The programs that tests run.

use std::env;
use std::path::{Path, PathBuf};

/// A program of one of the system's packages, by its name.
#[track_caller]
pub fn system(name: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    // Debian installs servers to directories that not every user's path has.
    let directories = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = directories.map(|directory| directory.join(name)).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("{name} is not installed: run make setup-tests"))
}

/// A file of the tests' Python environment, by its path in it: `bin/schemathesis`.
#[track_caller]
pub fn in_environment(name: &str) -> PathBuf {
    let path = environment().join(name);
    assert!(path.is_file(), "{} is missing: run make setup-tests", path.display());
    path
}

/// A file of a Python package in that environment.
#[track_caller]
pub fn in_package(name: &str) -> PathBuf {
    let versions = std::fs::read_dir(environment().join("lib")).into_iter().flatten().filter_map(Result::ok);
    let found = versions.map(|version| version.path().join("site-packages").join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is missing: run make setup-tests"))
}

fn environment() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/venv")
}
