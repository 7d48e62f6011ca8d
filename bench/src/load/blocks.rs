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
/// Most consist of numbers of remembered pairs, the same each time: those are compared, and only others decoded.
pub struct Blocks {
    decoder: Decoder<'static>,
    /// Blocks that were found to be good, of either kind. They hold until something new is remembered.
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
        let only_numbers = block.iter().all(|byte| (0x80..0xff).contains(byte));
        let good = &self.good[part as usize];
        if only_numbers && good.iter().any(|good| good == block) {
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
        if only_numbers {
            self.good[part as usize].push(block.to_vec());
        } else {
            self.good = [Vec::new(), Vec::new()];
        }
    }
}
