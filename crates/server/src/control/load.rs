//! What a server starts with: the store of record, else its own copy, else a snapshot that another one wrote.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use tollgate::control::lines::{self, Line};
use tollgate::control::{Controls, Kind, Record};
use tollgate_control::{Db, DbError, Place};

use super::{Copy, Tokens};

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
    pub(crate) copy: Option<Copy>,
    /// Why it is not what the store of record says.
    pub(crate) trouble: Option<String>,
}

/// Loads it. Must run within the runtime that will follow the database.
///
/// # Errors
/// If the store of record can't be used, and not only because it is away.
pub(crate) async fn load(sources: &Sources) -> Result<Loaded, String> {
    let copy = sources.copy.as_deref().map(Copy::new);
    let mut loaded = Loaded {
        db: None,
        controls: Controls::default(),
        tokens: Tokens::new(),
        knows_tokens: true,
        copy,
        trouble: None,
    };
    let Some(place) = &sources.place else { return Ok(loaded) };
    let db = Db::open(place.clone()).await.map_err(|error| format!("the store of record can't be used: {error}"))?;
    let told = loaded.read_db(&db).await;
    loaded.db = Some(db);
    match told {
        Ok(()) => Ok(loaded),
        Err(DbError::Away(why)) => {
            loaded.fall_back(sources, &why);
            Ok(loaded)
        }
        Err(error) => Err(format!("the store of record can't be used: {error}")),
    }
}

impl Loaded {
    async fn read_db(&mut self, db: &Db) -> Result<(), DbError> {
        let (mut controls, mut tokens) = (Controls::default(), Tokens::new());
        let generation = db.each_since(0, false, |record| take(&mut controls, &mut tokens, record)).await?;
        controls.reached(generation);
        (self.controls, self.tokens) = (controls, tokens);
        Ok(())
    }

    /// The newest of what there is besides the database.
    fn fall_back(&mut self, sources: &Sources, why: &str) {
        self.knows_tokens = false;
        let places = [(sources.copy.clone(), true), (sources.snapshots.as_deref().map(snapshot_in), false)];
        for (path, is_own) in places.into_iter().filter_map(|(path, is_own)| Some((path?, is_own))) {
            match read_file(&path) {
                Ok((controls, tokens)) => {
                    // Old tokens are better than none.
                    if is_own {
                        self.tokens = tokens;
                    }
                    if is_own || controls.generation() > self.controls.generation() {
                        (self.controls, self.knows_tokens) = (controls, is_own);
                    }
                    let generation = self.controls.generation();
                    tracing::warn!(generation, path = %path.display(), "the store of record is away: starting from a snapshot");
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => tracing::warn!(path = %path.display(), %error, "a snapshot can't be used"),
            }
        }
        self.trouble = Some(match self.controls.generation() {
            0 => format!(
                "the store of record is away, and there is no snapshot: nobody has a tier or an override: {why}"
            ),
            generation => format!("the store of record is away; what it said at generation {generation} holds: {why}"),
        });
        if let Some(trouble) = &self.trouble {
            tracing::error!("{trouble}");
        }
    }
}

/// The name of the snapshot in a directory of snapshots.
pub(super) fn snapshot_in(directory: &Path) -> PathBuf {
    directory.join("control-snapshot.jsonl")
}

/// What a snapshot says.
pub(super) fn read_file(path: &Path) -> std::io::Result<(Controls, Tokens)> {
    let (mut controls, mut tokens) = (Controls::default(), Tokens::new());
    let file = BufReader::with_capacity(1 << 20, File::open(path)?);
    let generation = lines::read(file, |line| match line {
        Line::Record(record) => apply(&mut controls, &record),
        Line::Token(token) => match token.document {
            Some(document) => drop(tokens.insert(token.token, document)),
            None => drop(tokens.remove(&token.token)),
        },
        _ => {}
    })?;
    controls.reached(generation);
    Ok((controls, tokens))
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

fn take(controls: &mut Controls, tokens: &mut Tokens, stored: tollgate_control::Record<'_>) {
    if stored.kind == tollgate_control::Kind::Token {
        tokens.extend(stored.document.map(|document| (stored.name.to_owned(), document.to_owned())));
    } else if let Some(record) = record(&stored) {
        apply(controls, &record);
    }
}

fn apply(controls: &mut Controls, record: &Record) {
    if let Err(why) = controls.apply(record) {
        tracing::warn!("{why}");
    }
}
