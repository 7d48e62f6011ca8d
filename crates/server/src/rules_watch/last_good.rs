//! The last good rules, kept in the data directory for a start with bad ones.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tollgate_rules::Source;

use crate::data_dir::{DataDir, replace};

/// Where they are kept.
#[derive(Clone, Debug)]
pub(crate) struct LastGood {
    path: PathBuf,
}

/// The file: what each rule file said.
#[derive(Debug, Deserialize, Serialize)]
struct Kept {
    version: u32,
    files: Vec<KeptFile>,
}

#[derive(Debug, Deserialize, Serialize)]
struct KeptFile {
    name: String,
    text: String,
}

const NAME: &str = "rules.last-good.json";
const VERSION: u32 = 1;

impl LastGood {
    pub(crate) fn new(data: &DataDir) -> LastGood {
        LastGood { path: data.file(NAME) }
    }

    /// Keeps these. That they can't be kept is no reason not to use them.
    pub(crate) fn keep(&self, sources: &[Source]) {
        let files = sources.iter().map(|source| KeptFile { name: source.name.clone(), text: source.text.clone() });
        let kept = Kept { version: VERSION, files: files.collect() };
        let written = serde_json::to_vec(&kept)
            .map_err(std::io::Error::from)
            .and_then(|bytes| replace(&self.path, |file| file.write_all(&bytes)));
        if let Err(error) = written {
            tracing::warn!(%error, path = %self.path.display(), "the rules could not be kept for a restart");
        }
    }

    /// Those that were kept, if any were.
    pub(crate) fn read(&self) -> Option<Vec<Source>> {
        let bytes = fs::read(&self.path).ok()?;
        match serde_json::from_slice::<Kept>(&bytes) {
            Ok(kept) if kept.version == VERSION => {
                Some(kept.files.into_iter().map(|file| Source { name: file.name, text: file.text }).collect())
            }
            _ => {
                tracing::warn!(path = %self.path.display(), "the kept rules can't be read");
                None
            }
        }
    }
}
