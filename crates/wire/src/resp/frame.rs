//! Parsing frames: arrays of bulk strings, and inline commands.
//!
//! Only inline commands are copied, and nothing is read twice: the state of an incomplete command is stored until the
//! rest of it has arrived.

use std::fmt;

use memchr::memchr;

/// Parses commands from a buffer that grows at its end.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// How many arguments of the current command are missing. `None` between commands.
    missing: Option<usize>,
    /// The length of the current argument, once it is read.
    bulk: Option<usize>,
    /// How far the current command has been read.
    at: usize,
    /// The ranges of the arguments, in the buffer or in `inline`.
    ranges: Vec<ByteRange>,
    /// The arguments of an inline command, without quotes.
    inline: Vec<u8>,
    is_inline: bool,
}

/// The arguments of a command, its name first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arguments<'a> {
    bytes: &'a [u8],
    ranges: &'a [ByteRange],
}

#[derive(Clone, Copy, Debug)]
struct ByteRange {
    start: u32,
    end: u32,
}

/// An error after which the connection can't be parsed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProtocolError {
    /// An invalid array length.
    ArrayLength,
    /// An invalid length of a bulk string, or one that is too long.
    BulkLength,
    /// An array may only contain bulk strings.
    NotBulk(u8),
    UnbalancedQuotes,
    LongInline,
    LongArrayLength,
    LongBulkLength,
    LongCommand,
}

/// The largest number of arguments of a command.
pub(super) const MAX_ARGUMENTS: usize = 1024;
/// The maximum length of an argument.
pub(super) const MAX_ARGUMENT_BYTES: usize = 64 * 1024;
/// The maximum length of an inline command, and of a line with a number.
pub(super) const MAX_LINE_BYTES: usize = 64 * 1024;
/// The maximum length of a command.
pub(super) const MAX_COMMAND_BYTES: usize = 1024 * 1024;

/// The buffer for inline commands that is retained between them.
const INLINE_RETAINED_BYTES: usize = 1024;

impl Parser {
    /// The length of the command at the start of `bytes`, whose arguments are available then; `None` if it is
    /// incomplete.
    ///
    /// Until a command is complete, the next call must have the same bytes and those that follow.
    pub(super) fn next(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let mut missing = match self.missing {
            Some(missing) => missing,
            None => match bytes.first() {
                None => return Ok(None),
                Some(b'*') => match self.begin(bytes)? {
                    Some(count) => count,
                    None => return Ok(None),
                },
                Some(_) => return self.inline(bytes),
            },
        };
        while missing > 0 {
            if !self.argument(bytes)? {
                self.missing = Some(missing);
                return Ok(None);
            }
            missing -= 1;
        }
        self.missing = None;
        Ok(Some(self.at))
    }

    /// The arguments of the command at the start of `bytes`.
    pub(super) fn arguments<'a>(&'a self, bytes: &'a [u8]) -> Arguments<'a> {
        Arguments { bytes: if self.is_inline { &self.inline } else { bytes }, ranges: &self.ranges }
    }

    /// The length of an array. A negative length means zero.
    fn begin(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let (count, after) = match short_length(bytes, 1) {
            Some(found) => found,
            None => {
                let found = line(bytes, 1).map_err(|LineTooLong| ProtocolError::LongArrayLength)?;
                let Some((digits, after)) = found else { return Ok(None) };
                let count = integer(digits).ok_or(ProtocolError::ArrayLength)?;
                (usize::try_from(count.max(0)).map_err(|_| ProtocolError::ArrayLength)?, after)
            }
        };
        if count > MAX_ARGUMENTS {
            return Err(ProtocolError::ArrayLength);
        }
        self.at = after;
        self.is_inline = false;
        self.ranges.clear();
        Ok(Some(count))
    }

    /// Reads one argument; `false` if it is incomplete.
    fn argument(&mut self, bytes: &[u8]) -> Result<bool, ProtocolError> {
        let length = match self.bulk {
            Some(length) => length,
            None => {
                match bytes.get(self.at) {
                    None => return Ok(false),
                    Some(b'$') => {}
                    Some(&other) => return Err(ProtocolError::NotBulk(other)),
                }
                let (length, after) = match short_length(bytes, self.at + 1) {
                    Some(found) => found,
                    None => {
                        let found = line(bytes, self.at + 1).map_err(|LineTooLong| ProtocolError::LongBulkLength)?;
                        let Some((digits, after)) = found else { return Ok(false) };
                        let length = integer(digits).and_then(|length| usize::try_from(length).ok());
                        (length.ok_or(ProtocolError::BulkLength)?, after)
                    }
                };
                if length > MAX_ARGUMENT_BYTES {
                    return Err(ProtocolError::BulkLength);
                }
                if after + length > MAX_COMMAND_BYTES {
                    return Err(ProtocolError::LongCommand);
                }
                self.at = after;
                length
            }
        };
        let end = self.at + length;
        // The terminator is not checked, as in Redis.
        if bytes.len() < end + 2 {
            self.bulk = Some(length);
            return Ok(false);
        }
        self.bulk = None;
        self.ranges.push(ByteRange::new(self.at, end));
        self.at = end + 2;
        Ok(true)
    }

    /// Reads an inline command.
    fn inline(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let Some(end) = memchr(b'\n', bytes) else {
            return if bytes.len() > MAX_LINE_BYTES { Err(ProtocolError::LongInline) } else { Ok(None) };
        };
        self.is_inline = true;
        self.ranges.clear();
        self.inline.clear();
        self.inline.shrink_to(INLINE_RETAINED_BYTES);
        let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
        if line.len() > MAX_LINE_BYTES {
            return Err(ProtocolError::LongInline);
        }
        self.split(line)?;
        Ok(Some(end + 1))
    }

    /// Splits a line at spaces outside of quotes.
    fn split(&mut self, line: &[u8]) -> Result<(), ProtocolError> {
        let mut rest = line.trim_ascii_start();
        while !rest.is_empty() {
            if self.ranges.len() == MAX_ARGUMENTS {
                return Err(ProtocolError::LongInline);
            }
            let start = self.inline.len();
            rest = word(rest, &mut self.inline).ok_or(ProtocolError::UnbalancedQuotes)?.trim_ascii_start();
            self.ranges.push(ByteRange::new(start, self.inline.len()));
        }
        Ok(())
    }
}

impl<'a> Arguments<'a> {
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    pub(super) fn get(&self, at: usize) -> Option<&'a [u8]> {
        let range = self.ranges.get(at)?;
        self.bytes.get(range.start as usize..range.end as usize)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let arguments = *self;
        (0..arguments.len()).filter_map(move |at| arguments.get(at))
    }
}

impl ByteRange {
    /// Commands are shorter than 4 GiB.
    fn new(start: usize, end: usize) -> ByteRange {
        ByteRange { start: start as u32, end: end as u32 }
    }
}

/// The line is longer than the maximum.
struct LineTooLong;

/// The number on the line that begins at `start`, and where the next line begins: in one pass over the usual lengths, of
/// one or two digits. `None` for every other line, complete or not, valid or not.
#[inline(always)]
fn short_length(bytes: &[u8], start: usize) -> Option<(usize, usize)> {
    let digit = |byte: u8| usize::from(byte.wrapping_sub(b'0'));
    match *bytes.get(start..start + 4)? {
        [one, b'\r', _, _] if digit(one) <= 9 => Some((digit(one), start + 3)),
        [ten @ b'1'..=b'9', one, b'\r', _] if digit(one) <= 9 => Some((10 * digit(ten) + digit(one), start + 4)),
        _ => None,
    }
}

/// The line that begins at `start`, and where the next one begins; `None` if it is incomplete.
fn line(bytes: &[u8], start: usize) -> Result<Option<(&[u8], usize)>, LineTooLong> {
    let rest = bytes.get(start..).unwrap_or_default();
    match memchr(b'\r', rest) {
        Some(end) if end + 2 <= rest.len() => Ok(Some((&rest[..end], start + end + 2))),
        Some(_) => Ok(None),
        None if rest.len() > MAX_LINE_BYTES => Err(LineTooLong),
        None => Ok(None),
    }
}

/// Parses a number as Redis does: without a plus sign, spaces or leading zeros.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    match text {
        b"0" => Some(0),
        [b'-', digits @ ..] => 0i64.checked_sub_unsigned(natural(digits)?),
        digits => i64::try_from(natural(digits)?).ok(),
    }
}

fn natural(digits: &[u8]) -> Option<u64> {
    /// This many digits always fit.
    const MAX_DIGITS: usize = 19;
    if digits.len() > MAX_DIGITS || !matches!(digits.first(), Some(b'1'..=b'9')) {
        return None;
    }
    digits.iter().try_fold(0, |number, digit| match digit {
        b'0'..=b'9' => Some(number * 10 + u64::from(digit - b'0')),
        _ => None,
    })
}

/// Appends the first word of `text` to `words`, without its quotes, and returns the rest; `None` if a quote is not
/// closed or not followed by a space.
fn word<'a>(text: &'a [u8], words: &mut Vec<u8>) -> Option<&'a [u8]> {
    let mut rest = text;
    while let [first, after @ ..] = rest {
        rest = match first {
            b'"' | b'\'' => {
                let after = quoted(after, *first, words)?;
                return after.first().is_none_or(u8::is_ascii_whitespace).then_some(after);
            }
            space if space.is_ascii_whitespace() => break,
            byte => {
                words.push(*byte);
                after
            }
        };
    }
    Some(rest)
}

/// Appends the text before the closing quote, and returns what follows it.
fn quoted<'a>(text: &'a [u8], quote: u8, words: &mut Vec<u8>) -> Option<&'a [u8]> {
    let mut rest = text;
    loop {
        let (byte, after) = match rest {
            [] => return None,
            [first, after @ ..] if *first == quote => return Some(after),
            [b'\\', b'\'', after @ ..] if quote == b'\'' => (b'\'', after),
            [b'\\', b'x', high, low, after @ ..] if quote == b'"' && both_hex(*high, *low) => {
                (hex(*high) << 4 | hex(*low), after)
            }
            [b'\\', escaped, after @ ..] if quote == b'"' => (unescaped(*escaped), after),
            [first, after @ ..] => (*first, after),
        };
        words.push(byte);
        rest = after;
    }
}

fn both_hex(high: u8, low: u8) -> bool {
    high.is_ascii_hexdigit() && low.is_ascii_hexdigit()
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20).wrapping_sub(b'a') + 10,
    }
}

fn unescaped(letter: u8) -> u8 {
    match letter {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match self {
            ProtocolError::ArrayLength => f.write_str("invalid multibulk length"),
            ProtocolError::BulkLength => f.write_str("invalid bulk length"),
            ProtocolError::NotBulk(byte) => write!(f, "expected '$', got '{}'", byte.escape_ascii()),
            ProtocolError::UnbalancedQuotes => f.write_str("unbalanced quotes in request"),
            ProtocolError::LongInline => f.write_str("too big inline request"),
            ProtocolError::LongArrayLength => f.write_str("too big mbulk count string"),
            ProtocolError::LongBulkLength => f.write_str("too big bulk count string"),
            ProtocolError::LongCommand => f.write_str("too big request"),
        }
    }
}
