//! The last good rules, stored in the data directory for a start with invalid ones.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tollgate_rules::RuleFile;

use super::HeldFiles;
use crate::data_dir::{DataDir, replace};

/// The file of the last good rules.
#[derive(Clone, Debug)]
pub struct LastGood {
    path: PathBuf,
    held: PathBuf,
}

/// The content of the file: the text of each rule file.
#[derive(Debug, Deserialize, Serialize)]
struct LastGoodFile {
    version: u32,
    files: Vec<LastGoodText>,
}

#[derive(Debug, Deserialize, Serialize)]
struct LastGoodText {
    name: String,
    text: String,
}

const FILE_NAME: &str = "rules.last-good.json";
/// The file that says which rule files are held.
const HELD_NAME: &str = "rules.held.json";
const VERSION: u32 = 1;

impl LastGood {
    pub fn new(data: &DataDir) -> LastGood {
        LastGood { path: data.file(FILE_NAME), held: data.file(HELD_NAME) }
    }

    /// Stores these. A failure is only logged.
    pub fn store(&self, sources: &[RuleFile]) {
        let files = sources.iter().map(|source| LastGoodText { name: source.name.clone(), text: source.text.clone() });
        let stored = LastGoodFile { version: VERSION, files: files.collect() };
        let written = serde_json::to_vec(&stored)
            .map_err(std::io::Error::from)
            .and_then(|bytes| replace(&self.path, |file| file.write_all(&bytes)));
        if let Err(error) = written {
            tracing::warn!(%error, path = %self.path.display(), "the last good rules could not be stored");
        }
    }

    /// Stores which files are held, for a restart; `None` if none are. A failure is only logged.
    pub fn store_held(&self, held: Option<&HeldFiles>) {
        let written = match held {
            Some(held) => serde_json::to_vec(held)
                .map_err(std::io::Error::from)
                .and_then(|bytes| replace(&self.held, |file| file.write_all(&bytes))),
            None => match fs::remove_file(&self.held) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        };
        if let Err(error) = written {
            tracing::warn!(%error, path = %self.held.display(), "which rule files are held could not be stored");
        }
    }

    /// The files that were held before a restart.
    pub(super) fn read_held(&self) -> Option<HeldFiles> {
        serde_json::from_slice(&fs::read(&self.held).ok()?).ok()
    }

    /// The stored rules, if any.
    pub fn read(&self) -> Option<Vec<RuleFile>> {
        let bytes = fs::read(&self.path).ok()?;
        match serde_json::from_slice::<LastGoodFile>(&bytes) {
            Ok(stored) if stored.version == VERSION => {
                Some(stored.files.into_iter().map(|file| RuleFile { name: file.name, text: file.text }).collect())
            }
            _ => {
                tracing::warn!(path = %self.path.display(), "the last good rules can't be read");
                None
            }
        }
    }
}
