//! Output for people: tables, short times, fields.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::client::{AdminClient, ApiRequest, ApiResponse};
use super::path::ApiPath;
use super::{CommandError, CommandResult, write_stdout};
use crate::style::{Palette, Tone};

/// Columns: headings, and the cell of an item.
pub(super) type Columns = &'static [(&'static str, fn(&Value) -> String)];

/// A table with aligned columns.
pub(super) struct TextTable {
    columns: Columns,
    widths: Vec<usize>,
    has_heading: bool,
}

/// Items of a page.
const PAGE_SIZE: u64 = 1_000;
/// The widest column that is aligned.
const MAX_COLUMN_WIDTH: usize = 48;

impl TextTable {
    pub(super) fn new(columns: Columns) -> TextTable {
        let widths = columns.iter().map(|(name, _)| name.chars().count()).collect();
        TextTable { columns, widths, has_heading: false }
    }

    /// Lines for these items. Columns never get narrower from page to page.
    pub(super) fn lines(&mut self, items: &[Value]) -> String {
        let mut rows: Vec<Vec<String>> = Vec::with_capacity(items.len() + 1);
        let begins = !self.has_heading && !items.is_empty();
        if begins {
            self.has_heading = true;
            rows.push(self.columns.iter().map(|(name, _)| (*name).to_owned()).collect());
        }
        for item in items {
            rows.push(self.columns.iter().map(|(_, cell)| clean(&cell(item))).collect());
        }
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count().min(MAX_COLUMN_WIDTH));
            }
        }
        let mut text = String::new();
        let palette = Palette::of_stdout();
        for (number, row) in rows.iter().enumerate() {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&self.widths) {
                line.push_str(&format!("{cell:width$}  "));
            }
            let line = line.trim_end();
            let is_heading = begins && number == 0;
            text.push_str(&if is_heading { palette.paint(Tone::Heading, line) } else { line.to_owned() });
            text.push('\n');
        }
        text
    }
}

/// Prints a response: as JSON, or rendered for people.
pub(super) fn print(
    client: &AdminClient,
    response: &ApiResponse,
    render: impl FnOnce(&Value) -> String,
) -> CommandResult {
    if client.json {
        return print_json(response);
    }
    let value = response.value()?;
    let mut text = render(&value);
    // The server put a change in force that its store of record can't take now.
    if let Some(detail) = value["pending"]["detail"].as_str() {
        text.push_str(&format!("pending: {}\n", clean(detail)));
    }
    write_stdout(text)
}

/// Writes the JSON of a response unchanged.
pub(super) fn print_json(response: &ApiResponse) -> CommandResult {
    let mut text = response.text.to_vec();
    if text.last() != Some(&b'\n') {
        text.push(b'\n');
    }
    write_stdout(text)
}

/// Lists all pages, or up to `limit` items; `empty` is the text without items.
pub(super) fn list(
    client: &AdminClient,
    path: &ApiPath,
    limit: Option<u64>,
    columns: Columns,
    empty: &str,
) -> CommandResult {
    list_after(client, path, None, limit, columns, empty)
}

/// Lists the items after one.
pub(super) fn list_after(
    client: &AdminClient,
    path: &ApiPath,
    mut after: Option<String>,
    limit: Option<u64>,
    columns: Columns,
    empty: &str,
) -> CommandResult {
    let (mut table, mut left) = (TextTable::new(columns), limit.unwrap_or(u64::MAX));
    let mut is_empty = true;
    while left > 0 {
        let page = path.clone().with("limit", Some(left.min(PAGE_SIZE).to_string())).with("after", after.as_deref());
        let response = client.send(ApiRequest::get(page))?;
        let (page, response) = (print_items(client, &mut table, &response)?, response.value()?);
        left -= page.min(left);
        is_empty &= page == 0;
        match response["next"].as_str() {
            Some(next) if after.as_deref() != Some(next) => after = Some(next.to_owned()),
            _ => break,
        }
    }
    if is_empty && !client.json {
        write_stdout(format!("{empty}\n"))?;
    }
    Ok(())
}

/// Prints the items of a page and returns their number.
pub(super) fn print_items(
    client: &AdminClient,
    table: &mut TextTable,
    response: &ApiResponse,
) -> Result<u64, CommandError> {
    let items = raw_items(response)?;
    match client.json {
        true => write_stdout(items.iter().map(|item| format!("{}\n", item.get())).collect::<String>())?,
        false => write_stdout(table.lines(self::items(&response.value()?)?))?,
    }
    Ok(items.len() as u64)
}

/// The JSON of each item of a page.
pub(super) fn raw_items(response: &ApiResponse) -> Result<Vec<Box<RawValue>>, CommandError> {
    #[derive(Deserialize)]
    struct ItemPage {
        items: Vec<Box<RawValue>>,
    }
    serde_json::from_slice::<ItemPage>(&response.text).map(|page| page.items).map_err(|_| not_a_list())
}

fn not_a_list() -> CommandError {
    CommandError::Unavailable("the response is not a list; is --server an admin listener?".to_owned())
}

/// The items of a page.
pub(super) fn items(response: &Value) -> Result<&Vec<Value>, CommandError> {
    response["items"].as_array().ok_or_else(not_a_list)
}

/// A value as text, or a dash if it is empty.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// What counts: the source of the reading, and the region if one owns the counter: `store of us-west`.
pub(super) fn counted_in(counter: &Value) -> String {
    let source = text(&counter["source"]);
    counter["region"].as_str().map_or_else(|| source.clone(), |region| format!("{source} of {region}"))
}

/// A time to the second, in UTC: `2026-11-16 09:00:00Z`.
pub(super) fn time(value: &Value) -> String {
    let Some(time) = value.as_str() else { return text(value) };
    let Some(rest) = time.strip_suffix('Z') else { return time.to_owned() };
    let whole = rest.split('.').next().unwrap_or(rest);
    format!("{}Z", whole.replacen('T', " ", 1))
}

/// When something ends, or `never`.
pub(super) fn expiry(value: &Value) -> String {
    if value.is_null() { "never".to_owned() } else { time(value) }
}

/// A limit in the syntax of rule files.
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

/// Whether an item is in force, or has ended.
pub(super) fn in_force(item: &Value) -> String {
    if item["in_force"] == false { "over" } else { "yes" }.to_owned()
}

/// A text with control characters and direction marks escaped.
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

/// Names and values, one per line.
pub(super) fn fields(fields: &[(&str, String)]) -> String {
    let width = fields.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    fields.iter().map(|(name, value)| format!("{name:width$}  {}\n", clean(value))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{TextTable, clean, counted_in, expiry, limit, text, time};

    #[test]
    fn counters_of_a_region_have_its_name() {
        assert_eq!(counted_in(&json!({"source": "store"})), "store");
        assert_eq!(counted_in(&json!({"source": "lease", "region": "us-west"})), "lease of us-west");
    }

    #[test]
    fn columns_are_aligned_and_stay_so_on_later_pages() {
        let mut table = TextTable::new(&[("NAME", |item| text(&item["name"])), ("N", |item| text(&item["n"]))]);
        assert_eq!(table.lines(&[]), "");
        assert_eq!(table.lines(&[json!({"name": "größer", "n": 1})]), "NAME    N\ngrößer  1\n");
        assert_eq!(table.lines(&[json!({"name": "x"})]), "x       -\n");
    }

    #[test]
    fn values_are_short() {
        assert_eq!(time(&json!("2026-11-16T09:00:00.123456Z")), "2026-11-16 09:00:00Z");
        assert_eq!(time(&json!("2026-11-16T09:00:00Z")), "2026-11-16 09:00:00Z");
        assert_eq!(expiry(&json!(null)), "never");
        assert_eq!(limit(&json!({"limit": "5/30s"})), "5/30s");
        assert_eq!(limit(&json!({"requests_per_unit": 5, "unit": "hour"})), "5/hour");
        assert_eq!(limit(&json!({"percent": 50})), "50% of what applies");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(clean("a\u{1b}[2Jb\nc\u{202e}d ü"), "a\\u{1b}[2Jb\\u{a}c\\u{202e}d ü");
    }
}
