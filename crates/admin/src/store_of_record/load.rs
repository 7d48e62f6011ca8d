//! The initial state of the control plane: the store of record, else this server's copy, else a snapshot of another server.

use std::borrow::Cow;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use tollgate_control::{Db, DbError, DbLocation, FeedPosition, RecordSink};
use tollgate_records::lines::{self, ControlLine, SnapshotHead};
use tollgate_records::{Controls, Record, RecordKind};

use super::TokenRecords;
use super::pending::PendingChanges;
use super::unconfirmed::{Unconfirmed, read_first};

/// The possible sources.
#[derive(Debug)]
pub struct Sources {
    /// The store of record, if any.
    pub place: Option<DbLocation>,
    /// This server's copy.
    pub copy: Option<PathBuf>,
    /// The directory of snapshots that servers write for each other.
    pub snapshots: Option<PathBuf>,
}

/// The loaded state.
#[derive(Debug)]
pub struct Loaded {
    pub db: Option<Db>,
    pub controls: Controls,
    pub tokens: TokenRecords,
    /// Whether these are all tokens. Snapshots for other servers have none, and without the store of record it is unknown whether
    /// tokens exist.
    pub knows_tokens: bool,
    /// The point of the state.
    pub at: FeedPosition,
    pub copy: Option<PathBuf>,
    /// Whether it is a state of the store of record, and not the lack of one.
    pub is_known: bool,
    /// Changes of operators that wait for the store of record. They are applied.
    pub pending: PendingChanges,
    /// Why it is not the current state of the store of record.
    pub trouble: Option<String>,
    /// The store of record, if it is another one than the known one and waits for confirmation.
    pub unconfirmed: Option<Unconfirmed>,
}

/// Loads the state. Must run within the runtime that will follow the database.
///
/// # Errors
/// If the store of record refuses (a wrong password, a damaged file, …) and there is no copy of it to start from, or if its tables are
/// of a newer version. A store of record that is unavailable is no error.
pub async fn load(sources: &Sources) -> Result<Loaded, String> {
    let mut loaded = load_records(sources).await?;
    if loaded.db.is_some() {
        loaded.pending = PendingChanges::load(sources.copy.as_deref());
        loaded.pending.apply_to(&mut loaded.controls);
        super::shares::begin(&mut loaded.controls, loaded.db.as_ref());
    }
    Ok(loaded)
}

async fn load_records(sources: &Sources) -> Result<Loaded, String> {
    let mut loaded = Loaded::nothing();
    let Some(place) = &sources.place else { return Ok(loaded) };
    loaded.copy.clone_from(&sources.copy);
    let unusable = |error: &DbError| format!("the store of record can't be used: {error}");
    let db = Db::unconnected(place.clone()).map_err(|error| unusable(&error))?;
    let read = match db.connect().await {
        Ok(()) => read_first(&db, sources).await,
        Err(error) => Err(error),
    };
    loaded.db = Some(db);
    match read {
        Ok((records, unconfirmed)) => {
            (loaded.controls, loaded.tokens, loaded.at) = (records.controls, records.tokens, records.at);
            loaded.unconfirmed = unconfirmed;
            Ok(loaded)
        }
        Err(error @ (DbError::Unavailable(_) | DbError::Refused(_))) => {
            let as_is = match place {
                DbLocation::File(path) => LoadedRecords::read_as_is(path).await,
                DbLocation::Postgres(_) => None,
            };
            loaded.fall_back(sources, as_is, &error.to_string());
            match error {
                // An operator has to act, and there is nothing to run on until then.
                DbError::Refused(_) if !loaded.is_known => Err(unusable(&error)),
                _ => Ok(loaded),
            }
        }
        Err(error) => Err(unusable(&error)),
    }
}

/// All records, not yet installed.
#[derive(Default)]
pub(super) struct LoadedRecords {
    pub(super) controls: Controls,
    pub(super) tokens: TokenRecords,
    pub(super) at: FeedPosition,
    /// The number of unreadable records.
    pub(super) unreadable: u64,
    taken: u64,
}

impl LoadedRecords {
    /// Reads all records of the database into `controls`, which have none.
    pub(super) async fn read(db: &Db, controls: Controls) -> Result<LoadedRecords, DbError> {
        let mut records = LoadedRecords { controls, ..LoadedRecords::default() };
        db.read_since(None, false, &mut records).await?;
        records.controls.advance_to(records.at.generation);
        Ok(records)
    }

    /// Reads an SQLite file that can't be opened the usual way, if it can be read at all.
    async fn read_as_is(path: &Path) -> Option<LoadedRecords> {
        let mut records = LoadedRecords::default();
        match Db::read_file_as_is(path, &mut records).await {
            Ok(at) => {
                records.controls.advance_to(at.generation);
                Some(records)
            }
            Err(error) => {
                tracing::debug!(%error, "the file of the store of record can't be read as it is");
                None
            }
        }
    }

    fn apply(&mut self, record: &Record<'_>) {
        if let Err(why) = self.controls.apply(record) {
            tracing::warn!("{why}");
            self.unreadable += 1;
        }
    }

    fn token(&mut self, name: Cow<'_, str>, document: Option<Cow<'_, str>>) {
        match document {
            Some(document) => drop(self.tokens.insert(name.into_owned(), document.into_owned())),
            None => drop(self.tokens.remove(&*name)),
        }
    }
}

impl RecordSink for LoadedRecords {
    fn begin(&mut self, at: &FeedPosition) {
        self.at = at.clone();
    }

    fn push(&mut self, record: Record<'_>) {
        self.taken += 1;
        match record.kind {
            RecordKind::Token => self.token(record.name, record.document),
            _ => self.apply(&record),
        }
    }

    fn is_full(&self) -> bool {
        self.taken.is_multiple_of(BATCH)
    }

    async fn flush(&mut self) -> bool {
        tokio::task::yield_now().await;
        true
    }
}

impl Loaded {
    pub(super) fn nothing() -> Loaded {
        let (controls, tokens) = (Controls::default(), TokenRecords::new());
        Loaded {
            db: None,
            controls,
            tokens,
            knows_tokens: true,
            at: FeedPosition::default(),
            copy: None,
            is_known: true,
            pending: PendingChanges::default(),
            trouble: None,
            unconfirmed: None,
        }
    }

    /// Falls back to the newest of copy, file as it is, and snapshot.
    fn fall_back(&mut self, sources: &Sources, as_is: Option<LoadedRecords>, why: &str) {
        let copy = sources.copy.as_deref().and_then(load_snapshot);
        // The copy is behind if it could not be written; the file is, if its journal can't be read.
        let own = [copy, as_is].into_iter().flatten().max_by_key(|records| records.at.generation);
        let shared = sources.snapshots.as_deref().map(snapshot_in).as_deref().and_then(load_snapshot);
        // If the histories differ, this server's own one applies.
        let newer = |shared: &LoadedRecords, own: &LoadedRecords| {
            shared.at.identity == own.at.identity && shared.at.generation > own.at.generation
        };
        // Old tokens are better than none.
        self.knows_tokens =
            own.is_some() && !own.as_ref().zip(shared.as_ref()).is_some_and(|(own, shared)| newer(shared, own));
        let records = match (own, shared) {
            // Shared snapshots have no tokens.
            (Some(own), Some(shared)) if newer(&shared, &own) => Some(LoadedRecords { tokens: own.tokens, ..shared }),
            (Some(own), _) => Some(own),
            (None, shared) => shared,
        };
        self.is_known = records.is_some();
        let trouble = match &records {
            None => format!("{NOTHING_KNOWN}: {why}"),
            Some(load_snapshot) => {
                format!(
                    "the store of record is unavailable; its state at generation {} stays in force: {why}",
                    load_snapshot.at.generation
                )
            }
        };
        tracing::error!("{trouble}");
        self.trouble = Some(trouble);
        if let Some(LoadedRecords { controls, tokens, at, .. }) = records {
            (self.controls, self.tokens, self.at) = (controls, tokens, at);
        }
    }
}

/// The state of a server that has never read the store of record.
pub(super) const NOTHING_KNOWN: &str = "the store of record is unavailable, and there is no copy of it: only the rule files apply, \
                                        no caller has a tier or an override, and nobody is blocked";

/// Records that are applied before other tasks run.
pub(super) const BATCH: u64 = 256;

/// The path of the snapshot in a directory.
pub(super) fn snapshot_in(directory: &Path) -> PathBuf {
    directory.join(lines::SNAPSHOT_FILE)
}

/// The position of a file, if it exists and is valid.
pub(super) fn position_of(path: &Path) -> Option<FeedPosition> {
    let file = BufReader::with_capacity(1 << 20, File::open(path).ok()?);
    let SnapshotHead { identity, as_of, .. } = lines::read_position(file).ok()?;
    Some(FeedPosition { identity, generation: as_of })
}

/// Loads a file, if it exists and is valid.
pub(super) fn load_snapshot(path: &Path) -> Option<LoadedRecords> {
    match read_file(path) {
        Ok(records) => {
            let generation = records.at.generation;
            tracing::info!(generation, path = %path.display(), "using a snapshot of the store of record");
            Some(records)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "a snapshot can't be used");
            None
        }
    }
}

/// Reads a snapshot.
fn read_file(path: &Path) -> std::io::Result<LoadedRecords> {
    let mut records = LoadedRecords::default();
    let file = BufReader::with_capacity(1 << 20, File::open(path)?);
    let SnapshotHead { identity, as_of, .. } = lines::read_snapshot(file, |line| match line {
        ControlLine::Record(record) => records.apply(&record),
        ControlLine::Token(token) => records.token(token.token, token.document),
        _ => {}
    })?;
    records.at = FeedPosition { identity, generation: as_of };
    Ok(records)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    /// A file as of a write, with one caller and perhaps a token.
    fn file(path: &Path, of: &str, as_of: u64, caller: &str, token: bool) {
        let token = if token { "{\"token\":\"t\",\"document\":\"{}\"}\n" } else { "" };
        let text = format!(
            "{{\"format\":1,\"of\":\"{of}\",\"as_of\":{as_of}}}\n{token}\
             {{\"generation\":1,\"kind\":\"quota\",\"domain\":\"d\",\"name\":\"{caller}\",\"document\":{{\"tier\":\"pro\"}}}}\n\
             {{\"records\":1}}\n"
        );
        fs::write(path, text).unwrap();
    }

    /// Which of two files is taken, if both are of the store `a` or the shared one is of another.
    fn taken(own: Option<u64>, shared: Option<(&str, u64)>) -> (FeedPosition, usize) {
        let home = TempDir::new().unwrap();
        let sources =
            Sources { place: None, copy: Some(home.path().join("own")), snapshots: Some(home.path().to_owned()) };
        if let Some(as_of) = own {
            file(sources.copy.as_deref().unwrap(), "a", as_of, "own", true);
        }
        if let Some((of, as_of)) = shared {
            file(&snapshot_in(home.path()), of, as_of, "shared", false);
        }
        let mut loaded = Loaded::nothing();
        loaded.fall_back(&sources, None, "it is gone");
        assert_eq!(loaded.is_known, own.is_some() || shared.is_some());
        assert!(loaded.trouble.unwrap().ends_with("it is gone"));
        (loaded.at, loaded.tokens.len())
    }

    #[test]
    fn the_newest_is_taken_and_tokens_are_not_lost() {
        let at = |identity: &str, generation| FeedPosition { identity: identity.to_owned(), generation };
        assert_eq!(taken(Some(5), Some(("a", 4))), (at("a", 5), 1));
        assert_eq!(taken(Some(5), Some(("a", 6))), (at("a", 6), 1));
        assert_eq!(taken(Some(5), Some(("b", 6))), (at("a", 5), 1), "two histories can't be compared");
        assert_eq!(taken(None, Some(("b", 6))), (at("b", 6), 0));
        assert_eq!(taken(None, None), (FeedPosition::default(), 0));
    }
}
