//! All records of an SQLite file, many to a row.
//!
//! Each row that comes from SQLite passes from its thread to ours, value by value, which takes longer than reading it. A million
//! records would take seconds; as some thousand texts they take one.

use crate::error::Fault;
use crate::model::{Kind, Record};
use crate::pool::Lent;
use crate::statement::Statement;

/// Records in one row.
const TOGETHER: u64 = 500;

/// Hands out all records, in any order. The transaction that it is called in sees one moment.
pub(crate) async fn each(
    lent: &mut Lent<'_>,
    with_deleted: bool,
    each: &mut impl FnMut(Record<'_>),
) -> Result<(), Fault> {
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
        let mut count = 0;
        lent.each(&statement, |row| {
            (count, last) = (row.number(0)?, row.number(1)?);
            unpack(row.maybe(2)?.unwrap_or_default(), each)
                .ok_or_else(|| Fault::Damaged("records that are not as they were put together".to_owned()))
        })
        .await?;
        if count < TOGETHER {
            return Ok(());
        }
    }
}

/// Takes records apart: `LENGTH,LENGTH,LENGTH,GENERATION,LENGTH:` and then kind, domain, name and document, as long as that.
/// A document that is not there has `-` for its length.
fn unpack(mut text: &str, each: &mut impl FnMut(Record<'_>)) -> Option<()> {
    while !text.is_empty() {
        let (head, rest) = text.split_once(':')?;
        let mut fields = head.split(',');
        let mut rest = rest;
        let mut take = |length: &str| {
            let (part, others) = rest.split_at_checked(length.parse().ok()?)?;
            rest = others;
            Some(part)
        };
        let kind = take(fields.next()?)?;
        let domain = take(fields.next()?)?;
        let name = take(fields.next()?)?;
        let generation = fields.next()?.parse().ok()?;
        let document = match fields.next()? {
            "-" => None,
            length => Some(take(length)?),
        };
        if let Some(kind) = Kind::parse(kind) {
            each(Record { kind, domain, name, generation, document });
        }
        text = rest;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpacked(text: &str) -> Option<Vec<String>> {
        let mut seen = Vec::new();
        unpack(text, &mut |record| seen.push(format!("{record:?}"))).map(|()| seen)
    }

    #[test]
    fn what_is_put_together_is_taken_apart() {
        let (domain, name) = ("a,b:", "ü");
        let one = Record { kind: Kind::Quota, domain, name, generation: 7, document: Some("{}") };
        let gone = Record { kind: Kind::Rule, domain: "", name: "5,", generation: 12, document: None };
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
