//! The tokens of GraphQL documents.

/// A token. What texts contain has no meaning for costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueryToken<'q> {
    /// One of `! $ & ( ) : = @ [ ] { } |`.
    Sign(u8),
    /// `...`
    Spread,
    Name(&'q str),
    Int(&'q str),
    Float,
    Text,
    End,
}

/// Reads one token after the other.
#[derive(Clone, Debug)]
pub(super) struct Lexer<'q> {
    query: &'q str,
    at: usize,
}

impl<'q> Lexer<'q> {
    pub(super) fn new(query: &'q str) -> Lexer<'q> {
        Lexer { query, at: 0 }
    }

    /// The next token. `None` if no token begins like this.
    pub(super) fn next(&mut self) -> Option<QueryToken<'q>> {
        self.skip_ignored();
        let rest = self.rest();
        let Some(first) = rest.first() else { return Some(QueryToken::End) };
        let (token, length) = match first {
            b'!' | b'$' | b'&' | b'(' | b')' | b':' | b'=' | b'@' | b'[' | b']' | b'{' | b'}' | b'|' => {
                (QueryToken::Sign(*first), 1)
            }
            b'.' if rest.starts_with(b"...") => (QueryToken::Spread, 3),
            b'"' => (QueryToken::Text, text_length(rest)?),
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => {
                let length = prefix(rest, |byte| byte == b'_' || byte.is_ascii_alphanumeric());
                (QueryToken::Name(self.query.get(self.at..self.at + length)?), length)
            }
            b'-' | b'0'..=b'9' => self.number(rest)?,
            _ => return None,
        };
        self.at += length;
        Some(token)
    }

    fn rest(&self) -> &'q [u8] {
        &self.query.as_bytes()[self.at..]
    }

    /// Skips spaces, commas, line ends, comments and byte order marks.
    fn skip_ignored(&mut self) {
        loop {
            let rest = self.rest();
            match rest {
                [b' ' | b'\t' | b'\n' | b'\r' | b',', ..] => self.at += 1,
                [b'#', ..] => self.at += prefix(rest, |byte| byte != b'\n' && byte != b'\r'),
                [0xef, 0xbb, 0xbf, ..] => self.at += 3,
                _ => return,
            }
        }
    }

    fn number(&self, rest: &[u8]) -> Option<(QueryToken<'q>, usize)> {
        let length = prefix(rest, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.'));
        let text = self.query.get(self.at..self.at + length)?;
        let digits = text.strip_prefix('-').unwrap_or(text);
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some((QueryToken::Int(text), length));
        }
        text.parse::<f64>().ok().map(|_| (QueryToken::Float, length))
    }
}

/// The number of bytes at the beginning that are like this.
fn prefix(bytes: &[u8], is_part: impl Fn(u8) -> bool) -> usize {
    bytes.iter().take_while(|byte| is_part(**byte)).count()
}

/// The length of a text with its quotes: `"…"` in one line, or `"""…"""`.
fn text_length(rest: &[u8]) -> Option<usize> {
    let is_block = rest.starts_with(br#"""""#);
    let mut at = if is_block { 3 } else { 1 };
    loop {
        let behind = rest.get(at..)?;
        at += match behind {
            [b'"', b'"', b'"', ..] if is_block => return Some(at + 3),
            [b'"', ..] if !is_block => return Some(at + 1),
            [b'\\', b'"', b'"', b'"', ..] if is_block => 4,
            [b'\\', _, ..] if !is_block => 2,
            [b'\n' | b'\r', ..] if !is_block => return None,
            [_, ..] => 1,
            [] => return None,
        };
    }
}
