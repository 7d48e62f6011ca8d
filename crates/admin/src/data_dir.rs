//! The data directory: files that survive a restart.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A data directory, locked for as long as this value lives.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _lock: File,
}

/// Why a directory can't be used.
#[derive(Debug)]
pub enum OpenError {
    /// Another server uses it.
    InUse(String),
    /// It can't be created or written.
    Unusable(String),
}

/// The lock file, with the id of the process that holds it.
const LOCK: &str = "lock";
/// Counters and rules are private.
const PRIVATE_DIRECTORY: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// Files for other servers are readable by the group.
const SHARED_FILE: u32 = 0o640;

impl DataDir {
    /// Creates the directory if it is missing, and locks it.
    ///
    /// # Errors
    /// A message for operators, with a remedy.
    pub fn open(path: &Path) -> Result<DataDir, OpenError> {
        let shown = path.display();
        let unusable = |error: io::Error| {
            let remedy = "choose another with --data, or use `--data off`";
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
                    "another server{holder} uses the data directory {shown}; stop it, or choose another directory with --data"
                )));
            }
        }
        let write_pid = |lock: &mut File| -> io::Result<()> {
            lock.set_len(0)?;
            lock.rewind()?;
            writeln!(lock, "{}", std::process::id())
        };
        // The number is only for messages: a full disk is no reason not to start.
        if let Err(error) = write_pid(&mut lock) {
            tracing::warn!("the data directory {shown} can't be written: {error}");
        }
        Ok(DataDir { path: path.to_owned(), _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Who writes and reads a replaced file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// Only this server.
    Own,
    /// Several servers write it, each as a whole, and their group reads it. The number identifies the writer.
    Shared(u64),
}

/// Replaces a file atomically: readers, even after a crash, find the old content or the new.
pub fn replace(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    replace_as(path, FileAccess::Own, write)
}

/// The same for a file that may be shared.
pub fn replace_as(path: &Path, access: FileAccess, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut name = path.file_name().unwrap_or_default().to_owned();
    let mode = match access {
        FileAccess::Own => PRIVATE_FILE,
        FileAccess::Shared(writer) => {
            name.push(format!(".{writer:016x}"));
            SHARED_FILE
        }
    };
    name.push(".new");
    let temporary = directory.join(name);
    // A leftover of a crash may be readable by others.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    let written = write(&mut file).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = written {
        // Do not leave a partial file on a full disk.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    // The directory entry must reach the disk too.
    File::open(directory)?.sync_all()
}

/// The message for operators about a file that can't be written. The system's words for a full disk are not everybody's.
pub fn write_problem(path: &Path, error: &io::Error) -> String {
    let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    format!("{} can't be written: {error}{}", path.display(), if is_full { ": the disk is full" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_called_so() {
        let problem = |kind: io::ErrorKind| write_problem(Path::new("/data/copy"), &kind.into());
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            let text = problem(kind);
            assert!(
                text.starts_with("/data/copy can't be written: ") && text.ends_with(": the disk is full"),
                "{text}"
            );
        }
        assert_eq!(problem(io::ErrorKind::PermissionDenied), "/data/copy can't be written: permission denied");
    }

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
    fn a_file_in_the_way_is_an_error() {
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
        replace_as(&path, FileAccess::Shared(1), |file| {
            file.write_all(b"on")?;
            replace_as(&path, FileAccess::Shared(2), |file| file.write_all(b"two"))?;
            assert_eq!(fs::read(&path)?, b"two");
            file.write_all(b"e")
        })
        .unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
    }
}
