//! SQLite files on a disk that is full.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tollgate_control::{Db, DbError, DbLocation, FeedPosition, Precondition, RecordSink, WriteError};
use tollgate_records::Record;

use crate::world::{commit, numbered, put, quota, write};

/// A file system of its own, of one MiB. It ends with this value.
struct SmallDisk(TempDir);

impl SmallDisk {
    /// `None` where the machine lets nobody mount one.
    fn mount() -> Option<SmallDisk> {
        let directory = TempDir::new().unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(directory.path()).output();
        match mount {
            Ok(output) if output.status.success() => Some(SmallDisk(directory)),
            other => {
                println!("not tested: no file system can be mounted here: {other:?}");
                None
            }
        }
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("control.db")
    }

    /// Writes until nothing more fits.
    fn fill(&self) -> PathBuf {
        let filler = self.0.path().join("filler");
        assert!(fs::write(&filler, vec![0; 2 << 20]).is_err());
        filler
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// The names of records.
#[derive(Default)]
struct Names(Vec<String>);

impl RecordSink for Names {
    fn push(&mut self, record: Record<'_>) {
        self.0.push(record.name.into_owned());
    }

    fn is_full(&self) -> bool {
        false
    }

    async fn flush(&mut self) -> bool {
        true
    }
}

async fn read_as_is(path: &Path) -> (FeedPosition, Vec<String>) {
    let mut names = Names::default();
    let at = Db::read_file_as_is(path, &mut names).await.unwrap();
    (at, names.0)
}

#[tokio::test]
async fn a_full_disk_is_named_and_records_can_be_read_all_the_same() {
    let Some(disk) = SmallDisk::mount() else { return };
    let location = || DbLocation::File(disk.file());
    let db = Db::open(location()).await.unwrap();
    commit(&db, vec![put(&quota("ann"), Precondition::Any, &numbered(1))]).await;
    drop(db);
    // The last connection writes the journal back, on a thread of its own.
    let journal = disk.0.path().join("control.db-wal");
    tollgate_testing::until("the journal is written back", || !journal.exists());
    let filler = disk.fill();

    // An unavailable file is no error: the server decides what to start from.
    let db = Db::open(location()).await.unwrap();
    let Err(DbError::Unavailable(why)) = db.generation().await else { panic!() };
    assert!(why.starts_with(&format!("{}: ", disk.file().display())) && why.ends_with(": the disk is full"), "{why}");
    let change = || write(vec![put(&quota("bob"), Precondition::Any, &numbered(2))]);
    let Err(WriteError::Unavailable(why)) = db.write(&change()).await else { panic!() };
    assert!(why.ends_with(": the disk is full"), "{why}");
    let (at, names) = read_as_is(&disk.file()).await;
    assert_eq!((at.generation, names), (1, vec!["ann".to_owned()]));

    fs::remove_file(filler).unwrap();
    assert_eq!(db.generation().await, Ok(1));
    db.write(&change()).await.unwrap();
}
