//! InputLines of input, read into one bounded buffer.

use std::io::{self, BufRead, BufReader, Read};

/// The longest line, in bytes. Longer lines are skipped.
pub(crate) const MAX_LINE_BYTES: usize = 1 << 20;

/// The bytes of one read.
const BUFFER_BYTES: usize = 256 << 10;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The numbered lines of an input.
#[derive(Debug)]
pub(crate) struct InputLines<R> {
    source: BufReader<R>,
    line: Vec<u8>,
    number: u64,
}

/// A line that is not blank.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InputLine<'a> {
    /// The text, trimmed.
    Text(&'a [u8]),
    /// Longer than [`MAX_LINE_BYTES`].
    TooLong,
}

impl<R: Read> InputLines<R> {
    pub(crate) fn new(source: R) -> InputLines<R> {
        InputLines { source: BufReader::with_capacity(BUFFER_BYTES, source), line: Vec::new(), number: 0 }
    }

    /// The number of the last line, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether reading the next line may block.
    pub(crate) fn may_block(&self) -> bool {
        !self.source.buffer().contains(&b'\n')
    }

    /// The next line that is not blank; `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<InputLine<'_>>> {
        loop {
            self.line.clear();
            // One byte more than the bound: the line break, or the proof that the line is too long.
            let max = MAX_LINE_BYTES as u64 + 1;
            if self.source.by_ref().take(max).read_until(b'\n', &mut self.line)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.line.len() > MAX_LINE_BYTES && !self.line.ends_with(b"\n") {
                self.source.skip_until(b'\n')?;
                return Ok(Some(InputLine::TooLong));
            }
            let is_first = self.number == 1;
            let begin = if is_first && self.line.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
            let end = self.line.trim_ascii_end().len();
            let begin = end - self.line[begin.min(end)..end].trim_ascii_start().len();
            if begin < end {
                return Ok(Some(InputLine::Text(&self.line[begin..end])));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All lines of a text: their numbers, and their texts unless they are too long.
    fn all(text: &[u8]) -> Vec<(u64, Option<Vec<u8>>)> {
        let mut lines = InputLines::new(text);
        let mut all = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            let text = match line {
                InputLine::Text(text) => Some(text.to_vec()),
                InputLine::TooLong => None,
            };
            all.push((lines.number(), text));
        }
        all
    }

    #[test]
    fn blank_lines_are_numbered_and_skipped() {
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
        let longest = vec![b'x'; MAX_LINE_BYTES];
        let too_long = vec![b'x'; MAX_LINE_BYTES + 1];
        let text =
            [&b"a\n"[..], &longest, b"\n", &too_long, b"\nb\n", &too_long, &too_long, b"\nc\n", &longest].concat();
        let text_of = |text: &[u8]| Some(text.to_vec());
        let expected = [
            (1, text_of(b"a")),
            (2, text_of(&longest)),
            (3, None),
            (4, text_of(b"b")),
            (5, None),
            (6, text_of(b"c")),
            (7, text_of(&longest)),
        ];
        assert!(all(&text) == expected);
        assert!(all(&too_long) == [(1, None)]);
    }

    #[test]
    fn a_long_line_is_not_stored() {
        let mut lines = InputLines::new(io::repeat(b'x').take(64 << 20));
        assert_eq!(lines.next().unwrap(), Some(InputLine::TooLong));
        assert!(lines.line.capacity() <= 4 * MAX_LINE_BYTES);
        assert_eq!(lines.next().unwrap(), None);
    }

    #[test]
    fn it_blocks_only_without_a_complete_line() {
        let mut lines = InputLines::new(&b"a\nb\nc"[..]);
        assert!(lines.may_block());
        lines.next().unwrap();
        assert!(!lines.may_block());
        lines.next().unwrap();
        assert!(lines.may_block());
    }
}
