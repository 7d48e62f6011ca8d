//! The tables of each database.

/// The tables of a database. Each migration makes a version of them from the one before. A released migration is never changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Schema {
    /// The store of record.
    Control,
    /// The decision log in an SQLite file of its own.
    Decisions,
}

const CONTROL: [Migration; 3] = [
    Migration {
        sqlite: include_str!("../migrations/sqlite/0001_records.sql"),
        #[cfg(feature = "postgres")]
        postgres: include_str!("../migrations/postgres/0001_records.sql"),
    },
    Migration {
        sqlite: include_str!("../migrations/sqlite/0002_servers.sql"),
        #[cfg(feature = "postgres")]
        postgres: include_str!("../migrations/postgres/0002_servers.sql"),
    },
    Migration {
        sqlite: include_str!("../migrations/sqlite/0003_decisions.sql"),
        #[cfg(feature = "postgres")]
        postgres: include_str!("../migrations/postgres/0003_decisions.sql"),
    },
];
/// The third one above: the tables are the same.
const DECISIONS: [Migration; 1] = {
    let [_, _, decisions] = CONTROL;
    [decisions]
};

/// One migration, for both databases.
pub(crate) struct Migration {
    pub(crate) sqlite: &'static str,
    #[cfg(feature = "postgres")]
    pub(crate) postgres: &'static str,
}

impl Schema {
    pub(crate) fn migrations(self) -> &'static [Migration] {
        match self {
            Schema::Control => &CONTROL,
            Schema::Decisions => &DECISIONS,
        }
    }
}
