//! The address of the store of record.

use std::fmt;
use std::path::PathBuf;

/// Where the database is.
#[derive(Clone, PartialEq, Eq)]
pub enum DbLocation {
    /// An SQLite file, for one server.
    File(PathBuf),
    /// The URL of a PostgreSQL, for a fleet: `postgres://user:password@host:port/database`. A password that is not in it comes
    /// from `PGPASSWORD` or `~/.pgpass`. Behind it is the server itself, or a pooler that gives each connection a session of its
    /// own: notifications and prepared statements belong to sessions.
    Postgres(String),
}

/// Without user and password: errors and logs show this.
impl fmt::Display for DbLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DbLocation::File(path) => write!(f, "{}", path.display()),
            #[cfg(not(feature = "postgres"))]
            DbLocation::Postgres(_) => f.write_str("PostgreSQL"),
            #[cfg(feature = "postgres")]
            DbLocation::Postgres(url) => match url.parse::<sqlx::postgres::PgConnectOptions>() {
                Ok(options) => {
                    let database = options.get_database().unwrap_or(options.get_username());
                    write!(f, "postgres://{}:{}/{database}", options.get_host(), options.get_port())
                }
                Err(_) => f.write_str("a URL that is none of PostgreSQL's"),
            },
        }
    }
}

impl fmt::Debug for DbLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DbLocation({self})")
    }
}
