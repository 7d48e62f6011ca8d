//! All records of an SQLite file, many to a row.
//!
//! Each row passes from SQLite's thread to ours, value by value, which takes longer than reading it. A million records would take
//! seconds; packed into a few thousand texts they take one.

use tollgate_core::Timestamp;
use tollgate_records::{Record, RecordKind};

use crate::connection::Connection;
use crate::error::Fault;
use crate::sink::RecordSink;
use crate::statement::Statement;

/// Records in one row.
const RECORDS_PER_ROW: u64 = 500;

/// Pushes all records, in any order, as fast as the sink takes them. The connection has a transaction that sees one moment. `false` if
/// the sink ended the read.
pub(crate) async fn read(
    connection: &mut Connection,
    with_deleted: bool,
    sink: &mut impl RecordSink,
) -> Result<bool, Fault> {
    let mut last = 0;
    loop {
        let mut statement = Statement::new(
            "SELECT count(*), coalesce(max(id), 0), group_concat(record, '') FROM (SELECT rowid AS id, \
             printf('%d,%d,%d,%d,%d,%s:%s%s%s%s', octet_length(kind), octet_length(domain), octet_length(name), generation, \
             updated_at, coalesce(octet_length(document), '-'), kind, domain, name, document) AS record \
             FROM records WHERE rowid > ",
        );
        statement.push("? AND ", [last.into()]);
        statement.push(if with_deleted { "true" } else { "document IS NOT NULL" }, []);
        statement.push(" ORDER BY rowid LIMIT ?)", [RECORDS_PER_ROW.into()]);
        let (mut count, mut text) = (0, String::new());
        connection
            .each(&statement, |row| {
                (count, last) = (row.number(0)?, row.number(1)?);
                text = row.optional_text(2)?.unwrap_or_default().to_owned();
                Ok(())
            })
            .await?;
        let mut rest = &*text;
        while !rest.is_empty() {
            let corrupt = || Fault::Corrupt("a packed row of records is damaged".to_owned());
            let (record, others) = unpack_first(rest).ok_or_else(corrupt)?;
            rest = others;
            let Some((record, written_at)) = record else { continue };
            sink.push_written(record, written_at);
            if sink.is_full() && !sink.flush().await {
                return Ok(false);
            }
        }
        if count < RECORDS_PER_ROW {
            return Ok(true);
        }
    }
}

/// Splits the first record off, and when it was written: `LENGTH,LENGTH,LENGTH,GENERATION,TIME,LENGTH:` and then kind, domain, name and
/// document of these lengths. The length of a missing document is `-`. The record is `None` if its kind is unknown.
fn unpack_first(text: &str) -> Option<(Option<(Record<'_>, Timestamp)>, &str)> {
    let (head, mut rest) = text.split_once(':')?;
    let mut fields = head.split(',');
    let mut take = |length: &str| {
        let (part, others) = rest.split_at_checked(length.parse().ok()?)?;
        rest = others;
        Some(part)
    };
    let kind = RecordKind::parse(take(fields.next()?)?);
    let domain = take(fields.next()?)?.into();
    let name = take(fields.next()?)?.into();
    let generation = fields.next()?.parse().ok()?;
    let written_at = Timestamp::from_micros(fields.next()?.parse::<i64>().ok()?.max(0).unsigned_abs());
    let document = match fields.next()? {
        "-" => None,
        length => Some(take(length)?.into()),
    };
    Some((kind.map(|kind| (Record { kind, domain, name, generation, document }, written_at)), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpack(text: &str) -> Option<Vec<String>> {
        let (mut seen, mut rest) = (Vec::new(), text);
        while !rest.is_empty() {
            let (record, others) = unpack_first(rest)?;
            seen.extend(record.map(|(record, at)| format!("{} {record:?}", at.as_micros())));
            rest = others;
        }
        Some(seen)
    }

    #[test]
    fn packed_records_are_unpacked() {
        let (domain, name) = ("a,b:".into(), "ü".into());
        let one = Record { kind: RecordKind::Quota, domain, name, generation: 7, document: Some("{}".into()) };
        let (domain, name) = ("".into(), "5,".into());
        let deleted = Record { kind: RecordKind::Rule, domain, name, generation: 12, document: None };
        let text = "5,4,2,7,100,2:quotaa,b:ü{}4,0,2,12,-5,-:rule5,7,1,1,9,3,2:noveltydn{}";
        assert_eq!(unpack(text), Some(vec![format!("100 {one:?}"), format!("0 {deleted:?}")]));
        assert_eq!(unpack(""), Some(Vec::new()));
    }

    #[test]
    fn damaged_text_is_rejected() {
        for text in [
            "5",
            "5,1,1,1,9,2:quotadn{",
            "5,1,1,1,9:quotadn",
            "x,1,1,1,9,-:quotadn",
            "5,1,1,x,9,-:quotadn",
            "5,1,1,1,x,-:quotadn",
            "5,1,1,1,9,-:quotaüü",
        ] {
            assert_eq!(unpack(text), None, "{text}");
        }
    }
}
