//! The journal: numbered lines in files, and how far each sink has read them.
//!
//! A file is called after the number of its first line, so a position is a number, and what was removed before a sink read it can be
//! counted. Lines reach the operating system before [`Journal::append`] returns: a crash of the process loses none, a crash of the
//! machine perhaps the last ones.

mod files;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tollgate_core::{Span, Timestamp};

use files::LineFiles;

/// The lines that sinks read.
#[derive(Debug)]
pub struct Journal {
    lines: Mutex<Lines>,
    directory: Option<PathBuf>,
    /// The number of the next line.
    next: watch::Sender<u64>,
}

/// Where lines are, and how many are retained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalConfig {
    pub directory: PathBuf,
    /// Bytes of all files.
    pub max_bytes: u64,
    /// How long lines are retained.
    pub keep: Span,
}

#[derive(Debug)]
enum Lines {
    Files(LineFiles),
    /// Without a data directory: the newest lines, with the number of the first one.
    Memory(u64, VecDeque<Arc<str>>),
}

/// How far a sink has read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SinkCursor {
    /// The number of the next line.
    pub next: u64,
    /// The sink, if its receiver said that it takes no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// Lines without a data directory.
const MAX_IN_MEMORY: usize = 1_024;
const CURSOR_PREFIX: &str = "cursor-";
const CURSOR_SUFFIX: &str = ".json";
/// The largest cursor file.
const MAX_CURSOR_BYTES: u64 = 4 << 10;

impl Journal {
    /// The journal in a directory, which is created if it is missing.
    ///
    /// # Errors
    /// If it can't be created or read. On a full disk, what is in it can still be sent.
    pub fn open(config: JournalConfig) -> io::Result<Journal> {
        let directory = config.directory.clone();
        let mut files = LineFiles::open(config)?;
        // After a crash of the machine, sinks may have read lines that are lost: their numbers are not used again.
        for name in names(&directory)? {
            if let Some(cursor) =
                files::read(&cursor_path(&directory, &name), MAX_CURSOR_BYTES)?.as_deref().and_then(parse)
            {
                files.skip_to(cursor.next);
            }
        }
        let next = files.next();
        Ok(Journal {
            lines: Mutex::new(Lines::Files(files)),
            directory: Some(directory),
            next: watch::Sender::new(next),
        })
    }

    /// A journal that a restart loses.
    pub fn in_memory() -> Journal {
        Journal { lines: Mutex::new(Lines::Memory(1, VecDeque::new())), directory: None, next: watch::Sender::new(1) }
    }

    /// Whether a restart loses its lines.
    pub fn is_in_memory(&self) -> bool {
        self.directory.is_none()
    }

    /// Adds lines, all of them or none, and removes the oldest ones that are too many or too old. It blocks.
    ///
    /// # Errors
    /// If they can't be written.
    pub fn append(&self, lines: &[String], now: Timestamp) -> io::Result<()> {
        let mut all = self.lines();
        match &mut *all {
            Lines::Files(files) => files.append(lines, now)?,
            Lines::Memory(first, all) => {
                all.extend(lines.iter().map(|line| Arc::from(line.as_str())));
                let excess = all.len().saturating_sub(MAX_IN_MEMORY);
                all.drain(..excess);
                *first += excess as u64;
            }
        }
        let next = all.next();
        drop(all);
        self.next.send_replace(next);
        Ok(())
    }

    /// At most `max` lines from a number on, with their numbers. Lines before the oldest are passed over. It blocks.
    ///
    /// # Errors
    /// If the files can't be read.
    pub(crate) fn read(&self, from: u64, max: usize) -> io::Result<Vec<(u64, Arc<str>)>> {
        match &*self.lines() {
            Lines::Files(files) => files.read_from(from, max),
            Lines::Memory(first, all) => {
                let passed = usize::try_from(from.saturating_sub(*first)).unwrap_or(usize::MAX);
                let lines = (*first..).zip(all.iter().cloned()).skip(passed);
                Ok(lines.take(max).collect())
            }
        }
    }

    /// The number of the oldest line.
    pub(crate) fn oldest(&self) -> u64 {
        match &*self.lines() {
            Lines::Files(files) => files.oldest(),
            Lines::Memory(first, _) => *first,
        }
    }

    /// The number of the next line.
    pub(crate) fn next(&self) -> u64 {
        *self.next.borrow()
    }

    /// Notifies of new lines.
    pub(crate) fn appended(&self) -> watch::Receiver<u64> {
        self.next.subscribe()
    }

    /// How far a sink has read: a new one, to the end. One whose cursor can't be read begins with the oldest line. It blocks.
    ///
    /// # Errors
    /// If the cursor can't be written.
    pub(crate) fn load_cursor(&self, name: &str) -> io::Result<SinkCursor> {
        let Some(directory) = &self.directory else { return Ok(SinkCursor { next: self.next(), ended: None }) };
        match files::read(&cursor_path(directory, name), MAX_CURSOR_BYTES)? {
            Some(text) => Ok(parse(&text).unwrap_or(SinkCursor { next: self.oldest(), ended: None })),
            None => {
                let cursor = SinkCursor { next: self.next(), ended: None };
                self.save_cursor(name, &cursor)?;
                Ok(cursor)
            }
        }
    }

    /// Saves how far a sink has read. It blocks.
    ///
    /// # Errors
    /// If it can't be written.
    pub(crate) fn save_cursor(&self, name: &str, cursor: &SinkCursor) -> io::Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        // Numbers and texts are always valid JSON.
        let text = serde_json::to_string(cursor).unwrap_or_default();
        files::replace(&cursor_path(directory, name), &text)
    }

    /// A small text that is stored next to the lines, if there is one. It blocks.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn load_text(&self, name: &str) -> io::Result<Option<String>> {
        let Some(directory) = &self.directory else { return Ok(None) };
        files::read(&directory.join(name), MAX_CURSOR_BYTES)
    }

    /// Stores a small text next to the lines. It blocks.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn save_text(&self, name: &str, text: &str) -> io::Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        files::replace(&directory.join(name), text)
    }

    /// Forgets sinks that are no more. It blocks.
    ///
    /// # Errors
    /// If a cursor can't be removed.
    pub(crate) fn remove_cursors_except(&self, names: &[&str]) -> io::Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        for name in self::names(directory)?.iter().filter(|name| !names.contains(&name.as_str())) {
            std::fs::remove_file(cursor_path(directory, name))?;
        }
        Ok(())
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    fn next(&self) -> u64 {
        match self {
            Lines::Files(files) => files.next(),
            Lines::Memory(first, all) => first + all.len() as u64,
        }
    }
}

fn cursor_path(directory: &std::path::Path, name: &str) -> PathBuf {
    directory.join(format!("{CURSOR_PREFIX}{name}{CURSOR_SUFFIX}"))
}

fn parse(text: &str) -> Option<SinkCursor> {
    serde_json::from_str(text).ok()
}

/// The names of the sinks with a cursor.
fn names(directory: &std::path::Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        let name = name.to_str().and_then(|name| name.strip_prefix(CURSOR_PREFIX)?.strip_suffix(CURSOR_SUFFIX));
        names.extend(name.map(str::to_owned));
    }
    Ok(names)
}
