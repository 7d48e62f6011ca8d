//! Just enough of Rust's and TOML's grammar to tell code from words about it.

/// The code without what comments and literals say; lines stay where they are.
pub(crate) fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let skipped = match next {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => quoted(rest),
            'r' if !ends_in_word(&code) => raw_string(rest),
            '\'' => character(rest),
            _ => 0,
        };
        if skipped == 0 {
            code.push(next);
            rest = &rest[next.len_utf8()..];
        } else {
            code.push(' ');
            code.extend(rest[..skipped].chars().filter(|&c| c == '\n'));
            rest = &rest[skipped..];
        }
    }
    code
}

/// The lines, from 1, in which `words` stand alone: no part of a longer name.
pub(crate) fn lines_with(code: &str, words: &str) -> Vec<usize> {
    let stands_alone = |line: &str| {
        line.match_indices(words).any(|(at, _)| {
            let after = line[at + words.len()..].chars().next();
            let goes_on = ends_in_word(words) && after.is_some_and(is_word);
            !ends_in_word(&line[..at]) && !goes_on
        })
    };
    code.lines().enumerate().filter(|(_, line)| stands_alone(line)).map(|(at, _)| at + 1).collect()
}

/// The lines, from 1, with a literal such as `1.5`; `pair.0.1` is none.
pub(crate) fn lines_with_float_literals(code: &str) -> Vec<usize> {
    let is_float = |line: &str| {
        line.match_indices('.').any(|(at, _)| {
            let before = line[..at].trim_end_matches(|c: char| c.is_ascii_digit() || c == '_');
            let digits = &line[before.len()..at];
            digits.starts_with(|c: char| c.is_ascii_digit())
                && !before.ends_with('.')
                && !ends_in_word(before)
                && line[at + 1..].starts_with(|c: char| c.is_ascii_digit())
        })
    };
    code.lines().enumerate().filter(|(_, line)| is_float(line)).map(|(at, _)| at + 1).collect()
}

/// The names in a manifest's dependency tables, each with the line it is on; `dev` tables only on request.
pub(crate) fn dependencies(manifest: &str, dev: bool) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_table = false;
    for (at, line) in manifest.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(header) = line.strip_prefix('[') {
            let header = header.trim_end_matches(']');
            let table = header.rsplit_once("dependencies").filter(|(before, _)| dev || !before.ends_with("dev-"));
            in_table = table.is_some_and(|(_, after)| after.is_empty());
            // `[dependencies.name]`: a table for one of them.
            if let Some(name) = table.and_then(|(_, after)| after.strip_prefix('.')) {
                found.push((at + 1, name.to_owned()));
            }
        } else if in_table && let Some((name, _)) = line.split_once('=') {
            let name = name.trim().split('.').next().unwrap_or_default();
            found.push((at + 1, name.trim_matches('"').to_owned()));
        }
    }
    found
}

/// The package's name in a manifest.
pub(crate) fn package(manifest: &str) -> &str {
    let name = manifest.lines().find_map(|line| line.strip_prefix("name = "));
    name.unwrap_or_default().trim_matches('"')
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn ends_in_word(text: &str) -> bool {
    text.chars().next_back().is_some_and(is_word)
}

/// How long the comment is that `text` begins with; they nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// How long the string is that `text` begins with.
fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// How long the raw string is that `text` begins with; 0 if it does not.
fn raw_string(text: &str) -> usize {
    let hashes = text[1..].len() - text[1..].trim_start_matches('#').len();
    if !text[1 + hashes..].starts_with('"') {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let begin = 2 + hashes;
    text[begin..].find(&end).map_or(text.len(), |at| begin + at + end.len())
}

/// How long the character literal is that `text` begins with; 0 for a lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => text[3..].find('\'').map_or(0, |at| 3 + at + 1),
        Some(_) => chars.next().filter(|&(_, c)| c == '\'').map_or(0, |(at, _)| at + 1),
        None => 0,
    }
}
