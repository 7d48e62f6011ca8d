//! Paths and methods in one spelling.
//!
//! `/%6frders`, `//orders` and `/x/../orders` are the same to most applications. A rule that matches `/orders` must see
//! all of them as `/orders`, or a client chooses a spelling that no rule matches.
//!
//! The steps, in this order:
//!
//! 1. The scheme and authority of an absolute form (`http://host/orders`), the query and the fragment are dropped.
//! 2. Percent-encoded bytes are decoded, except those that would change what the path means: `/`, `%`, `?`, `#` and
//!    control characters. The digits of these are written in upper case.
//! 3. With [`matrix_parameters`](PathNormalization::matrix_parameters), each segment ends at its first `;`.
//! 4. Slashes in a row are one slash, and dot segments are resolved.
//! 5. With [`trailing_slash`](PathNormalization::trailing_slash), a slash at the end is dropped.
//! 6. With [`lower_case`](PathNormalization::lower_case), ASCII letters are in lower case.
//!
//! The result is never longer, and normalizing it again changes nothing.

use std::borrow::Cow;

/// Which spellings of paths and methods are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathNormalization {
    /// Absolute forms, queries, percent-encoding, repeated slashes, dot segments, and methods in lower case.
    pub standard: bool,
    /// `/login;x=1` is `/login`, for applications that ignore parameters of segments, such as Java's.
    pub matrix_parameters: bool,
    /// `/login/` is `/login`.
    pub trailing_slash: bool,
    /// `/LOGIN` is `/login`.
    pub lower_case: bool,
}

/// What a byte is in a path.
#[derive(Clone, Copy)]
enum Step {
    /// As it was sent.
    Byte(u8),
    /// It was encoded.
    Decoded(u8),
    /// An encoded byte that stays encoded.
    Encoded(u8),
}

impl PathNormalization {
    /// Everything stays as it was sent.
    pub const NONE: PathNormalization =
        PathNormalization { standard: false, matrix_parameters: false, trailing_slash: false, lower_case: false };

    /// A method in upper case.
    pub fn method<'m>(&self, method: &'m [u8]) -> Cow<'m, [u8]> {
        match self.standard && method.iter().any(u8::is_ascii_lowercase) {
            true => Cow::Owned(method.to_ascii_uppercase()),
            false => Cow::Borrowed(method),
        }
    }

    /// A path in its one spelling. What is not a path (`*`, a name) stays as it is.
    pub fn path<'p>(&self, target: &'p [u8]) -> Cow<'p, [u8]> {
        if self.is_normal(target) {
            return Cow::Borrowed(target);
        }
        match self.standard {
            true => without_authority(target).map_or(Cow::Borrowed(target), |path| self.normalize(path)),
            false => Cow::Borrowed(target),
        }
    }

    /// A method and a path, `POST /orders`, or a path alone.
    pub fn endpoint<'e>(&self, endpoint: &'e [u8]) -> Cow<'e, [u8]> {
        let Some(space) = endpoint.iter().position(|byte| *byte == b' ') else { return self.path(endpoint) };
        let (method, path) = (&endpoint[..space], &endpoint[space + 1..]);
        // A path alone may have a space too.
        if without_authority(method).is_some() {
            return self.path(endpoint);
        }
        match (self.method(method), self.path(path)) {
            (Cow::Borrowed(_), Cow::Borrowed(whole)) if whole.len() == path.len() => Cow::Borrowed(endpoint),
            (method, path) => Cow::Owned([&method[..], b" ", &path[..]].concat()),
        }
    }

    /// The value of `path`, `method` or `endpoint` in its one spelling, if it has another one. Other attributes have none.
    pub fn attribute(&self, name: &str, value: &[u8]) -> Option<Vec<u8>> {
        let normal = match name {
            "path" => self.path(value),
            "method" => self.method(value),
            "endpoint" => self.endpoint(value),
            _ => return None,
        };
        match normal {
            Cow::Borrowed(same) if same.len() == value.len() => None,
            normal => Some(normal.into_owned()),
        }
    }

    /// Whether a path has nothing to normalize. Nearly all have not.
    fn is_normal(&self, path: &[u8]) -> bool {
        let [b'/', rest @ ..] = path else { return false };
        let mut before = b'/';
        let is_usual = |byte: u8| {
            let unusual = match byte {
                b'%' | b'?' | b'#' => true,
                b'/' | b'.' => before == b'/',
                b';' => self.matrix_parameters,
                b'A'..=b'Z' => self.lower_case,
                _ => false,
            };
            before = byte;
            !unusual
        };
        rest.iter().copied().all(is_usual) && !(self.trailing_slash && rest.ends_with(b"/"))
    }

    #[cold]
    fn normalize(&self, path: &[u8]) -> Cow<'static, [u8]> {
        let mut normal: Vec<u8> = Vec::with_capacity(path.len());
        let mut segment: Vec<u8> = Vec::new();
        let mut is_parameter = false;
        let mut steps = Decoder { rest: path };
        loop {
            match steps.next() {
                Some(Step::Byte(b'/')) => {
                    is_parameter = false;
                    end_segment(&mut normal, &mut segment, true);
                }
                Some(Step::Byte(b';') | Step::Decoded(b';')) if self.matrix_parameters => is_parameter = true,
                Some(_) if is_parameter => {}
                Some(Step::Byte(byte)) => segment.push(byte),
                // After a stray percent sign a digit would make an encoded byte of it.
                Some(Step::Decoded(byte)) if byte.is_ascii_hexdigit() && has_stray_percent(&segment) => {
                    segment.extend_from_slice(&encoded(byte));
                }
                Some(Step::Decoded(byte)) => segment.push(byte),
                Some(Step::Encoded(byte)) => segment.extend_from_slice(&encoded(byte)),
                None => break,
            }
        }
        end_segment(&mut normal, &mut segment, false);
        if self.trailing_slash && normal.len() > 1 && normal.ends_with(b"/") {
            normal.pop();
        }
        if self.lower_case {
            normal.make_ascii_lowercase();
        }
        Cow::Owned(normal)
    }
}

impl Default for PathNormalization {
    fn default() -> PathNormalization {
        PathNormalization { standard: true, ..PathNormalization::NONE }
    }
}

/// Appends a segment to a path that is empty or ends with a slash.
fn end_segment(path: &mut Vec<u8>, segment: &mut Vec<u8>, is_followed: bool) {
    match &segment[..] {
        b"" | b"." => {}
        b".." => {
            // Without the last slash, then without the segment before it. The first slash stays.
            path.pop();
            let end = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
            path.truncate(end);
        }
        other => {
            path.extend_from_slice(other);
            if is_followed {
                path.push(b'/');
            }
        }
    }
    segment.clear();
    if path.is_empty() {
        path.push(b'/');
    }
}

/// Whether a segment ends with a percent sign that encodes nothing, and at most one digit.
fn has_stray_percent(segment: &[u8]) -> bool {
    matches!(segment, [.., b'%'] | [.., b'%', b'0'..=b'9' | b'A'..=b'F' | b'a'..=b'f'])
}

fn encoded(byte: u8) -> [u8; 3] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    [b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

/// Reads a path byte by byte, without its query and fragment.
struct Decoder<'p> {
    rest: &'p [u8],
}

impl Iterator for Decoder<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let (step, rest) = match self.rest {
            [] | [b'?' | b'#', ..] => return None,
            [b'%', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                let byte = digit(*high) << 4 | digit(*low);
                match byte {
                    b'/' | b'%' | b'?' | b'#' | 0..=0x1f | 0x7f => (Step::Encoded(byte), rest),
                    byte => (Step::Decoded(byte), rest),
                }
            }
            [byte, rest @ ..] => (Step::Byte(*byte), rest),
        };
        self.rest = rest;
        Some(step)
    }
}

fn digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        _ => (byte | 0x20) - b'a' + 10,
    }
}

/// The path of a target in origin form or in absolute form.
fn without_authority(target: &[u8]) -> Option<&[u8]> {
    if target.starts_with(b"/") {
        return Some(target);
    }
    let colon = target.iter().position(|byte| !byte.is_ascii_alphanumeric() && !b"+-.".contains(byte))?;
    let after = target[colon..].strip_prefix(b"://").filter(|_| colon > 0)?;
    let end = after.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(after.len());
    Some(match &after[end..] {
        path @ [b'/', ..] => path,
        _ => b"/",
    })
}

#[cfg(test)]
mod tests;
