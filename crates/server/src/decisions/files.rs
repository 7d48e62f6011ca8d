//! Files of JSON lines: written one after the other, the oldest removed, read from their ends.
//!
//! A server that starts begins a new file. So what a crash left of a line is the end of a file, and whoever reads skips it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use memchr::memmem::Finder;
use memchr::memrchr;
use tollgate::{Span, Timestamp};

/// Where lines are written.
#[derive(Debug)]
pub(crate) struct Files {
    config: FilesConfig,
    open: Mutex<Option<Open>>,
}

/// How much is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilesConfig {
    pub(crate) directory: PathBuf,
    /// A file is followed by another before it would be larger.
    pub(crate) most_bytes: u64,
    /// The most files.
    pub(crate) most_files: usize,
    /// How long a file is kept that is not written to any more.
    pub(crate) keep: Span,
}

#[derive(Debug)]
struct Open {
    file: File,
    size: u64,
}

/// How files are called: `decisions-0000000017.jsonl`.
const PREFIX: &str = "decisions-";
const SUFFIX: &str = ".jsonl";

/// Callers' names are nobody else's business.
const PRIVATE_DIRECTORY: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

/// How much is read at once, from the end.
const CHUNK: u64 = 256 << 10;
/// A longer line is none of ours.
const LONGEST_LINE: usize = 1 << 20;
/// How far the clocks of the counters and of the files may be apart.
const OUT_OF_STEP: Span = Span::from_secs(60);
/// The most bytes that are read for one answer.
const MOST_READ: u64 = 256 << 20;

impl Files {
    /// Makes the directory if it is not there.
    ///
    /// # Errors
    /// If it can't be written to.
    pub(crate) fn open(config: FilesConfig) -> io::Result<Files> {
        fs::DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(&config.directory)?;
        let open = Some(Open::next(&config.directory)?);
        Ok(Files { config, open: Mutex::new(open) })
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.config.directory
    }

    /// Writes lines, all of them or none.
    pub(crate) fn append<'l>(&self, lines: impl Iterator<Item = &'l str>) -> io::Result<()> {
        let mut text = String::new();
        for line in lines {
            text.push_str(line);
            text.push('\n');
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |open: &Open| open.size > 0 && open.size + text.len() as u64 > self.config.most_bytes;
        let mut file = match open.take() {
            Some(file) if !full(&file) => file,
            _ => Open::next(&self.config.directory)?,
        };
        if let Err(error) = file.file.write_all(text.as_bytes()) {
            // What was written of it goes. If it does not, the next lines go to another file.
            if file.file.set_len(file.size).is_ok() {
                *open = Some(file);
            }
            return Err(error);
        }
        file.size += text.len() as u64;
        *open = Some(file);
        Ok(())
    }

    /// Removes files that are too many, or too old.
    pub(crate) fn forget(&self, now: Timestamp) -> io::Result<()> {
        let files = listed(&self.config.directory)?;
        // The newest is the one that is written to.
        let Some((_, past)) = files.split_last() else { return Ok(()) };
        let too_many = files.len().saturating_sub(self.config.most_files);
        for (place, (_, path)) in past.iter().enumerate() {
            let is_old = || written_at(path).is_some_and(|at| at.after(self.config.keep) < now);
            if place < too_many || is_old() {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Hands out lines that contain this text, about the newest first, until it is said that they are enough. Files that were last
    /// written to before `from` are not looked at.
    pub(crate) fn back(
        &self,
        containing: &str,
        from: Option<Timestamp>,
        mut each: impl FnMut(&str) -> bool,
    ) -> io::Result<()> {
        let (finder, mut left) = (Finder::new(containing), MOST_READ);
        for (_, path) in listed(&self.config.directory)?.iter().rev() {
            if from.zip(written_at(path)).is_some_and(|(from, at)| at.after(OUT_OF_STEP) < from) {
                return Ok(());
            }
            let file = match File::open(path) {
                // Removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file?,
            };
            if !lines_back(file, &mut left, &mut |line| match finder.find(line).and(str::from_utf8(line).ok()) {
                Some(line) => each(line),
                None => true,
            })? {
                return Ok(());
            }
        }
        Ok(())
    }
}

impl Open {
    /// The file after all that there are.
    fn next(directory: &Path) -> io::Result<Open> {
        let mut number = listed(directory)?.last().map_or(1, |(number, _)| number + 1);
        loop {
            let path = directory.join(format!("{PREFIX}{number:010}{SUFFIX}"));
            let file = OpenOptions::new().append(true).create_new(true).mode(PRIVATE_FILE).open(path);
            match file {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                file => return Ok(Open { file: file?, size: 0 }),
            }
        }
    }
}

/// The files of a directory, by their numbers.
fn listed(directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX));
        files.extend(number.and_then(|number| number.parse().ok()).map(|number: u64| (number, entry.path())));
    }
    files.sort_unstable();
    Ok(files)
}

/// When a file was last written to.
fn written_at(path: &Path) -> Option<Timestamp> {
    let since = fs::metadata(path).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp::from_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX)))
}

/// Hands out the lines of a file from its end, while they are wanted. `false` if they are not any more, or enough was read.
fn lines_back(mut file: File, left: &mut u64, each: &mut impl FnMut(&[u8]) -> bool) -> io::Result<bool> {
    let mut at = file.metadata()?.len();
    // What comes before the lines that were handed out, as far as it was read.
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
            let wanted = line.is_empty() || each(line);
            rest.truncate(end);
            if !wanted {
                return Ok(false);
            }
        }
        if rest.len() > LONGEST_LINE {
            rest.clear();
        }
    }
    Ok(rest.is_empty() || each(&rest))
}

#[cfg(test)]
mod tests;
