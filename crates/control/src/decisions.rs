//! The decision log of all servers: rows that are written once, read by caller, and forgotten after a while.
//!
//! They have nothing to do with records and generations: no follower hears of them, and no writer of records waits for longer than
//! a batch of them takes.

use tollgate_core::Timestamp;

use crate::error::{DbError, Fault};
use crate::statement::Statement;
use crate::{Begin, Db, OPERATION};

/// Rows that are written in one transaction.
pub const MOST_DECISIONS: usize = 2_000;
/// Rows of an answer.
pub const MOST_FOUND: usize = 1_000;
/// Rows that are forgotten in one transaction.
pub const MOST_FORGOTTEN: u64 = 10_000;

/// Rows of one statement. SQLite takes some thirty thousand values.
const AT_ONCE: usize = 250;
/// What an answer may have in bytes of documents; the rest is left out.
const MOST_BYTES: usize = 16 << 20;

/// A decision that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// Tells it from all others of its server.
    pub number: u64,
    /// When.
    pub at: Timestamp,
    /// Whose rules.
    pub domain: String,
    /// About whom.
    pub caller: Option<String>,
    /// By which rule.
    pub rule: Option<String>,
    /// All of it, as JSON.
    pub document: String,
}

/// Which decisions are told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecidedFilter {
    /// About this caller.
    pub caller: String,
    /// Of this domain.
    pub domain: Option<String>,
    /// By this rule.
    pub rule: Option<String>,
    /// At this moment or later.
    pub from: Option<Timestamp>,
    /// Before this moment.
    pub to: Option<Timestamp>,
}

impl Db {
    /// Writes decisions of the server with this number, at most [`MOST_DECISIONS`]. Those that are there already stay as they are: a
    /// batch of which nobody knows whether it was written may be written again.
    pub async fn add_decisions(&self, origin: u64, decisions: &[Decided]) -> Result<(), DbError> {
        if decisions.len() > MOST_DECISIONS {
            return Err(DbError::Invalid(format!("more than {MOST_DECISIONS} decisions at once")));
        }
        if decisions.is_empty() {
            return Ok(());
        }
        self.within(OPERATION, self.add_some(origin, decisions)).await
    }

    async fn add_some(&self, origin: u64, decisions: &[Decided]) -> Result<(), Fault> {
        let mut lent = self.begin(self.writer(), Begin::Write).await?;
        for some in decisions.chunks(AT_ONCE) {
            let mut statement =
                Statement::new("INSERT INTO decisions (origin, number, at, domain, caller, rule, document) VALUES ");
            statement.rows(some.iter().map(|one| {
                let (caller, rule) = (one.caller.as_deref(), one.rule.as_deref());
                let (domain, document) = (one.domain.as_str(), one.document.as_str());
                [
                    origin.into(),
                    one.number.into(),
                    one.at.into(),
                    domain.into(),
                    caller.into(),
                    rule.into(),
                    document.into(),
                ]
            }));
            statement.and(" ON CONFLICT DO NOTHING", []);
            statement.seldom(some.len() < AT_ONCE);
            lent.run(&statement).await?;
        }
        lent.script("COMMIT").await?;
        lent.keep();
        Ok(())
    }

    /// The documents of decisions about one caller, the newest first, at most `most` ([`MOST_FOUND`] if that is less).
    pub async fn decisions(&self, filter: &DecidedFilter, most: usize) -> Result<Vec<String>, DbError> {
        let mut statement = Statement::new("SELECT document FROM decisions WHERE caller = ");
        statement.and("?", [(&filter.caller).into()]);
        if let Some(domain) = &filter.domain {
            statement.and(" AND domain = ?", [domain.into()]);
        }
        if let Some(rule) = &filter.rule {
            statement.and(" AND rule = ?", [rule.into()]);
        }
        if let Some(from) = filter.from {
            statement.and(" AND at >= ?", [from.into()]);
        }
        if let Some(to) = filter.to {
            statement.and(" AND at < ?", [to.into()]);
        }
        let most = most.min(MOST_FOUND) as u64;
        statement.and(" ORDER BY at DESC, origin, number DESC LIMIT ?", [most.into()]);
        let (mut found, mut bytes) = (Vec::new(), 0);
        self.select(&statement, |row| {
            let document = row.text(0)?;
            bytes += document.len();
            if bytes <= MOST_BYTES {
                found.push(document.to_owned());
            }
            Ok(())
        })
        .await?;
        Ok(found)
    }

    /// Forgets decisions before this moment, and the oldest of those past `most` rows; at most [`MOST_FORGOTTEN`] at once. Says how many
    /// they were: if it was that many, there may be more.
    pub async fn forget_decisions(&self, before: Timestamp, most: u64) -> Result<u64, DbError> {
        let mut last = before;
        let mut past = Statement::new("SELECT at FROM decisions ORDER BY at DESC LIMIT 1 OFFSET ");
        past.and("?", [most.into()]);
        self.select(&past, |row| {
            // That row is one too many.
            last = last.max(Timestamp::from_micros(row.number(0)?.saturating_add(1)));
            Ok(())
        })
        .await?;
        self.within(OPERATION, async {
            let mut lent = self.begin(self.writer(), Begin::Write).await?;
            let mut forget = Statement::new("DELETE FROM decisions WHERE (origin, number) IN ");
            forget.and(
                "(SELECT origin, number FROM decisions WHERE at < ? ORDER BY at LIMIT ?)",
                [last.into(), MOST_FORGOTTEN.into()],
            );
            let forgotten = lent.run(&forget).await?;
            lent.script("COMMIT").await?;
            lent.keep();
            Ok(forgotten)
        })
        .await
    }
}
