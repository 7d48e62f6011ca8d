//! Lists the files of the built dashboard, which are embedded in the binary. The list is empty if the dashboard was not built, or
//! without the feature `dashboard`.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};

/// The maximum number of the dashboard's files: a page, and what it loads.
const MAX_FILES: usize = 100;

fn main() -> io::Result<()> {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dashboard/dist");
    println!("cargo::rerun-if-changed=build.rs");
    // The folder is there also before anything is built into it: one that is missing would be looked for again in each build.
    println!("cargo::rerun-if-changed={}", dist.display());
    let mut list = "&[\n".to_owned();
    let files = if env::var_os("CARGO_FEATURE_DASHBOARD").is_some() { files(&dist)? } else { Vec::new() };
    for (path, file) in files {
        let (bytes, file) = (fs::read(&file)?, file.canonicalize()?);
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let tag = format!("\"{:016x}\"", hasher.finish());
        // Writing to a String can't fail.
        let _ = writeln!(list, "    Asset {{ path: {path:?}, tag: {tag:?}, bytes: include_bytes!({file:?}) }},");
    }
    list.push_str("]\n");
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo did not say where to write"))?;
    fs::write(Path::new(&out).join("dashboard.rs"), list)
}

/// The page, and the files of `assets/`, by their paths on the listener.
fn files(dist: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let (index, assets) = (dist.join("index.html"), dist.join("assets"));
    if !index.is_file() || !assets.is_dir() {
        return Ok(Vec::new());
    }
    let mut files = vec![("/".to_owned(), index)];
    for entry in fs::read_dir(assets)?.take(MAX_FILES) {
        let entry = entry?;
        let name = entry.file_name().into_string().map_err(|_| io::Error::other("a file's name is no text"))?;
        files.push((format!("/assets/{name}"), entry.path()));
    }
    files.sort();
    Ok(files)
}
