//! What to write instead of a text that is not YAML.
//!
//! The parser says what it expected. Most of these errors have one of a few causes, which the lines around the error show.

use crate::problem::quoted;

/// The remedy if the cause is not found.
const USUAL: &str = "look for wrong indentation, an open quote or bracket, or a text that needs quotes";

/// The lines before an error in which its cause is searched.
const MAX_LINES: usize = 100;

/// Where the parser stopped.
struct SyntaxError<'t> {
    /// The lines up to the error, the last ones first, with their numbers.
    lines: Vec<(usize, &'t str)>,
    /// The text of the line before and after the place of the error.
    before: &'t str,
    after: &'t str,
}

/// The remedy for an error of the parser at this line and column, both from 1.
pub(super) fn remedy(text: &str, line: usize, column: usize, info: &str) -> String {
    let first = line.saturating_sub(MAX_LINES);
    let lines: Vec<&str> = text.lines().skip(first).take(line - first).collect();
    let Some(last) = lines.last() else { return USUAL.to_owned() };
    let split = last.char_indices().nth(column.saturating_sub(1)).map_or(last.len(), |(at, _)| at);
    let (before, after) = last.split_at(split);
    let numbered = lines.iter().enumerate().map(|(number, text)| (first + number + 1, *text)).rev();
    let error = SyntaxError { lines: numbered.collect(), before, after };
    error.remedy(info).unwrap_or_else(|| USUAL.to_owned())
}

impl SyntaxError<'_> {
    fn remedy(&self, info: &str) -> Option<String> {
        if info.contains("tab") {
            return Some("indent with spaces, not with tabs".to_owned());
        }
        if info.contains("unknown anchor") {
            let name = self.value().trim_start_matches('*');
            let is_anchor =
                !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
            let anchor = if is_anchor { format!(", or define `&{name}` above") } else { String::new() };
            return Some(format!("put it in quotes: {}{anchor}", self.in_quotes(self.value())));
        }
        if self.after.starts_with(['*', '&', '@', '%', '`', '!', '|', '>']) {
            return Some(format!("put it in quotes: {}", self.in_quotes(self.value())));
        }
        // A digit that is missing, or a character that does not exist, is part of an escape too.
        if info.contains("escape") || info.contains("hexadecimal") {
            return Some(self.escape());
        }
        if info.contains("quoted scalar") {
            return Some("close the quote that opens here".to_owned());
        }
        if info.contains("placement of ':'") {
            return self.open_bracket();
        }
        if info.contains("flow") {
            return self.text_with_braces().or_else(|| self.open_bracket());
        }
        let cause = if info.contains("mapping values") { self.colon() } else { None };
        cause.or_else(|| self.indentation(info))
    }

    /// The value at the error, up to the end of the line or of the list that contains it.
    fn value(&self) -> &str {
        let end = self.after.find([',', ']', '}']).unwrap_or(self.after.len());
        let value = self.after.get(..end).unwrap_or(self.after);
        value.split(" #").next().unwrap_or(value).trim_end()
    }

    /// `endpoint: "*"`, or the text alone if it has no key.
    fn in_quotes(&self, value: &str) -> String {
        let written = format!("{value:?}");
        quoted(&self.key_before().map_or_else(|| written.clone(), |key| format!("{key}: {written}")))
    }

    /// The key whose value begins at the error.
    fn key_before(&self) -> Option<&str> {
        self.before.trim_end().strip_suffix(':').and_then(|before| before.rsplit([' ', '{', ',']).next())
    }

    /// A backslash in double quotes that was meant as one, as in regular expressions and paths of Windows.
    fn escape(&self) -> String {
        const ESCAPE: &str = "in double quotes a backslash begins an escape";
        let inner = self.after.strip_prefix('"').and_then(|rest| rest.split('"').next());
        match inner {
            // In single quotes a backslash is a backslash, but a quote is not a quote.
            Some(inner) if !inner.ends_with('\\') && !inner.contains('\'') && inner.len() + 2 <= self.after.len() => {
                let text = format!("{}'{inner}'", self.key_before().map(|key| format!("{key}: ")).unwrap_or_default());
                format!("{ESCAPE}: use single quotes, {}, or write it twice", quoted(&text))
            }
            _ => format!("{ESCAPE}: write it twice"),
        }
    }

    /// A `:` where no key can be: a text that has one, or a line before that is not what it seems.
    fn colon(&self) -> Option<String> {
        if let Some((key, value)) = self.before.split_once(": ") {
            let value = format!("{value}{}", self.after);
            let key = key.trim_start_matches([' ', '-']);
            return Some(format!("put the text in quotes: {}", quoted(&format!("{key}: {:?}", value.trim()))));
        }
        let (number, line) = self.previous()?;
        let text = line.trim();
        if let Some(item) = text.strip_prefix('-').filter(|item| item.starts_with(char::is_alphanumeric)) {
            return Some(format!("write a space after the dash in line {number}: `- {item}`"));
        }
        let (key, value) = text.split_once(':')?;
        let joined = value.starts_with(char::is_alphanumeric);
        joined
            .then(|| format!("write a space after the colon in line {number}: {}", quoted(&format!("{key}: {value}"))))
    }

    /// The column of an earlier line at which this one probably should begin.
    fn indentation(&self, info: &str) -> Option<String> {
        if !info.contains("block") && !info.contains("mapping values") {
            return None;
        }
        let (_, line) = self.lines.first()?;
        let begins = |line: &str| line.len() - line.trim_start().len();
        let is_item = |line: &str| line.trim_start().starts_with("- ");
        let (own, is_own_item) = (begins(line), is_item(line));
        let column = |line: &str| if is_item(line) && !is_own_item { begins(line) + 2 } else { begins(line) };
        let mut others = self.written().skip(1).filter(|(_, line)| is_item(line) || !is_own_item);
        let (number, line) = others.find(|(_, line)| column(line) != own)?;
        Some(format!("begin this line at column {}, like line {number}", column(line) + 1))
    }

    fn text_with_braces(&self) -> Option<String> {
        let (key, value) = self.before.rsplit_once(": ")?;
        let whole = format!("{value}{}", self.after);
        // A bracket at the beginning is a map or a list.
        if value.trim().is_empty() || whole.starts_with(['{', '[']) || !whole.contains(['{', '[']) {
            return None;
        }
        let value = whole.trim_end().strip_suffix(['}', ']']).unwrap_or(&whole);
        let key = key.rsplit([' ', '{', ',']).next()?;
        Some(format!("put the text in quotes: {}", quoted(&format!("{key}: {value:?}"))))
    }

    /// A bracket of an earlier line that is not closed in that line.
    fn open_bracket(&self) -> Option<String> {
        self.written().find_map(|(number, line)| {
            let count = |bracket: char| line.matches(bracket).count();
            let open = [('[', ']'), ('{', '}')].into_iter().find(|(open, close)| count(*open) > count(*close));
            open.map(|(open, close)| format!("close the `{open}` in line {number} with a `{close}`"))
        })
    }

    fn previous(&self) -> Option<(usize, &str)> {
        self.written().nth(1)
    }

    /// The lines with content, the last one first.
    fn written(&self) -> impl Iterator<Item = (usize, &str)> {
        let is_written = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
        self.lines.iter().copied().filter(move |(_, line)| is_written(line))
    }
}
