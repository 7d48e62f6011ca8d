//! Migrations of the tables.

use crate::connection::Connection;
use crate::error::Fault;
use crate::statement::Statement;

/// Each makes a version of the tables from the one before. A released migration is never changed.
const MIGRATIONS: [Migration; 3] = [
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

struct Migration {
    sqlite: &'static str,
    #[cfg(feature = "postgres")]
    postgres: &'static str,
}

/// Servers migrate one after the other, under this lock. Its number is arbitrary.
#[cfg(feature = "postgres")]
const LOCK: &str = "BEGIN; SELECT pg_advisory_xact_lock(8083447812)";

/// Runs the migrations that are missing. Any number of servers may call it at the same time.
pub(crate) async fn migrate(connection: &mut Connection) -> Result<(), Fault> {
    // Usually none is missing: that takes no lock, and no permission to create tables.
    if count_missing(connection).await? == 0 {
        return Ok(());
    }
    let (begin, create) = match connection {
        Connection::Sqlite(_) => {
            ("BEGIN IMMEDIATE", "CREATE TABLE IF NOT EXISTS tollgate_schema (version BIGINT PRIMARY KEY)")
        }
        #[cfg(feature = "postgres")]
        Connection::Postgres(_) => (LOCK, "CREATE TABLE IF NOT EXISTS tollgate_schema (version BIGINT PRIMARY KEY)"),
    };
    connection.script(begin).await?;
    connection.script(create).await?;
    // Another server may have been first.
    let missing = count_missing(connection).await?;
    for (index, migration) in MIGRATIONS.iter().enumerate().skip(MIGRATIONS.len() - missing) {
        let script = match connection {
            Connection::Sqlite(_) => migration.sqlite,
            #[cfg(feature = "postgres")]
            Connection::Postgres(_) => migration.postgres,
        };
        connection.script(script).await?;
        let mut done = Statement::new("INSERT INTO tollgate_schema (version) VALUES ");
        done.push_rows([[(index as u64 + 1).into()]]);
        connection.run(&done).await?;
    }
    connection.script("COMMIT").await
}

/// How many migrations are missing.
async fn count_missing(connection: &mut Connection) -> Result<usize, Fault> {
    let table_exists = match connection {
        Connection::Sqlite(_) => "SELECT count(*) FROM sqlite_master WHERE name = 'tollgate_schema'",
        #[cfg(feature = "postgres")]
        Connection::Postgres(_) => "SELECT count(to_regclass('tollgate_schema'))",
    };
    if select_number(connection, table_exists).await? == 0 {
        return Ok(MIGRATIONS.len());
    }
    let found = select_number(connection, "SELECT coalesce(max(version), 0) FROM tollgate_schema").await?;
    let supported = MIGRATIONS.len() as u64;
    usize::try_from(supported.checked_sub(found).ok_or(Fault::NewerSchema { found, supported })?)
        .map_err(|_| Fault::NewerSchema { found, supported })
}

async fn select_number(connection: &mut Connection, sql: &str) -> Result<u64, Fault> {
    let mut number = 0;
    let mut statement = Statement::new(sql);
    statement.set_cached(false);
    connection
        .each(&statement, |row| {
            number = row.number(0)?;
            Ok(())
        })
        .await?;
    Ok(number)
}
