//! Which files are rule files, and their texts.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{LoadOptions, MOST_BYTES, Source};
use crate::problem::{Fault, Problems};

/// The most files of a load.
const MOST_FILES: usize = 10_000;

/// The rule files among paths, in the order given and by name within a directory, each with what could be read of it.
pub(super) fn read<P: AsRef<Path>>(paths: &[P], options: &LoadOptions, problems: &mut Problems) -> Vec<Source> {
    if paths.is_empty() {
        let fault = Fault::new("no rule files were named", "name a file or a directory");
        refuse(Path::new("rules"), fault, problems);
    }
    let mut files = Vec::new();
    for path in paths.iter().map(AsRef::as_ref) {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => match in_directory(path, options, problems) {
                Ok(found) => files.extend(found),
                Err(error) => {
                    refuse(path, Fault::new(format!("the directory can't be read: {error}"), PERMISSIONS), problems)
                }
            },
            _ => files.push(path.to_owned()),
        }
    }
    if let Some(first) = files.get(MOST_FILES) {
        let fault = Fault::new(format!("there are more than {MOST_FILES} rule files"), "put more rules in each");
        refuse(first, fault, problems);
        files.truncate(MOST_FILES);
    }
    files.iter().filter_map(|file| text_of(file).map_err(|fault| refuse(file, fault, problems)).ok()).collect()
}

const PERMISSIONS: &str = "check that it exists and may be read";

/// The rule files directly in a directory. Names that begin with a dot are no one's rules: Kubernetes keeps its versions of
/// a ConfigMap under such names and swaps a link among them.
fn in_directory(directory: &Path, options: &LoadOptions, problems: &mut Problems) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(entry.path());
        }
    }
    paths.sort();
    paths.retain(|path| {
        let named =
            options.every_file || path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        // A link that leads nowhere is kept, so that reading it says so.
        let directory = fs::metadata(path).is_ok_and(|metadata| metadata.is_dir());
        if !named || directory {
            let what =
                if directory { "directories within are not read" } else { "the name does not end in .yaml or .yml" };
            let fault = Fault::new(format!("ignored: {what}"), "rename it, or name it on its own to load it");
            problems.warning(&name_of(path), 1, fault);
        }
        named && !directory
    });
    if paths.is_empty() {
        refuse(directory, Fault::new("there are no rule files in it", "add a file that ends in .yaml"), problems);
    }
    Ok(paths)
}

pub(super) fn text_of(path: &Path) -> Result<Source, Fault> {
    let unreadable = |error| Fault::new(format!("the file can't be read: {error}"), PERMISSIONS);
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(Fault::new("it is not a regular file", "name a file or a directory of files"));
    }
    let mut bytes = Vec::new();
    // One byte past the bound is enough to tell that it was passed.
    File::open(path).and_then(|file| file.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() > MOST_BYTES {
        return Err(super::too_long());
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let message = format!("byte {} is not UTF-8", error.utf8_error().valid_up_to());
        Fault::new(message, "save the file as UTF-8 text")
    })?;
    Ok(Source { name: path.display().to_string(), text })
}

fn refuse(path: &Path, fault: Fault, problems: &mut Problems) {
    problems.error(&name_of(path), 1, fault);
}

fn name_of(path: &Path) -> Arc<str> {
    path.display().to_string().into()
}
