//! All records of an SQLite file, many to a row.
//!
//! Each row that comes from SQLite passes from its thread to ours, value by value, which takes longer than reading it. A million
//! records would take seconds; as some thousand texts they take one.

use crate::error::Fault;
use crate::follow::Reader;
use crate::pool::Lent;
use crate::statement::Statement;
use tollgate_records::{Record, RecordKind};

/// Records in one row.
const TOGETHER: u64 = 500;

/// Hands out all records, in any order, as fast as the reader takes them. The transaction that it is called in sees one moment.
/// `false` if the reader wanted no more.
pub(crate) async fn read(lent: &mut Lent<'_>, with_deleted: bool, reader: &mut impl Reader) -> Result<bool, Fault> {
    let mut last = 0;
    loop {
        let mut statement = Statement::new(
            "SELECT count(*), coalesce(max(id), 0), group_concat(record, '') FROM (SELECT rowid AS id, \
             printf('%d,%d,%d,%d,%s:%s%s%s%s', octet_length(kind), octet_length(domain), octet_length(name), generation, \
             coalesce(octet_length(document), '-'), kind, domain, name, document) AS record \
             FROM records WHERE rowid > ",
        );
        statement.and("? AND ", [last.into()]);
        statement.and(if with_deleted { "true" } else { "document IS NOT NULL" }, []);
        statement.and(" ORDER BY rowid LIMIT ?)", [TOGETHER.into()]);
        let (mut count, mut text) = (0, String::new());
        lent.each(&statement, |row| {
            (count, last) = (row.number(0)?, row.number(1)?);
            text = row.maybe(2)?.unwrap_or_default().to_owned();
            Ok(())
        })
        .await?;
        let mut rest = &*text;
        while !rest.is_empty() {
            let damaged = || Fault::Damaged("records that are not as they were put together".to_owned());
            let (record, others) = first(rest).ok_or_else(damaged)?;
            rest = others;
            let Some(record) = record else { continue };
            reader.take(record);
            if reader.is_full() && !reader.rest().await {
                return Ok(false);
            }
        }
        if count < TOGETHER {
            return Ok(true);
        }
    }
}

/// The first record of several, and the others: `LENGTH,LENGTH,LENGTH,GENERATION,LENGTH:` and then kind, domain, name and document, as
/// long as that. A document that is not there has `-` for its length. No record of a kind that is not known here.
fn first(text: &str) -> Option<(Option<Record<'_>>, &str)> {
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
    let document = match fields.next()? {
        "-" => None,
        length => Some(take(length)?.into()),
    };
    Some((kind.map(|kind| Record { kind, domain, name, generation, document }), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpacked(text: &str) -> Option<Vec<String>> {
        let (mut seen, mut rest) = (Vec::new(), text);
        while !rest.is_empty() {
            let (record, others) = first(rest)?;
            seen.extend(record.map(|record| format!("{record:?}")));
            rest = others;
        }
        Some(seen)
    }

    #[test]
    fn what_is_put_together_is_taken_apart() {
        let (domain, name) = ("a,b:".into(), "ü".into());
        let one = Record { kind: RecordKind::Quota, domain, name, generation: 7, document: Some("{}".into()) };
        let (domain, name) = ("".into(), "5,".into());
        let gone = Record { kind: RecordKind::Rule, domain, name, generation: 12, document: None };
        let text = "5,4,2,7,2:quotaa,b:ü{}4,0,2,12,-:rule5,7,1,1,9,2:noveltydn{}";
        assert_eq!(unpacked(text), Some(vec![format!("{one:?}"), format!("{gone:?}")]));
        assert_eq!(unpacked(""), Some(Vec::new()));
    }

    #[test]
    fn what_is_damaged_is_told() {
        for text in [
            "5",
            "5,1,1,1,2:quotadn{",
            "5,1,1,1:quotadn",
            "x,1,1,1,-:quotadn",
            "5,1,1,x,-:quotadn",
            "5,1,1,1,-:quotaüü",
        ] {
            assert_eq!(unpacked(text), None, "{text}");
        }
    }
}
