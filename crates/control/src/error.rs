//! Errors, and which of them pass by themselves.

use std::error::Error;
use std::fmt;
use std::io::ErrorKind;

use crate::disk;
use crate::location::DbLocation;
use crate::model::RecordName;

/// Why an operation on the store of record failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DbError {
    /// The database does not answer in time, or answers that it can't now. It may work again later. The text has the cause and the
    /// location, without a password.
    Unavailable(String),
    /// The database refuses: no such database, no permission, a damaged file. An operator has to act.
    Refused(String),
    /// The arguments are out of bounds. The database was not called.
    Invalid(String),
    /// A newer Tollgate has migrated the tables to a version that is unknown here.
    NewerSchema {
        /// The location of the database.
        location: String,
        /// The version of its tables.
        found: u64,
        /// The newest version that is known here.
        supported: u64,
    },
    /// A follower's position is older than the deletions that are retained, or is in another database: the follower must load
    /// everything.
    TooOld,
}

/// Why nothing was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// A precondition does not hold.
    PreconditionFailed {
        /// The record.
        name: RecordName,
        /// Its generation; none if it does not exist.
        current: Option<u64>,
    },
    /// The last write is not the one that the writer requires, or the database is not the one that the writer knows.
    Stale {
        /// The generation of the last write.
        current: u64,
    },
    /// The idempotency key was used for another write.
    OnceConflict,
    /// The write is out of bounds. The database was not called.
    Invalid(String),
    /// As [`DbError::Unavailable`]. If the commit failed, the write may have been committed: the text says so, and the same write under
    /// the same idempotency key finds out.
    Unavailable(String),
    /// As [`DbError::Refused`].
    Refused(String),
}

impl fmt::Display for DbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DbError::Unavailable(what) | DbError::Refused(what) | DbError::Invalid(what) => f.write_str(what),
            DbError::NewerSchema { location, found, supported } => write!(
                f,
                "{location} has tables of version {found}, made by a newer Tollgate; this one knows versions up to {supported}: \
                 start the newer one, or name another database"
            ),
            DbError::TooOld => f.write_str("the position is too old or of another database: load everything"),
        }
    }
}

impl Error for DbError {}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WriteError::PreconditionFailed { name, current: Some(generation) } => {
                write!(f, "{name} is at generation {generation}, which was not expected")
            }
            WriteError::PreconditionFailed { name, current: None } => {
                write!(f, "{name} does not exist, which was not expected")
            }
            WriteError::Stale { current } => {
                write!(f, "the last write has the generation {current}, which was not expected")
            }
            WriteError::OnceConflict => f.write_str("the idempotency key was used for another write"),
            WriteError::Unavailable(what) | WriteError::Refused(what) | WriteError::Invalid(what) => f.write_str(what),
        }
    }
}

impl Error for WriteError {}

impl From<DbError> for WriteError {
    fn from(error: DbError) -> WriteError {
        match error {
            DbError::Unavailable(what) => WriteError::Unavailable(what),
            DbError::Invalid(what) => WriteError::Invalid(what),
            DbError::Refused(what) => WriteError::Refused(what),
            error @ (DbError::NewerSchema { .. } | DbError::TooOld) => WriteError::Refused(error.to_string()),
        }
    }
}

/// The cause of an error, before it becomes a public one.
#[derive(Debug)]
pub(crate) enum Fault {
    Database(sqlx::Error),
    /// An SQLite file could not be created.
    File(std::io::Error),
    Timeout,
    NewerSchema {
        found: u64,
        supported: u64,
    },
    /// Content that this crate can't have written.
    Corrupt(String),
    TooOld,
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Fault {
        Fault::Database(error)
    }
}

/// PostgreSQL's classes of transient errors: connections, resources, an operator's intervention, conflicts between transactions.
const TRANSIENT_CLASSES: [&str; 4] = ["08", "53", "57", "40"];
/// And single codes: a lock timeout, an idle transaction that timed out, a server that is read-only because it is no longer the
/// primary.
const TRANSIENT_CODES: [&str; 3] = ["55P03", "25P03", "25006"];
/// SQLite's: busy, locked, a full disk, a file that can't be read, written or opened. The lower byte of its codes.
const TRANSIENT_IN_SQLITE: [u32; 5] = [5, 6, 10, 13, 14];

#[cfg(feature = "postgres")]
fn is_from_postgres(error: &dyn sqlx::error::DatabaseError) -> bool {
    error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().is_some()
}

#[cfg(not(feature = "postgres"))]
fn is_from_postgres(_: &dyn sqlx::error::DatabaseError) -> bool {
    false
}

impl Fault {
    /// Whether the same operation may work later, without a change to Tollgate or its settings.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Fault::Timeout => true,
            Fault::NewerSchema { .. } | Fault::Corrupt(_) | Fault::TooOld => false,
            Fault::Database(sqlx::Error::Database(error)) => {
                let code = error.code().unwrap_or_default();
                if is_from_postgres(&**error) {
                    TRANSIENT_CLASSES.iter().any(|class| code.starts_with(class))
                        || TRANSIENT_CODES.contains(&code.as_ref())
                } else {
                    code.parse::<u32>().is_ok_and(|code| TRANSIENT_IN_SQLITE.contains(&(code & 0xff)))
                }
            }
            // Wrong settings, certificates and values stay wrong.
            Fault::Database(
                sqlx::Error::ColumnDecode { .. }
                | sqlx::Error::Decode(_)
                | sqlx::Error::Encode(_)
                | sqlx::Error::Configuration(_)
                | sqlx::Error::Tls(_),
            ) => false,
            // An untrusted certificate has this kind.
            Fault::Database(sqlx::Error::Io(error)) if error.kind() == ErrorKind::InvalidData => false,
            // A wrong path stays wrong.
            Fault::File(error) => !matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::PermissionDenied
            ),
            // Anything else is a connection that broke or could not be opened.
            Fault::Database(_) => true,
        }
    }

    /// Whether the connection is broken, and the operation may work on another one.
    pub(crate) fn is_connection_broken(&self) -> bool {
        match self {
            // PostgreSQL sends this to its clients before it closes their connections.
            Fault::Database(sqlx::Error::Database(error)) => error.code().is_some_and(|code| code.starts_with("57P")),
            Fault::Database(_) => self.is_transient(),
            _ => false,
        }
    }

    /// Whether another process holds a lock on the SQLite file.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.sqlite_code(), Some(5 | 6))
    }

    /// The public error, which names the database.
    pub(crate) fn into_error(self, location: &DbLocation) -> DbError {
        let is_transient = self.is_transient();
        match self {
            Fault::NewerSchema { found, supported } => {
                DbError::NewerSchema { location: location.to_string(), found, supported }
            }
            Fault::TooOld => DbError::TooOld,
            fault => {
                // SQLite calls a full disk an I/O error, or a file that can't be opened.
                let is_full = match location {
                    DbLocation::File(path) if fault.is_of_disk() => disk::is_full(path),
                    _ => false,
                };
                let text = format!("{location}: {fault}{}", if is_full { ": the disk is full" } else { "" });
                if is_transient { DbError::Unavailable(text) } else { DbError::Refused(text) }
            }
        }
    }

    /// Whether it may be that SQLite could not write to the disk.
    fn is_of_disk(&self) -> bool {
        match self {
            Fault::File(_) => true,
            fault => fault.sqlite_code().is_some_and(|code| matches!(code, 10 | 13 | 14)),
        }
    }

    /// SQLite's primary error code.
    fn sqlite_code(&self) -> Option<u32> {
        let Fault::Database(sqlx::Error::Database(error)) = self else { return None };
        let code = error.code().filter(|_| !is_from_postgres(&**error))?;
        code.parse::<u32>().ok().map(|code| code & 0xff)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Database(sqlx::Error::Database(error)) => f.write_str(error.message()),
            Fault::Database(error) => write!(f, "{error}"),
            Fault::File(error) => write!(f, "{error}"),
            Fault::Timeout => f.write_str("no answer in time"),
            Fault::NewerSchema { found, supported } => {
                write!(f, "tables of version {found}, {supported} is known")
            }
            Fault::Corrupt(what) => f.write_str(what),
            Fault::TooOld => f.write_str("too old"),
        }
    }
}
