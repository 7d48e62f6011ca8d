//! This server's own copy of what operators decided: a snapshot, and behind it what changed since. It is what the server starts from
//! while the store of record is away.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use tollgate::control::lines::{self, End, Head, TokenLine};
use tollgate_control::{Db, Record};

use super::load::record;
use crate::data_dir::replace;

/// The copy.
#[derive(Debug)]
pub(crate) struct Copy {
    path: PathBuf,
    /// How many records of the file are old: others of the same name are behind them. `None`: it is not known what is in it.
    added: Option<u64>,
}

/// So many changes are added before the file is written anew.
const MOST_ADDED: u64 = 100_000;

impl Copy {
    pub(crate) fn new(path: &Path) -> Copy {
        Copy { path: path.to_owned(), added: None }
    }

    /// Keeps lines that were applied. The file is written anew from the database where they can't just be added.
    pub(super) async fn keep(&mut self, db: &Db, added: &[u8], count: u64) -> Result<(), String> {
        match self.added {
            Some(before) if before + count <= MOST_ADDED => {
                self.add(added).map_err(|error| self.told(&error))?;
                self.added = Some(before + count);
            }
            _ => {
                write_all(db, &self.path, true).await?;
                self.added = Some(0);
            }
        }
        Ok(())
    }

    fn add(&mut self, lines: &[u8]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut file = OpenOptions::new().append(true).open(&self.path)?;
        file.write_all(lines)?;
        file.sync_data()
    }

    fn told(&self, error: &io::Error) -> String {
        format!("{} can't be written: {error}", self.path.display())
    }
}

/// Writes all that the database says to a file, whole or not at all. Tokens are in it if it is for this server alone.
pub(super) async fn write_all(db: &Db, path: &Path, with_tokens: bool) -> Result<u64, String> {
    // What the disk takes is not waited for by those who read: rows are gathered, then written.
    let (mut lines, mut records) = (Vec::new(), 0);
    let told = db.each_since(0, false, |row| {
        if let Some(line) = line(&row, with_tokens) {
            lines.extend_from_slice(&line);
            records += u64::from(row.kind != tollgate_control::Kind::Token);
        }
    });
    let generation = told.await.map_err(|error| error.to_string())?;
    let path = path.to_owned();
    let written = tokio::task::spawn_blocking(move || {
        replace(&path, |file| {
            let mut out = BufWriter::new(file);
            lines::write(&mut out, &Head { format: lines::FORMAT, as_of: generation })?;
            out.write_all(&lines)?;
            lines::write(&mut out, &End { records })?;
            out.flush()
        })
        .map_err(|error| format!("{} can't be written: {error}", path.display()))
    });
    written.await.map_err(|error| error.to_string())??;
    Ok(generation)
}

/// A record as a line of a file.
pub(super) fn line(row: &Record<'_>, with_tokens: bool) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(256);
    if row.kind == tollgate_control::Kind::Token {
        let document = row.document.map(str::to_owned);
        let token = with_tokens.then(|| TokenLine { token: row.name.to_owned(), document })?;
        lines::write(&mut out, &token).ok()?;
    } else {
        lines::write(&mut out, &record(row)?).ok()?;
    }
    Some(out)
}
