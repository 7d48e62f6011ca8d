//! Lines of input, read into one buffer and never longer than a bound.

use std::io::{self, BufRead, BufReader, Read};

/// The longest line, in bytes. What is longer is skipped without being kept.
pub(super) const LONGEST_LINE: usize = 1 << 20;

/// How much is read at a time.
const BUFFER: usize = 256 << 10;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The lines of a source, by number.
#[derive(Debug)]
pub(super) struct Lines<R> {
    source: BufReader<R>,
    line: Vec<u8>,
    number: u64,
}

/// A line that is not blank.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// Its text, without spaces around it.
    Text(&'a [u8]),
    /// Longer than [`LONGEST_LINE`].
    TooLong,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(source: R) -> Lines<R> {
        Lines { source: BufReader::with_capacity(BUFFER, source), line: Vec::new(), number: 0 }
    }

    /// The number of the line that was read last, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whether the next line may have to be waited for.
    pub(super) fn may_wait(&self) -> bool {
        !self.source.buffer().contains(&b'\n')
    }

    /// The next line that is not blank; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            self.line.clear();
            // One byte past the bound: the line's end, or the proof that it is too long.
            let most = LONGEST_LINE as u64 + 1;
            if self.source.by_ref().take(most).read_until(b'\n', &mut self.line)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.line.len() > LONGEST_LINE && !self.line.ends_with(b"\n") {
                self.source.skip_until(b'\n')?;
                return Ok(Some(Line::TooLong));
            }
            let is_first = self.number == 1;
            let begin = if is_first && self.line.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
            let end = self.line.trim_ascii_end().len();
            let begin = end - self.line[begin.min(end)..end].trim_ascii_start().len();
            if begin < end {
                return Ok(Some(Line::Text(&self.line[begin..end])));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All lines of a text: their numbers, and what they say if they are not too long.
    fn all(text: &[u8]) -> Vec<(u64, Option<Vec<u8>>)> {
        let mut lines = Lines::new(text);
        let mut found = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            let text = match line {
                Line::Text(text) => Some(text.to_vec()),
                Line::TooLong => None,
            };
            found.push((lines.number(), text));
        }
        found
    }

    #[test]
    fn blank_lines_count_and_are_not_seen() {
        type Row<'a> = (&'a [u8], &'a [(u64, &'a [u8])]);
        let rows: [Row<'_>; 7] = [
            (b"", &[]),
            (b"a", &[(1, b"a")]),
            (b"a\nb\n", &[(1, b"a"), (2, b"b")]),
            (b"\n \r\n\t\na\r\n", &[(4, b"a")]),
            (b"\xEF\xBB\xBFa\n\xEF\xBB\xBFb", &[(1, b"a"), (2, b"\xEF\xBB\xBFb")]),
            (b"\xEF\xBB\xBF\n a b \n", &[(2, b"a b")]),
            (b"\n\n", &[]),
        ];
        for (text, expected) in rows {
            let expected: Vec<_> = expected.iter().map(|(number, text)| (*number, Some(text.to_vec()))).collect();
            assert_eq!(all(text), expected, "{:?}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn a_line_past_the_bound_is_skipped_and_nothing_else() {
        let longest = vec![b'x'; LONGEST_LINE];
        let too_long = vec![b'x'; LONGEST_LINE + 1];
        let text =
            [&b"a\n"[..], &longest, b"\n", &too_long, b"\nb\n", &too_long, &too_long, b"\nc\n", &longest].concat();
        let kept = |text: &[u8]| Some(text.to_vec());
        let expected = [
            (1, kept(b"a")),
            (2, kept(&longest)),
            (3, None),
            (4, kept(b"b")),
            (5, None),
            (6, kept(b"c")),
            (7, kept(&longest)),
        ];
        assert!(all(&text) == expected);
        assert!(all(&too_long) == [(1, None)]);
    }

    #[test]
    fn a_long_line_is_not_kept() {
        let mut lines = Lines::new(io::repeat(b'x').take(64 << 20));
        assert_eq!(lines.next().unwrap(), Some(Line::TooLong));
        assert!(lines.line.capacity() <= 4 * LONGEST_LINE);
        assert_eq!(lines.next().unwrap(), None);
    }

    #[test]
    fn it_waits_only_without_a_whole_line() {
        let mut lines = Lines::new(&b"a\nb\nc"[..]);
        assert!(lines.may_wait());
        lines.next().unwrap();
        assert!(!lines.may_wait());
        lines.next().unwrap();
        assert!(lines.may_wait());
    }
}
