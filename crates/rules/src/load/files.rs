//! Finds and reads rule files.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{LoadOptions, MAX_FILE_BYTES, RuleFile};
use crate::model::RuleOrigin;
use crate::problem::{Problems, TextFault};

/// The maximum number of files in a load.
const MAX_FILES: usize = 10_000;

/// The rule files of the paths, in the given order and by name within a directory, as far as they could be read.
pub(super) fn read<P: AsRef<Path>>(paths: &[P], options: &LoadOptions, problems: &mut Problems) -> Vec<RuleFile> {
    if paths.is_empty() {
        let fault = TextFault::new("no rule files were named", "name a file or a directory");
        refuse(Path::new("rules"), fault, problems);
    }
    let mut files = Vec::new();
    for path in paths.iter().map(AsRef::as_ref) {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => match in_directory(path, options, problems) {
                Ok(found) => files.extend(found),
                Err(error) => {
                    refuse(path, TextFault::new(format!("the directory can't be read: {error}"), PERMISSIONS), problems)
                }
            },
            _ => files.push(path.to_owned()),
        }
    }
    if let Some(first) = files.get(MAX_FILES) {
        let fault = TextFault::new(format!("there are more than {MAX_FILES} rule files"), "put more rules in each");
        refuse(first, fault, problems);
        files.truncate(MAX_FILES);
    }
    files.iter().filter_map(|file| text_of(file).map_err(|fault| refuse(file, fault, problems)).ok()).collect()
}

const PERMISSIONS: &str = "check that it exists and may be read";

/// The rule files directly in a directory. Names that begin with a dot are skipped: Kubernetes stores the versions of
/// a ConfigMap under such names and replaces a link to them.
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
        let named = options.reads(path);
        // A dangling link is included, so that reading it reports the error.
        let directory = fs::metadata(path).is_ok_and(|metadata| metadata.is_dir());
        if !named || directory {
            let what =
                if directory { "directories within are not read" } else { "the name does not end in .yaml or .yml" };
            let fault = TextFault::new(format!("ignored: {what}"), "rename it, or name it on its own to load it");
            problems.warning(&origin_of(path), 1, fault);
        }
        named && !directory
    });
    if paths.is_empty() {
        refuse(directory, TextFault::new("there are no rule files in it", "add a file that ends in .yaml"), problems);
    }
    Ok(paths)
}

impl LoadOptions {
    /// Whether a file of a directory is read as a rule file, by its name.
    pub fn reads(&self, path: &Path) -> bool {
        let is_hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        let is_yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        !is_hidden && (self.every_file || is_yaml)
    }
}

pub(super) fn text_of(path: &Path) -> Result<RuleFile, TextFault> {
    let unreadable = |error| TextFault::new(format!("the file can't be read: {error}"), PERMISSIONS);
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(TextFault::new("it is not a regular file", "name a file or a directory of files"));
    }
    let mut bytes = Vec::new();
    // One byte more than the maximum shows that the file is too long.
    File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    if bytes.len() > MAX_FILE_BYTES {
        return Err(super::too_long());
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let message = format!("byte {} is not UTF-8", error.utf8_error().valid_up_to());
        TextFault::new(message, "save the file as UTF-8 text")
    })?;
    Ok(RuleFile { name: path.display().to_string(), text })
}

fn refuse(path: &Path, fault: TextFault, problems: &mut Problems) {
    problems.error(&origin_of(path), 1, fault);
}

fn origin_of(path: &Path) -> Arc<RuleOrigin> {
    Arc::new(RuleOrigin::File(path.display().to_string()))
}
