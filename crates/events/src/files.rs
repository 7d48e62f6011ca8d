//! LogFiles of JSON lines: written in sequence, removed oldest first, read from their ends.
//!
//! A server starts with a new file. So a partial line of a crash is the end of a file, and readers skip it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use memchr::memmem::Finder;
use memchr::memrchr;
use tollgate_core::{Span, Timestamp};

use crate::sink::{Sending, Sink, SinkError, SinkLine};

/// Files of lines as a sink.
#[derive(Clone, Debug)]
pub struct FileSink(Arc<LogFiles>);

/// The files.
#[derive(Debug)]
pub struct LogFiles {
    config: FilesConfig,
    open: Mutex<Option<OpenFile>>,
}

/// Size and retention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesConfig {
    pub directory: PathBuf,
    /// What the names begin with: `decisions` for `decisions-0000000017.jsonl`.
    pub name: &'static str,
    /// Size of a file before the next one is started.
    pub max_bytes: u64,
    /// Number of files.
    pub max_files: usize,
    /// How long a file is retained after its last write.
    pub keep: Span,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    size: u64,
}

/// What the names of files end with.
const SUFFIX: &str = ".jsonl";

/// Callers' names are private.
const PRIVATE_DIRECTORY: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

/// Lines of one write.
const MAX_LINES: usize = 1_000;
/// Bytes of one read, from the end.
const CHUNK: u64 = 256 << 10;
/// Longer lines are not ours.
const MAX_LINE_BYTES: usize = 1 << 20;
/// The maximal difference between the clocks of the store and of the files.
const MAX_CLOCK_SKEW: Span = Span::from_secs(60);
/// Bytes that are read for one query.
const MAX_READ_BYTES: u64 = 256 << 20;

impl FileSink {
    /// Creates the directory if it is missing.
    ///
    /// # Errors
    /// If it can't be written to.
    pub fn open(config: FilesConfig) -> io::Result<FileSink> {
        LogFiles::open(config).map(|files| FileSink(Arc::new(files)))
    }

    /// The files, to read them.
    pub fn files(&self) -> Arc<LogFiles> {
        self.0.clone()
    }
}

impl Sink for FileSink {
    fn kind(&self) -> &'static str {
        "files"
    }

    fn max_lines(&self) -> usize {
        MAX_LINES
    }

    fn send<'a>(&'a self, lines: &'a [SinkLine]) -> Sending<'a> {
        let (files, lines) = (self.0.clone(), lines.to_vec());
        Box::pin(async move {
            let count = lines.len();
            let directory = files.config.directory.clone();
            let written = move || files.append(lines.iter().map(|line| &*line.text));
            let written = tokio::task::spawn_blocking(written).await.map_err(io::Error::other).flatten();
            let retry = |error| SinkError::Retry { why: format!("{}: {error}", directory.display()), after: None };
            written.map(|()| count).map_err(retry)
        })
    }
}

impl LogFiles {
    /// Creates the directory if it is missing.
    ///
    /// # Errors
    /// If it can't be written to.
    pub fn open(config: FilesConfig) -> io::Result<LogFiles> {
        fs::DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(&config.directory)?;
        let open = Some(OpenFile::next(&config)?);
        Ok(LogFiles { config, open: Mutex::new(open) })
    }

    /// Writes lines, all of them or none.
    pub fn append<'l>(&self, lines: impl Iterator<Item = &'l str>) -> io::Result<()> {
        let mut text = String::new();
        for line in lines {
            text.push_str(line);
            text.push('\n');
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |open: &OpenFile| open.size > 0 && open.size + text.len() as u64 > self.config.max_bytes;
        let mut file = match open.take() {
            Some(file) if !full(&file) => file,
            _ => OpenFile::next(&self.config)?,
        };
        if let Err(error) = file.file.write_all(text.as_bytes()) {
            // Undo the partial write. If that fails, the next lines go to another file.
            if file.file.set_len(file.size).is_ok() {
                *open = Some(file);
            }
            return Err(error);
        }
        file.size += text.len() as u64;
        *open = Some(file);
        Ok(())
    }

    /// Removes files that are too many or too old.
    pub fn remove_old(&self, now: Timestamp) -> io::Result<()> {
        let files = list_files(&self.config)?;
        // The newest is in use.
        let Some((_, past)) = files.split_last() else { return Ok(()) };
        let too_many = files.len().saturating_sub(self.config.max_files);
        for (place, (_, path)) in past.iter().enumerate() {
            let is_old = || written_at(path).is_some_and(|at| at.after(self.config.keep) < now);
            if place < too_many || is_old() {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Visits lines that contain a text, approximately newest first, until `visit` returns `false`. Files last written before
    /// `from` are skipped.
    pub fn find_back(
        &self,
        containing: &str,
        from: Option<Timestamp>,
        mut visit: impl FnMut(&str) -> bool,
    ) -> io::Result<()> {
        let (finder, mut left) = (Finder::new(containing), MAX_READ_BYTES);
        for (_, path) in list_files(&self.config)?.iter().rev() {
            if from.zip(written_at(path)).is_some_and(|(from, at)| at.after(MAX_CLOCK_SKEW) < from) {
                return Ok(());
            }
            let file = match File::open(path) {
                // Removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file?,
            };
            if !lines_back(file, &mut left, &mut |line| match finder.find(line).and(str::from_utf8(line).ok()) {
                Some(line) => visit(line),
                None => true,
            })? {
                return Ok(());
            }
        }
        Ok(())
    }
}

impl OpenFile {
    /// Creates the next file.
    fn next(config: &FilesConfig) -> io::Result<OpenFile> {
        let FilesConfig { directory, name, .. } = config;
        let mut number = list_files(config)?.last().map_or(1, |(number, _)| number + 1);
        loop {
            let path = directory.join(format!("{name}-{number:010}{SUFFIX}"));
            let file = OpenOptions::new().append(true).create_new(true).mode(PRIVATE_FILE).open(path);
            match file {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                file => return Ok(OpenFile { file: file?, size: 0 }),
            }
        }
    }
}

/// The files of a directory, by number.
fn list_files(FilesConfig { directory, name: prefix, .. }: &FilesConfig) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(prefix)?.strip_prefix('-')?.strip_suffix(SUFFIX));
        files.extend(number.and_then(|number| number.parse().ok()).map(|number: u64| (number, entry.path())));
    }
    files.sort_unstable();
    Ok(files)
}

/// The time of the last write to a file.
fn written_at(path: &Path) -> Option<Timestamp> {
    let since = fs::metadata(path).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp::from_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX)))
}

/// Visits the lines of a file from its end. Returns `false` when no more are requested, or the read limit is reached.
fn lines_back(mut file: File, left: &mut u64, visit: &mut impl FnMut(&[u8]) -> bool) -> io::Result<bool> {
    let mut at = file.metadata()?.len();
    // The unread part before the visited lines.
    let mut rest = Vec::new();
    while at > 0 {
        let size = at.min(CHUNK);
        if *left < size {
            return Ok(false);
        }
        (*left, at) = (*left - size, at - size);
        let mut chunk = vec![0; size as usize];
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut chunk)?;
        chunk.extend_from_slice(&rest);
        rest = chunk;
        while let Some(end) = memrchr(b'\n', &rest) {
            let line = &rest[end + 1..];
            let has_more = line.is_empty() || visit(line);
            rest.truncate(end);
            if !has_more {
                return Ok(false);
            }
        }
        if rest.len() > MAX_LINE_BYTES {
            rest.clear();
        }
    }
    Ok(rest.is_empty() || visit(&rest))
}

#[cfg(test)]
mod tests;
