//! Answers for people: tables, short times, sentences.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::client::{Answer, Call, Remote};
use super::path::Path;
use super::{Done, Failure, say};

/// Columns: what they are called, and what an item has there.
pub(super) type Columns = &'static [(&'static str, fn(&Value) -> String)];

/// Rows with aligned columns.
pub(super) struct Table {
    columns: Columns,
    widths: Vec<usize>,
    is_begun: bool,
}

/// The most items of a page.
const PAGE: u64 = 1_000;
/// The widest that a column gets so that the others stay in line.
const WIDEST: usize = 48;

impl Table {
    pub(super) fn new(columns: Columns) -> Table {
        let widths = columns.iter().map(|(name, _)| name.chars().count()).collect();
        Table { columns, widths, is_begun: false }
    }

    /// Lines for these items. Columns get no narrower from one page to the next.
    pub(super) fn lines(&mut self, items: &[Value]) -> String {
        let mut rows: Vec<Vec<String>> = Vec::with_capacity(items.len() + 1);
        if !self.is_begun && !items.is_empty() {
            self.is_begun = true;
            rows.push(self.columns.iter().map(|(name, _)| (*name).to_owned()).collect());
        }
        for item in items {
            rows.push(self.columns.iter().map(|(_, cell)| clean(&cell(item))).collect());
        }
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count().min(WIDEST));
            }
        }
        let mut text = String::new();
        for row in rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&self.widths) {
                line.push_str(&format!("{cell:width$}  "));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Tells a document: as it is, or in words.
pub(super) fn tell(remote: &Remote, answer: &Answer, words: impl FnOnce(&Value) -> String) -> Done {
    if remote.json {
        return as_it_is(answer);
    }
    say(words(&answer.value()?))
}

/// Writes a document as it came.
pub(super) fn as_it_is(answer: &Answer) -> Done {
    let mut text = answer.text.to_vec();
    if text.last() != Some(&b'\n') {
        text.push(b'\n');
    }
    say(text)
}

/// Lists all pages, or so many items; says so if there are none.
pub(super) fn list(remote: &Remote, path: &Path, most: Option<u64>, columns: Columns, none: &str) -> Done {
    list_after(remote, path, None, most, columns, none)
}

/// The same, past an item.
pub(super) fn list_after(
    remote: &Remote,
    path: &Path,
    mut after: Option<String>,
    most: Option<u64>,
    columns: Columns,
    none: &str,
) -> Done {
    let (mut table, mut left) = (Table::new(columns), most.unwrap_or(u64::MAX));
    let mut is_empty = true;
    while left > 0 {
        let page = path.clone().with("limit", Some(left.min(PAGE).to_string())).with("after", after.as_deref());
        let answer = remote.ask(Call::get(page))?;
        let (page, answer) = (items_told(remote, &mut table, &answer)?, answer.value()?);
        left -= page.min(left);
        is_empty &= page == 0;
        match answer["next"].as_str() {
            Some(next) if after.as_deref() != Some(next) => after = Some(next.to_owned()),
            _ => break,
        }
    }
    if is_empty && !remote.json {
        say(format!("{none}\n"))?;
    }
    Ok(())
}

/// Tells the items of a page: how many they were.
pub(super) fn items_told(remote: &Remote, table: &mut Table, answer: &Answer) -> Result<u64, Failure> {
    let items = as_they_are(answer)?;
    match remote.json {
        true => say(items.iter().map(|item| format!("{}\n", item.get())).collect::<String>())?,
        false => say(table.lines(self::items(&answer.value()?)?))?,
    }
    Ok(items.len() as u64)
}

/// The items of a page, each as it came.
pub(super) fn as_they_are(answer: &Answer) -> Result<Vec<Box<RawValue>>, Failure> {
    #[derive(Deserialize)]
    struct Page {
        items: Vec<Box<RawValue>>,
    }
    serde_json::from_slice::<Page>(&answer.text).map(|page| page.items).map_err(|_| no_list())
}

fn no_list() -> Failure {
    Failure::Away("the server did not answer with a list; is --server an admin listener?".to_owned())
}

/// The items of a page.
pub(super) fn items(answer: &Value) -> Result<&Vec<Value>, Failure> {
    answer["items"].as_array().ok_or_else(no_list)
}

/// A text, or a dash where there is none.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// A moment to the second, in UTC: `2026-11-16 09:00:00Z`.
pub(super) fn time(value: &Value) -> String {
    let Some(moment) = value.as_str() else { return text(value) };
    let Some(rest) = moment.strip_suffix('Z') else { return moment.to_owned() };
    let whole = rest.split('.').next().unwrap_or(rest);
    format!("{}Z", whole.replacen('T', " ", 1))
}

/// When something ends that need not end.
pub(super) fn end(value: &Value) -> String {
    if value.is_null() { "never".to_owned() } else { time(value) }
}

/// A limit as rule files write it.
pub(super) fn limit(value: &Value) -> String {
    if let Some(text) = value["limit"].as_str() {
        return text.to_owned();
    }
    if let Some(percent) = value["percent"].as_u64() {
        return format!("{percent}% of what applies");
    }
    match (value["requests_per_unit"].as_u64(), value["unit"].as_str()) {
        (Some(amount), Some(unit)) => format!("{amount}/{unit}"),
        (Some(amount), None) => amount.to_string(),
        _ => text(value),
    }
}

/// Whether something is in force, or was.
pub(super) fn in_force(item: &Value) -> String {
    if item["in_force"] == false { "over" } else { "yes" }.to_owned()
}

/// A text without characters that would move a terminal's cursor.
pub(super) fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') => {
                cleaned.extend(c.escape_unicode());
            }
            c => cleaned.push(c),
        }
    }
    cleaned
}

/// Names and values, one a line.
pub(super) fn facts(facts: &[(&str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    facts.iter().map(|(name, value)| format!("{name:width$}  {}\n", clean(value))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Table, clean, end, limit, text, time};

    #[test]
    fn columns_are_aligned_and_stay_so_on_later_pages() {
        let mut table = Table::new(&[("NAME", |item| text(&item["name"])), ("N", |item| text(&item["n"]))]);
        assert_eq!(table.lines(&[]), "");
        assert_eq!(table.lines(&[json!({"name": "größer", "n": 1})]), "NAME    N\ngrößer  1\n");
        assert_eq!(table.lines(&[json!({"name": "x"})]), "x       -\n");
    }

    #[test]
    fn values_are_short() {
        assert_eq!(time(&json!("2026-11-16T09:00:00.123456Z")), "2026-11-16 09:00:00Z");
        assert_eq!(time(&json!("2026-11-16T09:00:00Z")), "2026-11-16 09:00:00Z");
        assert_eq!(end(&json!(null)), "never");
        assert_eq!(limit(&json!({"limit": "5/30s"})), "5/30s");
        assert_eq!(limit(&json!({"requests_per_unit": 5, "unit": "hour"})), "5/hour");
        assert_eq!(limit(&json!({"percent": 50})), "50% of what applies");
    }

    #[test]
    fn nothing_that_others_wrote_moves_the_cursor() {
        assert_eq!(clean("a\u{1b}[2Jb\nc\u{202e}d ü"), "a\\u{1b}[2Jb\\u{a}c\\u{202e}d ü");
    }
}
