//! The directory in which a server keeps what must outlive it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A data directory, ours for as long as this is held.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: File,
}

/// Why a directory can't be ours.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// It is another server's.
    InUse(String),
    /// It can't be made or written.
    Unusable(String),
}

/// The lock's file, with the number of the process that holds it.
const LOCK: &str = "lock";
/// Counters and rules are nobody else's business.
const PRIVATE_DIRECTORY: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// What servers write for each other is their group's.
const SHARED_FILE: u32 = 0o640;

impl DataDir {
    /// Makes the directory if it is not there, and takes it.
    ///
    /// # Errors
    /// In words for people, with what to do.
    pub(crate) fn open(path: &Path) -> Result<DataDir, OpenError> {
        let shown = path.display();
        let unusable = |error: io::Error| {
            let remedy = "name another with --data, or write `--data off`";
            OpenError::Unusable(format!("the data directory {shown} can't be used: {error}; {remedy}"))
        };
        fs::DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(path).map_err(unusable)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(PRIVATE_FILE);
        let mut lock = options.open(path.join(LOCK)).map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let holder = match (&lock).take(20).read_to_string(&mut holder) {
                    Ok(_) if !holder.trim().is_empty() => format!(" (process {})", holder.trim()),
                    _ => String::new(),
                };
                return Err(OpenError::InUse(format!(
                    "another server{holder} uses the data directory {shown}; stop it, or give this one its own with --data"
                )));
            }
        }
        let number = |lock: &mut File| -> io::Result<()> {
            lock.set_len(0)?;
            lock.rewind()?;
            writeln!(lock, "{}", std::process::id())
        };
        number(&mut lock).map_err(unusable)?;
        Ok(DataDir { path: path.to_owned(), _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Who writes a file that is replaced, and who reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replaced {
    /// This server alone.
    Own,
    /// Several servers write it, each all of it, and others of their group read it. This number is the writer's own.
    Shared(u64),
}

/// Writes a file so that whoever reads it, also after a crash, finds the old content or the new, never half of one.
pub(crate) fn replace(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    replace_as(path, Replaced::Own, write)
}

/// The same for a file that may be others' too.
pub(crate) fn replace_as(
    path: &Path,
    replaced: Replaced,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut name = path.file_name().unwrap_or_default().to_owned();
    let mode = match replaced {
        Replaced::Own => PRIVATE_FILE,
        Replaced::Shared(writer) => {
            name.push(format!(".{writer:016x}"));
            SHARED_FILE
        }
    };
    name.push(".new");
    let temporary = directory.join(name);
    // What a crash left there may be readable by others.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    let written = write(&mut file).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = written {
        // A disk that is full is not to stay so for half of a file.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    // The name is in the directory, which must reach the disk too.
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        let first = DataDir::open(&path).unwrap();
        let OpenError::InUse(refusal) = DataDir::open(&path).unwrap_err() else { panic!() };
        assert!(refusal.contains(&format!("another server (process {})", std::process::id())), "{refusal}");
        drop(first);
        DataDir::open(&path).unwrap();
    }

    #[test]
    fn a_file_in_the_way_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "").unwrap();
        let OpenError::Unusable(refusal) = DataDir::open(&path).unwrap_err() else { panic!() };
        assert!(refusal.contains("can't be used") && refusal.contains("--data off"), "{refusal}");
    }

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        replace(&path, |file| file.write_all(b"one")).unwrap();
        let failed = replace(&path, |file| {
            file.write_all(b"tw")?;
            Err(io::Error::other("full"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "half of a file is left");
    }

    #[test]
    fn two_writers_of_a_shared_file_do_not_meet() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        replace_as(&path, Replaced::Shared(1), |file| {
            file.write_all(b"on")?;
            replace_as(&path, Replaced::Shared(2), |file| file.write_all(b"two"))?;
            assert_eq!(fs::read(&path)?, b"two");
            file.write_all(b"e")
        })
        .unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
    }
}
