//! Bytes to commands: arrays of bulk strings, and the inline form that people type.
//!
//! Nothing is copied but inline commands, and nothing is read twice: what has been understood of a command is kept until the
//! rest of it has come.

use std::fmt;

use memchr::memchr;

/// Reads commands from a buffer that grows at its end.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// Of the command under way: how many arguments have not been read. `None` between commands.
    missing: Option<usize>,
    /// The length of the argument under way, once it is known.
    bulk: Option<usize>,
    /// How far the command under way has been read.
    at: usize,
    /// Where the arguments are, in the buffer or in `inline`.
    places: Vec<Place>,
    /// The arguments of an inline command, without their quotes.
    inline: Vec<u8>,
    is_inline: bool,
}

/// The arguments of a command, its name first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arguments<'a> {
    bytes: &'a [u8],
    places: &'a [Place],
}

#[derive(Clone, Copy, Debug)]
struct Place {
    start: u32,
    end: u32,
}

/// Why nothing more can be understood on this connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// Neither an array's length nor less than one.
    ArrayLength,
    /// Not the length of a string, or of one that is too long.
    BulkLength,
    /// An array may only hold bulk strings.
    NotBulk(u8),
    UnbalancedQuotes,
    LongInline,
    LongArrayLength,
    LongBulkLength,
    LongCommand,
}

/// The most arguments of a command.
pub(super) const MOST_ARGUMENTS: usize = 1024;
/// The longest argument.
pub(super) const LONGEST_ARGUMENT: usize = 64 * 1024;
/// The longest inline command, and the longest line that should be a number.
pub(super) const LONGEST_LINE: usize = 64 * 1024;
/// The longest command.
pub(super) const LONGEST_COMMAND: usize = 1024 * 1024;

/// What is kept for inline commands between them.
const INLINE_KEPT: usize = 1024;

impl Parser {
    /// The length of the command that `bytes` begin with, whose arguments can be had then; `None` if it has not all come.
    ///
    /// Until there is a command it must be asked again with the same bytes and those that follow them.
    pub(super) fn next(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
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

    /// The arguments of the command that `bytes` begin with.
    pub(super) fn arguments<'a>(&'a self, bytes: &'a [u8]) -> Arguments<'a> {
        Arguments { bytes: if self.is_inline { &self.inline } else { bytes }, places: &self.places }
    }

    /// The length of an array. One below zero is nothing, as zero is.
    fn begin(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        let Some((digits, after)) = line(bytes, 1).map_err(|LongLine| Malformed::LongArrayLength)? else {
            return Ok(None);
        };
        let count = integer(digits).ok_or(Malformed::ArrayLength)?;
        let count = usize::try_from(count.max(0)).map_err(|_| Malformed::ArrayLength)?;
        if count > MOST_ARGUMENTS {
            return Err(Malformed::ArrayLength);
        }
        self.at = after;
        self.is_inline = false;
        self.places.clear();
        Ok(Some(count))
    }

    /// Reads one argument; false if it has not all come.
    fn argument(&mut self, bytes: &[u8]) -> Result<bool, Malformed> {
        let length = match self.bulk {
            Some(length) => length,
            None => {
                match bytes.get(self.at) {
                    None => return Ok(false),
                    Some(b'$') => {}
                    Some(&other) => return Err(Malformed::NotBulk(other)),
                }
                let found = line(bytes, self.at + 1).map_err(|LongLine| Malformed::LongBulkLength)?;
                let Some((digits, after)) = found else { return Ok(false) };
                let length = integer(digits).and_then(|length| usize::try_from(length).ok());
                let length = length.filter(|length| *length <= LONGEST_ARGUMENT).ok_or(Malformed::BulkLength)?;
                if after + length > LONGEST_COMMAND {
                    return Err(Malformed::LongCommand);
                }
                self.at = after;
                length
            }
        };
        let end = self.at + length;
        // What ends it is not looked at, as in Redis.
        if bytes.len() < end + 2 {
            self.bulk = Some(length);
            return Ok(false);
        }
        self.bulk = None;
        self.places.push(Place::new(self.at, end));
        self.at = end + 2;
        Ok(true)
    }

    /// A command on a line of its own.
    fn inline(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        let Some(end) = memchr(b'\n', bytes) else {
            return if bytes.len() > LONGEST_LINE { Err(Malformed::LongInline) } else { Ok(None) };
        };
        self.is_inline = true;
        self.places.clear();
        self.inline.clear();
        self.inline.shrink_to(INLINE_KEPT);
        let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
        if line.len() > LONGEST_LINE {
            return Err(Malformed::LongInline);
        }
        self.split(line)?;
        Ok(Some(end + 1))
    }

    /// Splits a line at its spaces, but for those in quotes.
    fn split(&mut self, line: &[u8]) -> Result<(), Malformed> {
        let mut rest = line.trim_ascii_start();
        while !rest.is_empty() {
            if self.places.len() == MOST_ARGUMENTS {
                return Err(Malformed::LongInline);
            }
            let start = self.inline.len();
            rest = word(rest, &mut self.inline).ok_or(Malformed::UnbalancedQuotes)?.trim_ascii_start();
            self.places.push(Place::new(start, self.inline.len()));
        }
        Ok(())
    }
}

impl<'a> Arguments<'a> {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn get(&self, at: usize) -> Option<&'a [u8]> {
        let place = self.places.get(at)?;
        self.bytes.get(place.start as usize..place.end as usize)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let arguments = *self;
        (0..arguments.len()).filter_map(move |at| arguments.get(at))
    }
}

impl Place {
    /// Commands are shorter than 4 GiB.
    fn new(start: usize, end: usize) -> Place {
        Place { start: start as u32, end: end as u32 }
    }
}

/// There is no end of the line in sight.
struct LongLine;

/// The line that begins at `start`, and where the next one does; `None` if it has not all come.
fn line(bytes: &[u8], start: usize) -> Result<Option<(&[u8], usize)>, LongLine> {
    /// Lengths are short: most ends are found sooner by a look at each byte.
    const NEAR: usize = 8;
    let rest = bytes.get(start..).unwrap_or_default();
    let near = rest.iter().take(NEAR).position(|byte| *byte == b'\r');
    match near.or_else(|| memchr(b'\r', rest)) {
        Some(end) if end + 2 <= rest.len() => Ok(Some((&rest[..end], start + end + 2))),
        Some(_) => Ok(None),
        None if rest.len() > LONGEST_LINE => Err(LongLine),
        None => Ok(None),
    }
}

/// A number as Redis reads it: without a plus, spaces or leading zeros.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    match text {
        b"0" => Some(0),
        [b'-', digits @ ..] => 0i64.checked_sub_unsigned(natural(digits)?),
        digits => i64::try_from(natural(digits)?).ok(),
    }
}

fn natural(digits: &[u8]) -> Option<u64> {
    /// So many digits fit whatever they are.
    const MOST_DIGITS: usize = 19;
    if digits.len() > MOST_DIGITS || !matches!(digits.first(), Some(b'1'..=b'9')) {
        return None;
    }
    digits.iter().try_fold(0, |number, digit| match digit {
        b'0'..=b'9' => Some(number * 10 + u64::from(digit - b'0')),
        _ => None,
    })
}

/// Adds the word that `text` begins with to `words`, without its quotes; gives the rest, or nothing if a quote is not closed
/// or something follows it at once.
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

/// Adds what stands before the closing quote, and gives what comes after it.
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

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match self {
            Malformed::ArrayLength => f.write_str("invalid multibulk length"),
            Malformed::BulkLength => f.write_str("invalid bulk length"),
            Malformed::NotBulk(byte) => write!(f, "expected '$', got '{}'", byte.escape_ascii()),
            Malformed::UnbalancedQuotes => f.write_str("unbalanced quotes in request"),
            Malformed::LongInline => f.write_str("too big inline request"),
            Malformed::LongArrayLength => f.write_str("too big mbulk count string"),
            Malformed::LongBulkLength => f.write_str("too big bulk count string"),
            Malformed::LongCommand => f.write_str("too big request"),
        }
    }
}
