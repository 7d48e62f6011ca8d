//! Paths of the API, with percent-encoding: names of callers may contain any character.

use std::fmt::Write as _;

/// A path with its query.
#[derive(Clone, Debug)]
pub(super) struct ApiPath {
    text: String,
    has_query: bool,
}

impl ApiPath {
    /// The path with these segments.
    pub(super) fn new(parts: &[&str]) -> ApiPath {
        let mut text = String::new();
        for part in parts {
            text.push('/');
            match *part {
                // Otherwise they would be relative segments.
                "." => text.push_str("%2E"),
                ".." => text.push_str("%2E%2E"),
                part => encode(part, &mut text),
            }
        }
        ApiPath { text, has_query: false }
    }

    /// Adds a query parameter, if it has a value.
    pub(super) fn with(mut self, name: &str, value: Option<impl AsRef<str>>) -> ApiPath {
        if let Some(value) = value {
            self.text.push(if self.has_query { '&' } else { '?' });
            self.has_query = true;
            encode(name, &mut self.text);
            self.text.push('=');
            encode(value.as_ref(), &mut self.text);
        }
        self
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }
}

fn encode(text: &str, into: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => into.push(char::from(byte)),
            // Writing to a String can't fail.
            other => drop(write!(into, "%{other:02X}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ApiPath;

    #[test]
    fn any_name_stays_one_segment() {
        let rows = [
            ("ada", "/q/ada"),
            ("a b/c?d#e%", "/q/a%20b%2Fc%3Fd%23e%25"),
            ("größe", "/q/gr%C3%B6%C3%9Fe"),
            ("..", "/q/%2E%2E"),
            (".", "/q/%2E"),
            ("a.b", "/q/a.b"),
        ];
        for (name, path) in rows {
            assert_eq!(ApiPath::new(&["q", name]).as_str(), path);
        }
    }

    #[test]
    fn parameters_without_a_value_are_omitted() {
        let path = ApiPath::new(&["q"]).with("a", None::<&str>).with("b c", Some("1&2")).with("d", Some(""));
        assert_eq!(path.as_str(), "/q?b%20c=1%262&d=");
    }
}
