//! The JA4 fingerprint of a TLS client: what its first message shows of the program that sent it.
//!
//! Clients of one library and version have the same one, whoever uses them: it tells programs apart, not callers. It is
//! computed as FoxIO describes JA4: the version, the kind of name, the numbers of ciphers and extensions and the first
//! protocol in clear, then digests of the sorted ciphers and of the sorted extensions with the signature algorithms. Values
//! that clients make up so that servers stay tolerant (GREASE, RFC 8701) are left out.

use std::fmt::Write as _;

/// The longest first message that is read, with its records. A longer one has no fingerprint.
pub(crate) const MAX_HELLO_BYTES: usize = 16 * 1024;

/// The type of a record with handshake messages, and the length of its head.
const HANDSHAKE: u8 = 22;
const RECORD_HEAD: usize = 5;
/// The type of a client's first message.
const CLIENT_HELLO: u8 = 1;

const SERVER_NAME: u16 = 0x0000;
const SIGNATURE_ALGORITHMS: u16 = 0x000d;
const ALPN: u16 = 0x0010;
const SUPPORTED_VERSIONS: u16 = 0x002b;

/// The digits of a digest that are shown.
const DIGEST_DIGITS: usize = 12;
/// What stands for the digest of an empty list.
const NO_DIGEST: &str = "000000000000";
/// The most that two digits can count.
const MAX_COUNT: usize = 99;

/// What a client's first message offers, without GREASE.
#[derive(Debug, Default)]
struct ClientHello {
    version: u16,
    ciphers: Vec<u16>,
    extensions: Vec<u16>,
    signature_algorithms: Vec<u16>,
    protocol: Vec<u8>,
}

/// The state of a message that arrives in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HelloState {
    Incomplete,
    /// The fingerprint; `None` if it is no first message of TLS.
    Complete(Option<Box<str>>),
}

/// Reads the records that a client sent so far.
pub(crate) fn read(records: &[u8]) -> HelloState {
    let Some(message) = message(records) else { return HelloState::Incomplete };
    HelloState::Complete(message.and_then(|message| Some(ClientHello::read(&message)?.fingerprint().into())))
}

/// The body of the first handshake message. `None` while it is incomplete, `Some(None)` if there is none.
fn message(mut records: &[u8]) -> Option<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    loop {
        let head = records.get(..RECORD_HEAD);
        if records.first().is_some_and(|kind| *kind != HANDSHAKE) {
            return Some(None);
        }
        let length = usize::from(u16::from_be_bytes([head?[3], head?[4]]));
        bytes.extend_from_slice(records.get(RECORD_HEAD..RECORD_HEAD + length)?);
        records = &records[RECORD_HEAD + length..];
        if let [kind, high, middle, low, rest @ ..] = &bytes[..] {
            if *kind != CLIENT_HELLO {
                return Some(None);
            }
            let length = usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low);
            if let Some(message) = rest.get(..length) {
                return Some(Some(message.to_vec()));
            }
        }
    }
}

impl ClientHello {
    fn read(message: &[u8]) -> Option<ClientHello> {
        let mut message = Reader(message);
        let mut hello = ClientHello { version: message.u16()?, ..ClientHello::default() };
        // The random bytes, the session and the compression are the client's own for each connection.
        message.take(32)?;
        let session = message.u8()?.into();
        message.take(session)?;
        hello.ciphers = message.list()?.u16s();
        let compression = message.u8()?.into();
        message.take(compression)?;
        // Old clients have no extensions.
        let mut extensions = message.list().unwrap_or(Reader(&[]));
        while let Some(kind) = extensions.u16() {
            let mut content = extensions.list()?;
            if is_grease(kind) {
                continue;
            }
            hello.extensions.push(kind);
            match kind {
                SIGNATURE_ALGORITHMS => hello.signature_algorithms = content.list()?.u16s(),
                ALPN => hello.protocol = content.list()?.short()?.to_vec(),
                SUPPORTED_VERSIONS => {
                    let versions = Reader(content.short()?).u16s();
                    hello.version = versions.into_iter().max().unwrap_or(hello.version);
                }
                _ => {}
            }
        }
        Some(hello)
    }

    fn fingerprint(mut self) -> String {
        let version = match self.version {
            0x0304 => "13",
            0x0303 => "12",
            0x0302 => "11",
            0x0301 => "10",
            0x0300 => "s3",
            _ => "00",
        };
        let name = if self.extensions.contains(&SERVER_NAME) { 'd' } else { 'i' };
        let (ciphers, extensions) = (self.ciphers.len().min(MAX_COUNT), self.extensions.len().min(MAX_COUNT));
        let mut text = format!("t{version}{name}{ciphers:02}{extensions:02}{}", protocol(&self.protocol));
        self.ciphers.sort_unstable();
        self.extensions.retain(|kind| !matches!(*kind, SERVER_NAME | ALPN));
        self.extensions.sort_unstable();
        let mut details = hexadecimal(&self.extensions);
        if !self.signature_algorithms.is_empty() && !details.is_empty() {
            details.push('_');
            details.push_str(&hexadecimal(&self.signature_algorithms));
        }
        for list in [hexadecimal(&self.ciphers), details] {
            text.push('_');
            text.push_str(&digest(&list));
        }
        text
    }
}

/// The first and the last character of the first protocol that a client offers.
fn protocol(name: &[u8]) -> String {
    let (Some(first), Some(last)) = (name.first(), name.last()) else { return "00".to_owned() };
    match first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        true => [char::from(*first), char::from(*last)].iter().collect(),
        false => format!("{:x}{:x}", first >> 4, last & 0xf),
    }
}

fn hexadecimal(values: &[u16]) -> String {
    values.iter().enumerate().fold(String::new(), |mut text, (index, value)| {
        // Writing to a text can't fail.
        let _ = write!(text, "{}{value:04x}", if index > 0 { "," } else { "" });
        text
    })
}

fn digest(text: &str) -> String {
    if text.is_empty() {
        return NO_DIGEST.to_owned();
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    digest.as_ref().iter().take(DIGEST_DIGITS / 2).fold(String::new(), |mut text, byte| {
        // Writing to a text can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn is_grease(value: u16) -> bool {
    let [high, low] = value.to_be_bytes();
    high == low && low & 0xf == 0xa
}

/// Reads the fields of a message. `None` past its end.
struct Reader<'m>(&'m [u8]);

impl<'m> Reader<'m> {
    fn take(&mut self, length: usize) -> Option<&'m [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// A part that begins with its length, of two bytes.
    fn list(&mut self) -> Option<Reader<'m>> {
        let length = self.u16()?.into();
        self.take(length).map(Reader)
    }

    /// A part that begins with its length, of one byte.
    fn short(&mut self) -> Option<&'m [u8]> {
        let length = self.u8()?.into();
        self.take(length)
    }

    /// The rest as numbers, without GREASE.
    fn u16s(mut self) -> Vec<u16> {
        std::iter::from_fn(|| self.u16()).filter(|value| !is_grease(*value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A first message as Chrome sends it: the published example of JA4.
    const CIPHERS: [u16; 16] = [
        0x5a5a, 0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013, 0xc014, 0x009c, 0x009d,
        0x002f, 0x0035,
    ];
    const EXTENSIONS: [u16; 17] = [
        0x1a1a, 0x001b, 0x0000, 0x0033, 0x0010, 0x4469, 0x0017, 0x002d, 0x000d, 0x0005, 0x0023, 0x0012, 0x002b, 0xff01,
        0x000b, 0x000a, 0x0015,
    ];
    const ALGORITHMS: [u16; 8] = [0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601];

    fn bytes(values: &[u16]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_be_bytes()).collect()
    }

    fn listed(content: &[u8]) -> Vec<u8> {
        [&(content.len() as u16).to_be_bytes(), content].concat()
    }

    fn hello(extensions: &[u16], protocol: &[u8]) -> Vec<u8> {
        let content = |kind: &u16| match *kind {
            SIGNATURE_ALGORITHMS => listed(&bytes(&ALGORITHMS)),
            ALPN => listed(&[&[protocol.len() as u8], protocol].concat()),
            SUPPORTED_VERSIONS => [&[6][..], &bytes(&[0x2a2a, 0x0304, 0x0303])].concat(),
            _ => Vec::new(),
        };
        let extensions: Vec<u8> =
            extensions.iter().flat_map(|kind| [kind.to_be_bytes().to_vec(), listed(&content(kind))].concat()).collect();
        let mut body = [&[3, 3][..], &[7; 32], &[4, 1, 2, 3, 4], &listed(&bytes(&CIPHERS)), &[1, 0]].concat();
        body.extend(listed(&extensions));
        [&[CLIENT_HELLO, 0][..], &listed(&body)].concat()
    }

    /// The records of a message, of at most so many bytes each.
    fn records(message: &[u8], size: usize) -> Vec<u8> {
        message.chunks(size).flat_map(|part| [&[HANDSHAKE, 3, 1][..], &listed(part)].concat()).collect()
    }

    fn fingerprint(records: &[u8]) -> Option<Box<str>> {
        match read(records) {
            HelloState::Complete(fingerprint) => fingerprint,
            HelloState::Incomplete => panic!("incomplete"),
        }
    }

    #[test]
    fn the_published_example_has_its_fingerprint() {
        let records = records(&hello(&EXTENSIONS, b"h2"), 16_000);
        assert_eq!(fingerprint(&records).as_deref(), Some("t13d1516h2_8daaf6152771_e5627efa2ab1"));
    }

    #[test]
    fn a_message_is_complete_with_its_last_byte_whatever_its_records_are() {
        let message = hello(&EXTENSIONS, b"h2");
        for size in [1, 3, 100, 16_000] {
            let records = records(&message, size);
            for end in 0..records.len() {
                assert_eq!(read(&records[..end]), HelloState::Incomplete, "{end} of {} bytes", records.len());
            }
            assert_eq!(fingerprint(&records).as_deref(), Some("t13d1516h2_8daaf6152771_e5627efa2ab1"));
        }
    }

    #[test]
    fn what_a_client_does_not_offer_is_left_out() {
        let rows: [(&[u16], &[u8], &str); 4] = [
            (&[0x000d, 0x0010], b"http/1.1", "t12i1502h1_"),
            (&[0x0010], b"\xab\xcd", "t12i1501ad_"),
            (&[0x002b], b"", "t13i150100_"),
            (&[], b"", "t12i150000_8daaf6152771_000000000000"),
        ];
        for (extensions, protocol, expected) in rows {
            let fingerprint = fingerprint(&records(&hello(extensions, protocol), 16_000)).unwrap();
            assert!(fingerprint.starts_with(expected), "{fingerprint} instead of {expected}");
        }
    }

    #[test]
    fn other_bytes_have_no_fingerprint_and_cause_no_panic() {
        assert_eq!(fingerprint(b"GET / HTTP/1.1\r\n"), None);
        assert_eq!(fingerprint(&records(&[2, 0, 0, 1, 0], 16_000)), None);
        let message = hello(&EXTENSIONS, b"h2");
        for end in 4..message.len() {
            // Whole, but cut off inside: its lengths lead past its end.
            let mut cut = message[..end].to_vec();
            cut[1..4].copy_from_slice(&[0, ((end - 4) >> 8) as u8, (end - 4) as u8]);
            let _ = fingerprint(&records(&cut, 16_000));
        }
        for index in 0..message.len() {
            let mut wrong = message.clone();
            wrong[index] ^= 0xff;
            let _ = read(&records(&wrong, 16_000));
        }
    }
}
