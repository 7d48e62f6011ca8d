//! The configurations in `deploy/`.

use std::fs;

use crate::repository_path;

/// The text of a file in `deploy/`.
#[track_caller]
pub(crate) fn read(name: &str) -> String {
    let path = repository_path("deploy").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Replaces a part of a configuration, which must contain it: otherwise a change of the file would make the test use something
/// else.
#[track_caller]
pub(crate) fn replace(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "the configuration has no `{old}`");
    text.replace(old, new)
}
