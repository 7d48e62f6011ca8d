//! Finds requests whose framing is ambiguous, before hyper reads them.
//!
//! hyper accepts a request with both `Content-Length` and `Transfer-Encoding`, and one with two equal lengths, and hides
//! that from services. What it forwards is unambiguous, but a proxy in front may have read such a request differently, and
//! other proxies refuse it. The scanner follows the messages of a connection just far enough to see this.

/// Follows the requests of an HTTP/1.1 connection as bytes arrive.
#[derive(Debug, Default)]
pub(crate) struct FramingScanner {
    state: ScanState,
    /// The start of a line that has not ended yet. Only as much as names and lengths need.
    line: Vec<u8>,
    head: HeadFraming,
    is_ambiguous: bool,
}

/// Where the scanner is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScanState {
    /// In the lines of a head.
    #[default]
    Head,
    /// In a body of known length: the bytes that are left.
    Body(u64),
    /// In the line with the size of a chunk.
    ChunkSize,
    /// In a chunk and the line break after it.
    Chunk(u64),
    /// In the lines after the last chunk.
    Trailers,
    /// What follows is not read as requests: it is ambiguous, or not HTTP any more.
    Stopped,
}

/// The framing of the head that is being read.
#[derive(Clone, Copy, Debug, Default)]
struct HeadFraming {
    lengths: u8,
    length: u64,
    encodings: u8,
    has_lines: bool,
}

/// The longest part of a line that is stored. Longer ones are not framing fields, or not valid.
const MAX_LINE: usize = 128;

impl FramingScanner {
    /// Whether a request with an ambiguous framing was seen.
    pub(crate) fn is_ambiguous(&self) -> bool {
        self.is_ambiguous
    }

    /// Whether the bytes so far end within a request, or can't be read as requests any more.
    pub(crate) fn is_within_message(&self) -> bool {
        self.state != ScanState::Head || self.head.has_lines || !self.line.is_empty()
    }

    /// Stops: what follows is not HTTP.
    pub(crate) fn stop(&mut self) {
        self.state = ScanState::Stopped;
    }

    /// Reads the next bytes of the connection.
    pub(crate) fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = match self.state {
                ScanState::Stopped => return,
                ScanState::Body(left) => self.skip(bytes, left, ScanState::Body, ScanState::Head),
                ScanState::Chunk(left) => self.skip(bytes, left, ScanState::Chunk, ScanState::ChunkSize),
                ScanState::Head | ScanState::ChunkSize | ScanState::Trailers => self.line(bytes),
            };
        }
    }

    fn skip<'b>(&mut self, bytes: &'b [u8], left: u64, rest: fn(u64) -> ScanState, then: ScanState) -> &'b [u8] {
        let skipped = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let left = left - skipped as u64;
        self.state = if left == 0 { then } else { rest(left) };
        &bytes[skipped..]
    }

    /// Reads up to the end of a line. Returns what follows.
    fn line<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let end = memchr::memchr(b'\n', bytes);
        let part = &bytes[..end.unwrap_or(bytes.len())];
        match end {
            // Most lines are whole.
            Some(_) if self.line.is_empty() => self.end_line(part),
            Some(_) => {
                self.store(part);
                let line = std::mem::take(&mut self.line);
                self.end_line(&line);
            }
            None => self.store(part),
        }
        end.map_or(&[], |end| &bytes[end + 1..])
    }

    fn store(&mut self, part: &[u8]) {
        let room = MAX_LINE.saturating_sub(self.line.len());
        self.line.extend_from_slice(&part[..part.len().min(room)]);
    }

    fn end_line(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match self.state {
            ScanState::Head if line.is_empty() && self.head.has_lines => self.end_head(),
            // Empty lines before a request are skipped, as hyper does.
            ScanState::Head if line.is_empty() => {}
            ScanState::Head => self.head.read(line),
            ScanState::ChunkSize => {
                self.state = match chunk_size(line) {
                    Some(0) => ScanState::Trailers,
                    // hyper refuses what has no size.
                    None => ScanState::Stopped,
                    Some(size) => ScanState::Chunk(size.saturating_add(2)),
                }
            }
            ScanState::Trailers if line.is_empty() => self.state = ScanState::Head,
            _ => {}
        }
    }

    fn end_head(&mut self) {
        let HeadFraming { lengths, length, encodings, .. } = std::mem::take(&mut self.head);
        self.state = match (lengths, encodings) {
            (0, 0) => ScanState::Head,
            (1, 0) if length == 0 => ScanState::Head,
            (1, 0) => ScanState::Body(length),
            (0, 1) => ScanState::ChunkSize,
            _ => {
                self.is_ambiguous = true;
                ScanState::Stopped
            }
        };
    }
}

impl HeadFraming {
    fn read(&mut self, line: &[u8]) {
        self.has_lines = true;
        // Nearly all lines are out after one comparison.
        match line.first().map(u8::to_ascii_lowercase) {
            Some(b'c') => {
                if let Some(value) = field(line, b"content-length") {
                    // Of a longer line, only the beginning may be known.
                    match length(value).filter(|_| line.len() < MAX_LINE) {
                        Some(length) => (self.lengths, self.length) = (self.lengths.saturating_add(1), length),
                        // Servers read it in different ways: a tab around it, for instance, or a sign.
                        None => self.lengths = u8::MAX,
                    }
                }
            }
            Some(b't') => {
                if let Some(value) = field(line, b"transfer-encoding") {
                    self.encodings = if value.contains(&b'\t') { u8::MAX } else { self.encodings.saturating_add(1) };
                }
            }
            _ => {}
        }
    }
}

/// The value of a line, if it has this name.
fn field<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let (start, rest) = line.split_at_checked(name.len())?;
    let value = rest.strip_prefix(b":").filter(|_| start.eq_ignore_ascii_case(name))?;
    Some(value.strip_suffix(b"\r").unwrap_or(value))
}

/// A length as all servers read it: digits, with spaces around them.
fn length(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?.trim_matches(' ');
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// The size at the start of a chunk's first line.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let digits = std::str::from_utf8(line.get(..digits)?).ok()?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a connection is ambiguous, however its bytes are split.
    #[track_caller]
    fn is_ambiguous(text: &str) -> bool {
        let scan = |parts: &[&[u8]]| {
            let mut scanner = FramingScanner::default();
            parts.iter().for_each(|part| scanner.read(part));
            scanner.is_ambiguous()
        };
        let bytes = text.as_bytes();
        let whole = scan(&[bytes]);
        for at in 0..bytes.len() {
            assert_eq!(scan(&[&bytes[..at], &bytes[at..]]), whole, "split at {at}");
        }
        assert_eq!(scan(&bytes.iter().map(std::slice::from_ref).collect::<Vec<_>>()), whole, "byte by byte");
        whole
    }

    #[test]
    fn one_length_or_one_encoding_is_unambiguous() {
        assert!(!is_ambiguous("GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert!(!is_ambiguous("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"));
        assert!(!is_ambiguous("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"));
    }

    #[test]
    fn two_of_them_are_ambiguous() {
        assert!(is_ambiguous("POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"));
        assert!(is_ambiguous("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n"));
        assert!(is_ambiguous("POST / HTTP/1.1\r\nContent-Length: 5\r\nCONTENT-LENGTH: 5\r\n\r\nhello"));
        assert!(is_ambiguous("POST / HTTP/1.1\nTransfer-Encoding: chunked\nTransfer-Encoding: chunked\n\n"));
    }

    #[test]
    fn a_length_is_digits_with_spaces_around_them() {
        let with = |length: &str| is_ambiguous(&format!("POST / HTTP/1.1\r\nContent-Length:{length}\r\n\r\nhello"));
        assert!(!with("5") && !with(" 5") && !with("   05 "));
        for odd in ["5\t", "\t5", "+5", "-5", "5 5", "5, 5", "", "0x5", "18446744073709551616", "\x0b5"] {
            assert!(with(odd), "{odd:?}");
        }
        assert!(is_ambiguous("POST / HTTP/1.1\r\nTransfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n"));
        // Beyond what is stored of a line.
        assert!(with(&format!("{}5", " ".repeat(200))));
    }

    #[test]
    fn what_bodies_contain_does_not_count() {
        let body = "Content-Length: 1\r\nContent-Length: 1\r\n\r\n";
        let request = format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        assert!(!is_ambiguous(&format!("{request}{request}")));
        let chunk = format!("{:x};a=b\r\n{body}\r\n0\r\nTrailer: x\r\n\r\n", body.len());
        let request = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}");
        assert!(!is_ambiguous(&format!("{request}{request}")));
    }

    #[test]
    fn later_requests_are_seen_as_well() {
        let good = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        let bad = "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na";
        assert!(is_ambiguous(&format!("{good}\r\n{good}{bad}")));
    }

    #[test]
    fn long_lines_are_not_stored_whole() {
        let mut scanner = FramingScanner::default();
        scanner.read(b"GET / HTTP/1.1\r\nX: ");
        for _ in 0..1_000 {
            scanner.read(&[b'x'; 1_000]);
        }
        assert!(scanner.line.len() <= MAX_LINE);
        scanner.read(b"\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n");
        assert!(scanner.is_ambiguous());
    }
}
