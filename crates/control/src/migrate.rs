//! The tables, brought up to date.

use crate::connection::Connection;
use crate::error::Fault;
use crate::statement::Statement;

/// What makes each version of the tables from the one before. What has been released is never changed, only added to.
const STEPS: [Step; 3] = [
    Step {
        sqlite: include_str!("../migrations/sqlite/0001_records.sql"),
        postgres: include_str!("../migrations/postgres/0001_records.sql"),
    },
    Step {
        sqlite: include_str!("../migrations/sqlite/0002_servers.sql"),
        postgres: include_str!("../migrations/postgres/0002_servers.sql"),
    },
    Step {
        sqlite: include_str!("../migrations/sqlite/0003_decisions.sql"),
        postgres: include_str!("../migrations/postgres/0003_decisions.sql"),
    },
];

struct Step {
    sqlite: &'static str,
    postgres: &'static str,
}

/// Any number that others don't use: it names the lock under which servers bring the tables up to date, one after the other.
const LOCK: &str = "BEGIN; SELECT pg_advisory_xact_lock(8083447812)";

/// Brings the tables up to date, if they are not. Any number of servers may do it at the same time.
pub(crate) async fn migrate(connection: &mut Connection) -> Result<(), Fault> {
    // Nearly always all is well: that takes no lock, and no right to make tables.
    if behind(connection).await? == 0 {
        return Ok(());
    }
    let (begin, create) = match connection {
        Connection::Sqlite(_) => {
            ("BEGIN IMMEDIATE", "CREATE TABLE IF NOT EXISTS tollgate_schema (version BIGINT PRIMARY KEY)")
        }
        Connection::Postgres(_) => (LOCK, "CREATE TABLE IF NOT EXISTS tollgate_schema (version BIGINT PRIMARY KEY)"),
    };
    connection.script(begin).await?;
    connection.script(create).await?;
    // Another may have been first.
    let behind = behind(connection).await?;
    for (index, step) in STEPS.iter().enumerate().skip(STEPS.len() - behind) {
        let script = match connection {
            Connection::Sqlite(_) => step.sqlite,
            Connection::Postgres(_) => step.postgres,
        };
        connection.script(script).await?;
        let mut done = Statement::new("INSERT INTO tollgate_schema (version) VALUES ");
        done.rows([[(index as u64 + 1).into()]]);
        connection.run(&done).await?;
    }
    connection.script("COMMIT").await
}

/// How many steps are missing.
async fn behind(connection: &mut Connection) -> Result<usize, Fault> {
    let is_there = match connection {
        Connection::Sqlite(_) => "SELECT count(*) FROM sqlite_master WHERE name = 'tollgate_schema'",
        Connection::Postgres(_) => "SELECT count(to_regclass('tollgate_schema'))",
    };
    if number(connection, is_there).await? == 0 {
        return Ok(STEPS.len());
    }
    let theirs = number(connection, "SELECT coalesce(max(version), 0) FROM tollgate_schema").await?;
    let ours = STEPS.len() as u64;
    usize::try_from(ours.checked_sub(theirs).ok_or(Fault::Newer { theirs, ours })?)
        .map_err(|_| Fault::Newer { theirs, ours })
}

async fn number(connection: &mut Connection, sql: &str) -> Result<u64, Fault> {
    let mut number = 0;
    let mut statement = Statement::new(sql);
    statement.seldom(true);
    connection
        .each(&statement, |row| {
            number = row.number(0)?;
            Ok(())
        })
        .await?;
    Ok(number)
}
