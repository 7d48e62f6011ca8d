//! Migrations of the tables.

use crate::connection::Connection;
use crate::error::Fault;
use crate::schema::Schema;
use crate::statement::Statement;

/// Servers migrate one after the other, under this lock. Its number is arbitrary.
#[cfg(feature = "postgres")]
const LOCK: &str = "BEGIN; SELECT pg_advisory_xact_lock(8083447812)";

/// Runs the migrations that are missing. Any number of servers may call it at the same time.
pub(crate) async fn migrate(connection: &mut Connection, schema: Schema) -> Result<(), Fault> {
    let migrations = schema.migrations();
    // Usually none is missing: that takes no lock, and no permission to create tables.
    if count_missing(connection, migrations.len()).await? == 0 {
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
    let missing = count_missing(connection, migrations.len()).await?;
    for (index, migration) in migrations.iter().enumerate().skip(migrations.len() - missing) {
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
async fn count_missing(connection: &mut Connection, known: usize) -> Result<usize, Fault> {
    let table_exists = match connection {
        Connection::Sqlite(_) => "SELECT count(*) FROM sqlite_master WHERE name = 'tollgate_schema'",
        #[cfg(feature = "postgres")]
        Connection::Postgres(_) => "SELECT count(to_regclass('tollgate_schema'))",
    };
    if select_number(connection, table_exists).await? == 0 {
        return Ok(known);
    }
    let found = select_number(connection, "SELECT coalesce(max(version), 0) FROM tollgate_schema").await?;
    let supported = known as u64;
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
