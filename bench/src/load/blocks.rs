//! Blocks of headers (HPACK, RFC 7541): the one that is sent, and whether those that come back say what they should.

use loona_hpack::Decoder;

/// Where the static table has names and pairs that are used here.
const METHOD_POST: u8 = 0x80 | 3;
const SCHEME_HTTP: u8 = 0x80 | 6;
const AUTHORITY: u8 = 1;
const PATH: u8 = 4;
const CONTENT_TYPE: u8 = 31;
const USER_AGENT: u8 = 58;
/// A pair that both sides are to remember, by the number of its name; 0 if the name follows.
const REMEMBER: u8 = 0x40;
/// The number of the youngest remembered pair.
const YOUNGEST: u8 = 62;

/// The block of the first call of a connection.
pub fn first(authority: &str) -> Vec<u8> {
    let mut block = vec![METHOD_POST, SCHEME_HTTP];
    let mut remember = |name: u8, texts: &[&str]| {
        block.push(REMEMBER | name);
        for text in texts {
            block.push(u8::try_from(text.len()).ok().filter(|length| *length < 0x7f).expect("a short text"));
            block.extend_from_slice(text.as_bytes());
        }
    };
    remember(PATH, &["/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"]);
    remember(AUTHORITY, &[authority]);
    remember(CONTENT_TYPE, &["application/grpc"]);
    remember(0, &["te", "trailers"]);
    remember(USER_AGENT, &["tollgate-bench"]);
    block
}

/// The block of every later one: the same pairs, each by its number.
pub const LATER: [u8; 7] = {
    let youngest = 0x80 | YOUNGEST;
    [METHOD_POST, SCHEME_HTTP, youngest + 4, youngest + 3, youngest + 2, youngest + 1, youngest]
};

/// Reads the blocks of a connection.
///
/// Most are the same, byte for byte, until the server has something new to be remembered, such as the second: those are compared,
/// and only others decoded.
pub struct Blocks {
    decoder: Decoder<'static>,
    /// Blocks that were found to be good, of either kind. They mean the same until something new is remembered.
    good: [Vec<Vec<u8>>; 2],
}

/// Which headers of an answer, and what they must say.
#[derive(Clone, Copy)]
pub enum Part {
    Head,
    Trailers,
}

impl Blocks {
    pub fn new() -> Blocks {
        Blocks { decoder: Decoder::new(), good: [Vec::new(), Vec::new()] }
    }

    /// Fails the run unless the block says what it should.
    pub fn check(&mut self, block: &[u8], part: Part) {
        if self.good[part as usize].iter().any(|good| good == block) {
            return;
        }
        let pairs = self.decoder.decode(block).unwrap_or_else(|error| panic!("headers can't be read: {error:?}"));
        let (name, value) = match part {
            Part::Head => (":status", "200"),
            Part::Trailers => ("grpc-status", "0"),
        };
        let said = pairs.iter().any(|(its, says)| its == name.as_bytes() && says == value.as_bytes());
        if !said {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let pairs: Vec<String> = pairs.iter().map(|(name, value)| text(name) + ": " + &text(value)).collect();
            panic!("an answer without {name}: {value}, but with {}", pairs.join(", "));
        }
        if is_remembered(block) {
            self.good = [Vec::new(), Vec::new()];
        } else {
            self.good[part as usize].push(block.to_vec());
        }
    }
}

/// Whether a block that could be decoded changes what the two sides remember, and so what later blocks mean.
fn is_remembered(mut block: &[u8]) -> bool {
    while let Some(&first) = block.first() {
        match first {
            0x80.. => skip_number(&mut block, 7),
            0x20..0x80 => return true,
            // A name, by its number or in letters, and a value.
            ..0x20 => {
                if skip_number(&mut block, 4) == 0 {
                    skip_text(&mut block);
                }
                skip_text(&mut block);
                0
            }
        };
    }
    false
}

fn skip_text(block: &mut &[u8]) {
    let length = skip_number(block, 7);
    *block = block.get(length..).unwrap_or_default();
}

/// A number that begins in the last so many bits of a byte and goes on in others if they do not suffice.
fn skip_number(block: &mut &[u8], bits: u32) -> usize {
    let most = (1 << bits) - 1;
    let mut number = usize::from(block[0]) & most;
    let mut length = 1;
    if number == most {
        for (at, byte) in block[1..].iter().enumerate() {
            number += usize::from(byte & 0x7f) << (7 * at);
            length += 1;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *block = &block[length..];
    number
}
