//! Encoding replies, in either version of the protocol.

use std::fmt::{self, Write as _};

/// The version of the protocol on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Protocol {
    #[default]
    Two,
    Three,
}

/// Replies that are pending.
#[derive(Debug, Default)]
pub(super) struct Replies {
    bytes: Vec<u8>,
    pub(super) protocol: Protocol,
}

/// The buffer for replies that is retained between batches.
const RETAINED_BYTES: usize = 64 * 1024;

impl Replies {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Clears the replies after they have been sent.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(RETAINED_BYTES);
    }

    /// A simple string, without line breaks.
    pub(super) fn simple(&mut self, text: &str) {
        self.bytes.push(b'+');
        self.bytes.extend_from_slice(text.as_bytes());
        self.end();
    }

    /// An error: a code in capitals and a message. Line breaks become spaces, as in Redis.
    pub(super) fn error(&mut self, code: &str, sentence: &impl fmt::Display) {
        self.bytes.push(b'-');
        let start = self.bytes.len();
        self.format(format_args!("{code} {sentence}"));
        self.bytes[start..].iter_mut().filter(|byte| matches!(byte, b'\r' | b'\n' | 0)).for_each(|byte| *byte = b' ');
        self.end();
    }

    pub(super) fn integer(&mut self, number: i64) {
        self.number(b':', number);
    }

    /// A bulk string.
    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.length(b'$', bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.end();
    }

    /// A text for people.
    pub(super) fn text(&mut self, text: &str) {
        match self.protocol {
            Protocol::Two => self.bulk(text.as_bytes()),
            Protocol::Three => {
                const FORMAT: &str = "txt:";
                self.length(b'=', FORMAT.len() + text.len());
                self.bytes.extend_from_slice(FORMAT.as_bytes());
                self.bytes.extend_from_slice(text.as_bytes());
                self.end();
            }
        }
    }

    /// The null reply.
    pub(super) fn null(&mut self) {
        match self.protocol {
            Protocol::Two => self.bytes.extend_from_slice(b"$-1\r\n"),
            Protocol::Three => self.bytes.extend_from_slice(b"_\r\n"),
        }
    }

    /// Begins an array of this length.
    pub(super) fn array(&mut self, length: usize) {
        self.length(b'*', length);
    }

    /// Begins a set of this length.
    pub(super) fn set(&mut self, length: usize) {
        self.length(if self.protocol == Protocol::Two { b'*' } else { b'~' }, length);
    }

    /// Begins a map of this many pairs.
    pub(super) fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Two => self.length(b'*', 2 * pairs),
            Protocol::Three => self.length(b'%', pairs),
        }
    }

    fn length(&mut self, kind: u8, length: usize) {
        self.number(kind, i64::try_from(length).unwrap_or(i64::MAX));
    }

    fn number(&mut self, kind: u8, number: i64) {
        let digit = |digit: i64| b'0' + digit as u8;
        match number {
            // Most numbers are small.
            0..=9 => self.bytes.extend_from_slice(&[kind, digit(number), b'\r', b'\n']),
            10..=99 => self.bytes.extend_from_slice(&[kind, digit(number / 10), digit(number % 10), b'\r', b'\n']),
            _ => {
                self.bytes.push(kind);
                self.bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
                self.end();
            }
        }
    }

    fn end(&mut self) {
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn format(&mut self, arguments: fmt::Arguments<'_>) {
        struct ByteWriter<'a>(&'a mut Vec<u8>);
        impl fmt::Write for ByteWriter<'_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                self.0.extend_from_slice(text.as_bytes());
                Ok(())
            }
        }
        // Writing to memory can't fail.
        let _ = ByteWriter(&mut self.bytes).write_fmt(arguments);
    }
}
