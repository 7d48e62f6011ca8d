//! The disk of an SQLite file.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::Path;

/// SQLite needs this much for the index of a journal.
static NEEDED: [u8; 32 << 10] = [0; 32 << 10];

/// Whether there is no room on the disk of the file for what SQLite needs. Called after an error, so it may write.
pub(crate) fn is_full(path: &Path) -> bool {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".room");
    let probe = path.with_file_name(name);
    let written = File::create(&probe).and_then(|mut file| file.write_all(&NEEDED));
    // Nothing else has this name.
    let _ = fs::remove_file(&probe);
    written.is_err_and(|error| matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
}
