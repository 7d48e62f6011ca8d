//! What a server starts with: the store of record, else its own copy, else a snapshot that another one wrote.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use tollgate::control::lines::{self, Head, Line};
use tollgate::control::{Controls, Kind, Record};
use tollgate_control::{Db, DbError, Place, Point, Reader};

use super::Tokens;

/// Where it is looked for.
#[derive(Debug)]
pub(crate) struct Sources {
    /// The store of record; `None`: there is none.
    pub(crate) place: Option<Place>,
    /// This server's own copy.
    pub(crate) copy: Option<PathBuf>,
    /// Snapshots that servers write for each other.
    pub(crate) snapshots: Option<PathBuf>,
}

/// What was found.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) db: Option<Db>,
    pub(crate) controls: Controls,
    pub(crate) tokens: Tokens,
    /// Whether these are all tokens. Snapshots for other servers have none, and without the store of record nobody can say that there
    /// are no tokens at all.
    pub(crate) knows_tokens: bool,
    /// As of which write.
    pub(crate) at: Point,
    pub(crate) copy: Option<PathBuf>,
    /// Why it is not what the store of record says.
    pub(crate) trouble: Option<String>,
}

/// Loads it. Must run within the runtime that will follow the database.
///
/// # Errors
/// If the store of record can't be used, and not only because it is away.
pub(crate) async fn load(sources: &Sources) -> Result<Loaded, String> {
    let mut loaded = Loaded::nothing();
    let Some(place) = &sources.place else { return Ok(loaded) };
    loaded.copy.clone_from(&sources.copy);
    let db = Db::open(place.clone()).await.map_err(|error| format!("the store of record can't be used: {error}"))?;
    let told = Everything::read(&db).await;
    loaded.db = Some(db);
    match told {
        Ok(everything) => {
            (loaded.controls, loaded.tokens, loaded.at) = (everything.controls, everything.tokens, everything.at);
            Ok(loaded)
        }
        Err(DbError::Away(why)) => {
            loaded.fall_back(sources, &why);
            Ok(loaded)
        }
        Err(error) => Err(format!("the store of record can't be used: {error}")),
    }
}

/// All that the store of record says, in a place of its own.
#[derive(Default)]
pub(super) struct Everything {
    pub(super) controls: Controls,
    pub(super) tokens: Tokens,
    pub(super) at: Point,
    /// How many records made no sense.
    pub(super) unreadable: u64,
    taken: u64,
}

impl Everything {
    pub(super) async fn read(db: &Db) -> Result<Everything, DbError> {
        let mut everything = Everything::default();
        db.read(None, false, &mut everything).await?;
        everything.controls.reached(everything.at.generation);
        Ok(everything)
    }

    fn apply(&mut self, record: &Record) {
        if let Err(why) = self.controls.apply(record) {
            tracing::warn!("{why}");
            self.unreadable += 1;
        }
    }

    fn token(&mut self, name: String, document: Option<String>) {
        match document {
            Some(document) => drop(self.tokens.insert(name, document)),
            None => drop(self.tokens.remove(&name)),
        }
    }
}

impl Reader for Everything {
    fn begin(&mut self, at: &Point) {
        self.at = at.clone();
    }

    fn take(&mut self, stored: tollgate_control::Record<'_>) {
        self.taken += 1;
        if stored.kind == tollgate_control::Kind::Token {
            self.token(stored.name.to_owned(), stored.document.map(str::to_owned));
        } else if let Some(record) = record(&stored) {
            self.apply(&record);
        }
    }

    fn is_full(&self) -> bool {
        self.taken.is_multiple_of(AT_ONCE)
    }

    async fn rest(&mut self) -> bool {
        tokio::task::yield_now().await;
        true
    }
}

impl Loaded {
    pub(super) fn nothing() -> Loaded {
        let (controls, tokens) = (Controls::default(), Tokens::new());
        Loaded { db: None, controls, tokens, knows_tokens: true, at: Point::default(), copy: None, trouble: None }
    }

    /// The newest of what there is besides the database.
    fn fall_back(&mut self, sources: &Sources, why: &str) {
        let own = sources.copy.as_deref().and_then(found);
        let shared = sources.snapshots.as_deref().map(snapshot_in).as_deref().and_then(found);
        // Of two histories this server's own is the one that it has lived by.
        let newer = |shared: &Everything, own: &Everything| {
            shared.at.of == own.at.of && shared.at.generation > own.at.generation
        };
        // Old tokens are better than none.
        self.knows_tokens =
            own.is_some() && !own.as_ref().zip(shared.as_ref()).is_some_and(|(own, shared)| newer(shared, own));
        let everything = match (own, shared) {
            // Who may ask is not in what is shared.
            (Some(own), Some(shared)) if newer(&shared, &own) => Some(Everything { tokens: own.tokens, ..shared }),
            (Some(own), _) => Some(own),
            (None, shared) => shared,
        };
        let trouble = match &everything {
            None => {
                format!(
                    "the store of record is away, and there is no snapshot: nobody has a tier or an override: {why}"
                )
            }
            Some(found) => {
                format!("the store of record is away; what it said at generation {} holds: {why}", found.at.generation)
            }
        };
        tracing::error!("{trouble}");
        self.trouble = Some(trouble);
        if let Some(Everything { controls, tokens, at, .. }) = everything {
            (self.controls, self.tokens, self.at) = (controls, tokens, at);
        }
    }
}

/// Records that are applied before others get their turn on the thread.
pub(super) const AT_ONCE: u64 = 256;

/// The name of the snapshot in a directory of snapshots.
pub(super) fn snapshot_in(directory: &Path) -> PathBuf {
    directory.join(lines::SNAPSHOT_FILE)
}

/// What a file says, if it is there and can be used.
fn found(path: &Path) -> Option<Everything> {
    match read_file(path) {
        Ok(everything) => {
            let generation = everything.at.generation;
            tracing::info!(generation, path = %path.display(), "the store of record is away: there is a snapshot");
            Some(everything)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "a snapshot can't be used");
            None
        }
    }
}

/// What a snapshot says.
fn read_file(path: &Path) -> std::io::Result<Everything> {
    let mut everything = Everything::default();
    let file = BufReader::with_capacity(1 << 20, File::open(path)?);
    let Head { of, as_of, .. } = lines::read(file, |line| match line {
        Line::Record(record) => everything.apply(&record),
        Line::Token(token) => everything.token(token.token, token.document),
        _ => {}
    })?;
    everything.at = Point { of, generation: as_of };
    Ok(everything)
}

/// A record of the store, as the limiter's library knows it. None of a kind that only servers know.
pub(super) fn record(record: &tollgate_control::Record<'_>) -> Option<Record> {
    let kind = record.kind.as_str().parse::<Kind>().ok()?;
    // What is stored was written by serde.
    let document = match record.document {
        Some(document) => Some(serde_json::value::RawValue::from_string(document.to_owned()).ok()?),
        None => None,
    };
    let (domain, name) = (record.domain.to_owned(), record.name.to_owned());
    Some(Record { generation: record.generation, kind, domain, name, document })
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
    fn taken(own: Option<u64>, shared: Option<(&str, u64)>) -> (Point, usize) {
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
        loaded.fall_back(&sources, "it is gone");
        assert!(loaded.trouble.unwrap().ends_with("it is gone"));
        (loaded.at, loaded.tokens.len())
    }

    #[test]
    fn the_newest_is_taken_and_tokens_are_not_lost() {
        let at = |of: &str, generation| Point { of: of.to_owned(), generation };
        assert_eq!(taken(Some(5), Some(("a", 4))), (at("a", 5), 1));
        assert_eq!(taken(Some(5), Some(("a", 6))), (at("a", 6), 1));
        assert_eq!(taken(Some(5), Some(("b", 6))), (at("a", 5), 1), "two histories can't be compared");
        assert_eq!(taken(None, Some(("b", 6))), (at("b", 6), 0));
        assert_eq!(taken(None, None), (Point::default(), 0));
    }
}
