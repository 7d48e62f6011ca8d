//! Numbered lines in files that are called after the number of their first line.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use tollgate_core::Timestamp;

use super::JournalConfig;

/// The files of a journal.
#[derive(Debug)]
pub(super) struct LineFiles {
    config: JournalConfig,
    /// Oldest first. Lines between two files are lost.
    files: VecDeque<LineFile>,
    /// The newest file, as long as it can be appended to.
    open: Option<File>,
    next: u64,
}

#[derive(Debug)]
struct LineFile {
    first: u64,
    lines: u64,
    bytes: u64,
    written_at: Timestamp,
}

/// File names: `events-00000000000000000017.jsonl`.
const PREFIX: &str = "events-";
const SUFFIX: &str = ".jsonl";
/// Beyond that a new file is started. With small bounds on all files it is a quarter of the bound.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Events may have values of callers.
const PRIVATE_DIRECTORY: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

impl LineFiles {
    /// Reads which lines are there. A partial line, of a crash, is removed.
    pub(super) fn open(config: JournalConfig) -> io::Result<LineFiles> {
        fs::DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(&config.directory)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(&config.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX));
            found.extend(number.and_then(|number| number.parse::<u64>().ok()).map(|first| (first, entry.path())));
        }
        found.sort_unstable();
        let (mut files, mut next) = (VecDeque::new(), 1);
        for (first, path) in found {
            let file = LineFile::read(first, &path)?;
            next = next.max(first + file.lines);
            files.push_back(file);
        }
        Ok(LineFiles { config, files, open: None, next })
    }

    pub(super) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn oldest(&self) -> u64 {
        self.files.front().map_or(self.next, |file| file.first)
    }

    /// Uses no numbers before this one for new lines.
    pub(super) fn skip_to(&mut self, next: u64) {
        if next > self.next {
            (self.next, self.open) = (next, None);
        }
    }

    pub(super) fn append(&mut self, lines: &[String], now: Timestamp) -> io::Result<()> {
        let mut text = String::new();
        for line in lines {
            text.push_str(line);
            text.push('\n');
        }
        let bytes = text.len() as u64;
        let max_file = MAX_FILE_BYTES.min(self.config.max_bytes / 4);
        let is_full = self.files.back().is_none_or(|file| file.bytes > 0 && file.bytes + bytes > max_file);
        if is_full || self.open.is_none() {
            self.start_file(now)?;
        }
        let (Some(open), Some(last)) = (&mut self.open, self.files.back_mut()) else {
            return Err(io::Error::other("there is no file"));
        };
        if let Err(error) = open.write_all(text.as_bytes()) {
            // Undo the partial write. If that fails, the next lines go to another file, and what is behind the known lines is
            // ignored.
            if open.set_len(last.bytes).is_err() {
                self.open = None;
            }
            return Err(error);
        }
        last.lines += lines.len() as u64;
        last.bytes += bytes;
        last.written_at = now;
        self.next += lines.len() as u64;
        self.remove_old(now);
        Ok(())
    }

    fn start_file(&mut self, now: Timestamp) -> io::Result<()> {
        // A file without lines has the number of the next one.
        if let Some(empty) = self.files.pop_back_if(|file| file.lines == 0) {
            fs::remove_file(self.path(empty.first))?;
        }
        let path = self.path(self.next);
        let file = OpenOptions::new().append(true).create_new(true).mode(PRIVATE_FILE).open(path)?;
        self.open = Some(file);
        self.files.push_back(LineFile { first: self.next, lines: 0, bytes: 0, written_at: now });
        Ok(())
    }

    /// Removes files that are too many or too old, but not the newest.
    fn remove_old(&mut self, now: Timestamp) {
        let mut bytes: u64 = self.files.iter().map(|file| file.bytes).sum();
        while self.files.len() > 1 {
            let oldest = &self.files[0];
            if bytes <= self.config.max_bytes && oldest.written_at.after(self.config.keep) >= now {
                return;
            }
            if let Err(error) = fs::remove_file(self.path(oldest.first))
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(%error, "old events can't be removed");
                return;
            }
            bytes -= oldest.bytes;
            self.files.pop_front();
        }
    }

    pub(super) fn read_from(&self, from: u64, max: usize) -> io::Result<Vec<(u64, Arc<str>)>> {
        let mut found = Vec::new();
        for file in self.files.iter().filter(|file| file.first + file.lines > from) {
            let Some(text) = read(&self.path(file.first), file.bytes)? else { continue };
            let lines = (file.first..file.first + file.lines).zip(text.split('\n'));
            let lines = lines.filter(|(number, _)| *number >= from).map(|(number, line)| (number, Arc::from(line)));
            found.extend(lines.take(max - found.len()));
            if found.len() == max {
                break;
            }
        }
        Ok(found)
    }

    fn path(&self, first: u64) -> PathBuf {
        self.config.directory.join(format!("{PREFIX}{first:020}{SUFFIX}"))
    }
}

impl LineFile {
    /// Reads a file of an earlier run.
    fn read(first: u64, path: &Path) -> io::Result<LineFile> {
        let bytes = fs::read(path)?;
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if end < bytes.len() {
            OpenOptions::new().write(true).open(path)?.set_len(end as u64)?;
        }
        let lines = bytes[..end].iter().filter(|byte| **byte == b'\n').count() as u64;
        let modified = fs::metadata(path)?.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        let written_at = Timestamp::from_micros(u64::try_from(modified.as_micros()).unwrap_or(u64::MAX));
        Ok(LineFile { first, lines, bytes: end as u64, written_at })
    }
}

/// The beginning of a file, with anything that is not UTF-8 replaced; `None` if there is no such file.
pub(super) fn read(path: &Path, max: u64) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(max).read_to_end(&mut bytes)?;
    Ok(Some(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())))
}

/// Replaces a small file atomically. It need not reach the disk at once: an older one means that lines are sent again.
pub(super) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(PRIVATE_FILE).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&temporary, path)
}
