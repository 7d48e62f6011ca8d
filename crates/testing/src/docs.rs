//! Pages of `docs/` that are generated from the code.

use std::path::Path;
use std::{env, fs};

/// Asserts that a file of `docs/` has the generated text. With `UPDATE_DOCS` set, writes the file first.
#[track_caller]
pub fn assert_generated(file: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file);
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let is_current = fs::read_to_string(&path).is_ok_and(|written| written == text);
    assert!(is_current, "docs/{file} is out of date; regenerate it with UPDATE_DOCS=1");
}
