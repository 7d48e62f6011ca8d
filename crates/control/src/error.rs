//! What can go wrong, and which of it is the database being away.

use std::error::Error;
use std::fmt;

use crate::model::Name;
use crate::place::Place;

/// Why the store of record could not be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DbError {
    /// It does not answer, or not in time, or answers that it can't now. It may again later. The text says what and where,
    /// without a password.
    Away(String),
    /// It answered that it will not: no such database, no permission, a damaged file. Somebody must do something.
    Refused(String),
    /// What was asked is out of bounds, and the database was not asked.
    Invalid(String),
    /// A newer Tollgate has been here, and its tables are not ours.
    Newer {
        /// Where.
        place: String,
        /// The version that its tables have.
        theirs: u64,
        /// The newest one that is known here.
        ours: u64,
    },
    /// What a follower knows is older than the deletions that are still known, or is of another database: it must load
    /// everything.
    TooOld,
}

/// Why nothing was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// What was expected of a record does not hold.
    Lost {
        /// Which.
        name: Name,
        /// The generation that it has; none if it is not there.
        now: Option<u64>,
    },
    /// Something was written past the generation that the writer knows.
    Moved {
        /// The generation of the last write.
        now: u64,
    },
    /// The idempotency key was used for another write.
    OnceConflict,
    /// What was to be written is out of bounds, and the database was not asked.
    Invalid(String),
    /// The database is away, as [`DbError::Away`]. If that happened at the very end it may have been written: the text says so,
    /// and the same write with the same idempotency key tells.
    Away(String),
    /// The database will not, as [`DbError::Refused`].
    Refused(String),
}

impl fmt::Display for DbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DbError::Away(what) | DbError::Refused(what) | DbError::Invalid(what) => f.write_str(what),
            DbError::Newer { place, theirs, ours } => write!(
                f,
                "{place} has tables of version {theirs}, made by a newer Tollgate; this one knows versions up to {ours}: \
                 start the newer one, or name another database"
            ),
            DbError::TooOld => f.write_str("what is known is too old to be brought up to date: load everything"),
        }
    }
}

impl Error for DbError {}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WriteError::Lost { name, now: Some(now) } => write!(f, "{name} is at generation {now}, not as expected"),
            WriteError::Lost { name, now: None } => write!(f, "{name} is not there, which was not expected"),
            WriteError::Moved { now } => write!(f, "the last write has the generation {now}, which was not expected"),
            WriteError::OnceConflict => f.write_str("the idempotency key was used for another write"),
            WriteError::Away(what) | WriteError::Refused(what) | WriteError::Invalid(what) => f.write_str(what),
        }
    }
}

impl Error for WriteError {}

impl From<DbError> for WriteError {
    fn from(error: DbError) -> WriteError {
        match error {
            DbError::Away(what) => WriteError::Away(what),
            DbError::Invalid(what) => WriteError::Invalid(what),
            DbError::Refused(what) => WriteError::Refused(what),
            error @ (DbError::Newer { .. } | DbError::TooOld) => WriteError::Refused(error.to_string()),
        }
    }
}

/// What went wrong, before it is known what to say of it.
#[derive(Debug)]
pub(crate) enum Fault {
    Database(sqlx::Error),
    /// It took too long.
    Late,
    Newer {
        theirs: u64,
        ours: u64,
    },
    /// A row that this crate can't have written.
    Damaged(String),
    TooOld,
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Fault {
        Fault::Database(error)
    }
}

/// PostgreSQL's classes of errors that pass: connections, resources, an operator's intervention, what another transaction did.
const PASSING_CLASSES: [&str; 4] = ["08", "53", "57", "40"];
/// And single ones: a lock that took too long, a transaction that idled too long, a server that only reads, for it is no longer
/// the primary.
const PASSING: [&str; 3] = ["55P03", "25P03", "25006"];
/// SQLite's: busy, locked, a full disk, a file that can't be read, written or opened. The lower byte of its codes.
const PASSING_IN_SQLITE: [u32; 5] = [5, 6, 10, 13, 14];

impl Fault {
    /// Whether the database may work again without anybody doing something to Tollgate.
    pub(crate) fn is_away(&self) -> bool {
        match self {
            Fault::Late => true,
            Fault::Newer { .. } | Fault::Damaged(_) | Fault::TooOld => false,
            Fault::Database(sqlx::Error::Database(error)) => {
                let code = error.code().unwrap_or_default();
                match error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>() {
                    Some(_) => {
                        PASSING_CLASSES.iter().any(|class| code.starts_with(class)) || PASSING.contains(&code.as_ref())
                    }
                    None => code.parse::<u32>().is_ok_and(|code| PASSING_IN_SQLITE.contains(&(code & 0xff))),
                }
            }
            // Settings, certificates and single values don't mend themselves.
            Fault::Database(
                sqlx::Error::ColumnDecode { .. }
                | sqlx::Error::Decode(_)
                | sqlx::Error::Encode(_)
                | sqlx::Error::Configuration(_)
                | sqlx::Error::Tls(_),
            ) => false,
            // A certificate that is not trusted comes as this.
            Fault::Database(sqlx::Error::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData => false,
            // Anything else is a connection that broke, or could not be made.
            Fault::Database(_) => true,
        }
    }

    /// Whether the connection is to blame, and another one may do.
    pub(crate) fn is_broken(&self) -> bool {
        match self {
            // PostgreSQL tells those whom it leaves, be it that nobody listens yet.
            Fault::Database(sqlx::Error::Database(error)) => error.code().is_some_and(|code| code.starts_with("57P")),
            Fault::Database(_) => self.is_away(),
            _ => false,
        }
    }

    /// Whether another held a lock on the SQLite file.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, Fault::Database(sqlx::Error::Database(error))
            if error.code().and_then(|code| code.parse::<u32>().ok()).is_some_and(|code| matches!(code & 0xff, 5 | 6)))
    }

    /// What is said of it.
    pub(crate) fn told(self, place: &Place) -> DbError {
        let away = self.is_away();
        match self {
            Fault::Newer { theirs, ours } => DbError::Newer { place: place.to_string(), theirs, ours },
            Fault::TooOld => DbError::TooOld,
            fault if away => DbError::Away(format!("{place}: {fault}")),
            fault => DbError::Refused(format!("{place}: {fault}")),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Database(sqlx::Error::Database(error)) => f.write_str(error.message()),
            Fault::Database(error) => write!(f, "{error}"),
            Fault::Late => f.write_str("no answer in time"),
            Fault::Newer { theirs, ours } => write!(f, "tables of version {theirs}, {ours} is known"),
            Fault::Damaged(what) => f.write_str(what),
            Fault::TooOld => f.write_str("too old"),
        }
    }
}
