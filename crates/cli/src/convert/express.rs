//! Calls of express-rate-limit in JavaScript: the options of each limiter, and the routes that use it.
//!
//! The code is not run. Options that are not plain numbers are named and not converted.

use super::Conversion;
use super::rule::{ConvertedRule, ValueCondition};

/// Calls that make a limiter.
const CALLS: [&str; 2] = ["rateLimit(", "RateLimit("];

/// Methods of an application that take a limiter, and the HTTP method of the route.
const ROUTES: [(&str, Option<&str>); 6] = [
    (".use(", None),
    (".get(", Some("GET")),
    (".post(", Some("POST")),
    (".put(", Some("PUT")),
    (".patch(", Some("PATCH")),
    (".delete(", Some("DELETE")),
];

/// The library's defaults.
const DEFAULT_WINDOW_MS: u64 = 60_000;
const DEFAULT_LIMIT: u64 = 5;

/// Limiters of a file, at most.
const MAX_CALLS: usize = 1_000;

/// Converts a file.
pub(super) fn convert(text: &str) -> Conversion {
    let mut conversion = Conversion::default();
    let code = without_comments(text);
    let mut calls: Vec<(usize, usize)> = CALLS
        .iter()
        .flat_map(|call| code.match_indices(call).map(|(at, call)| (at, at + call.len())))
        .filter(|(at, _)| !code.get(..*at).unwrap_or_default().ends_with(|c: char| c.is_alphanumeric() || c == '_'))
        .collect();
    calls.sort_unstable();
    for (at, begin) in calls.into_iter().take(MAX_CALLS) {
        let line = code.get(..at).unwrap_or_default().matches('\n').count() + 1;
        let before = code.get(..at).unwrap_or_default();
        let after = code.get(begin..).unwrap_or_default();
        add_limiter(line, name(before), after, &code, &mut conversion);
    }
    conversion
}

/// The variable that a call is assigned to.
fn name(before: &str) -> Option<&str> {
    let assigned = before.trim_end().trim_end_matches("new").trim_end().strip_suffix('=')?.trim_end();
    let start = assigned.rfind(|c: char| !c.is_alphanumeric() && c != '_' && c != '$').map_or(0, |at| at + 1);
    assigned.get(start..).filter(|name| !name.is_empty())
}

fn add_limiter(line: usize, name: Option<&str>, arguments: &str, code: &str, conversion: &mut Conversion) {
    let options = match arguments.trim_start().strip_prefix('{').and_then(within_braces) {
        Some(options) => split(options),
        None if arguments.trim_start().starts_with(')') => Vec::new(),
        None => {
            conversion.note(line, "rateLimit: its options are not written here");
            return;
        }
    };
    let (mut window, mut limit) = (Some(DEFAULT_WINDOW_MS), Some(DEFAULT_LIMIT));
    for option in options {
        let (key, value) = option.split_once(':').map_or((option, option), |(key, value)| (key.trim(), value.trim()));
        match key.trim().trim_matches(['"', '\'']) {
            "" => {}
            "windowMs" => window = product(value),
            "limit" | "max" => limit = product(value),
            key @ ("standardHeaders" | "legacyHeaders" | "headers") => {
                conversion.note(line, format!("{key}: the server sends both kinds of headers (docs/http.md)"));
            }
            key => conversion.note(line, format!("{key}: {}", value.split_whitespace().collect::<Vec<_>>().join(" "))),
        }
    }
    let (Some(window @ 1..), Some(limit)) = (window, limit) else {
        conversion.note(line, "rateLimit: windowMs or limit is not a number");
        return;
    };
    let limit = format!("{limit}/{}", period(window));
    let rule = ConvertedRule {
        name: name.unwrap_or("limiter").to_owned(),
        key: vec!["remote_address".to_owned()],
        limit,
        terms: vec![("algorithm", "fixed_window".to_owned())],
        line,
        ..ConvertedRule::default()
    };
    let routes = name.map(|name| routes(name, code)).unwrap_or_default();
    // A limiter has one counter for each address, whatever its routes are.
    let (paths, endpoints): (Vec<_>, Vec<_>) = routes.into_iter().partition(|(method, _)| method.is_none());
    let mut scopes: Vec<Vec<(String, ValueCondition)>> = Vec::new();
    if !paths.is_empty() {
        let values = paths.into_iter().map(|(_, path)| path).collect();
        scopes.push(vec![("path".to_owned(), ValueCondition::AnyOf(values))]);
    }
    if !endpoints.is_empty() {
        let values =
            endpoints.into_iter().map(|(method, path)| format!("{} {path}", method.unwrap_or_default())).collect();
        scopes.push(vec![("endpoint".to_owned(), ValueCondition::AnyOf(values))]);
    }
    if scopes.len() > 1 {
        conversion.note(line, "the limiter counts app.use and routes together; here they are two rules");
    }
    if scopes.is_empty() {
        scopes.push(Vec::new());
    }
    conversion.rules.extend(scopes.into_iter().map(|conditions| ConvertedRule { conditions, ..rule.clone() }));
}

/// The routes that use a limiter: method and path. A limiter for all requests has none.
fn routes(name: &str, code: &str) -> Vec<(Option<&'static str>, String)> {
    let mut found = Vec::new();
    for (call, method) in ROUTES {
        for (at, _) in code.match_indices(call) {
            let arguments = code.get(at + call.len()..).unwrap_or_default();
            let end = top_level(arguments, |c, depth| c == ')' && depth < 0).next().unwrap_or(arguments.len());
            let arguments = arguments.get(..end).unwrap_or_default();
            let uses = arguments.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '$').any(|word| word == name);
            let path = string(arguments.trim_start()).filter(|path| path.starts_with('/'));
            if let (true, Some(path)) = (uses, path) {
                let parts = path.split('/').map(|part| if part.starts_with(':') { "*" } else { part });
                let path = parts.collect::<Vec<_>>().join("/");
                // `app.use` applies to everything below its path.
                found.push((method, if method.is_none() { format!("{path}*") } else { path }));
            }
        }
    }
    found
}

/// The text at the beginning, if it is in quotes.
fn string(text: &str) -> Option<&str> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"' | '`'))?;
    text.get(1..)?.split(quote).next()
}

/// A number, or a product of numbers: `15 * 60 * 1000`.
fn product(text: &str) -> Option<u64> {
    let factors = text.split('*').map(|factor| factor.trim().replace('_', "").parse::<u64>().ok());
    factors.collect::<Option<Vec<_>>>()?.into_iter().try_fold(1_u64, u64::checked_mul)
}

/// A period in the largest unit.
fn period(millis: u64) -> String {
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    let (unit, length) = units.into_iter().find(|(_, length)| millis.is_multiple_of(*length)).unwrap_or(("ms", 1));
    format!("{}{unit}", millis / length)
}

/// The text up to the brace that closes it.
fn within_braces(text: &str) -> Option<&str> {
    let end = top_level(text, |c, depth| c == '}' && depth < 0).next()?;
    text.get(..end)
}

/// The parts between commas that are in no bracket and no string.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut begin = 0;
    for comma in top_level(text, |c, depth| c == ',' && depth == 0) {
        parts.extend(text.get(begin..comma));
        begin = comma + 1;
    }
    parts.extend(text.get(begin..));
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// The places of characters outside of strings that pass a test, which gets the depth of brackets after the character.
fn top_level<'t>(text: &'t str, test: impl Fn(char, i64) -> bool + 't) -> impl Iterator<Item = usize> + 't {
    let (mut depth, mut quote, mut is_escaped) = (0_i64, None, false);
    text.char_indices().filter_map(move |(at, c)| {
        match quote {
            Some(open) => {
                if c == open && !is_escaped {
                    quote = None;
                }
                is_escaped = c == '\\' && !is_escaped;
                return None;
            }
            None if matches!(c, '\'' | '"' | '`') => quote = Some(c),
            None if matches!(c, '{' | '(' | '[') => depth += 1,
            None if matches!(c, '}' | ')' | ']') => depth -= 1,
            None => {}
        }
        test(c, depth).then_some(at)
    })
}

/// The code with comments replaced by spaces, so that lines keep their numbers.
fn without_comments(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut is_block = false;
    for line in text.lines() {
        let mut rest = line;
        while !rest.is_empty() {
            if is_block {
                match rest.split_once("*/") {
                    Some((_, after)) => (rest, is_block) = (after, false),
                    None => break,
                }
            }
            // `//` after a colon is a URL.
            let line_comment = rest
                .match_indices("//")
                .map(|(at, _)| at)
                .find(|at| !rest.get(..*at).is_some_and(|text| text.ends_with(':')));
            match (line_comment, rest.find("/*")) {
                (Some(at), block) if block.is_none_or(|block| at < block) => {
                    code.push_str(rest.get(..at).unwrap_or_default());
                    break;
                }
                (_, Some(at)) => {
                    code.push_str(rest.get(..at).unwrap_or_default());
                    (rest, is_block) = (rest.get(at + 2..).unwrap_or_default(), true);
                }
                _ => {
                    code.push_str(rest);
                    break;
                }
            }
        }
        code.push('\n');
    }
    code
}
