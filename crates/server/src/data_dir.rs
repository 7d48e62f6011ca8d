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

/// Writes a file so that whoever reads it, also after a crash, finds the old content or the new, never half of one.
pub(crate) fn replace(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let temporary = directory.join(name);
    // What a crash left there may be readable by others.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(&temporary)?;
    write(&mut file)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
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
    }
}
