//! Random requests that are nearly right, through ours and through nginx: ours forwards the same requests, or refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use tollgate_testing::number_from_env;

use crate::peers::Peer;
use crate::probe::{HASTY, Lane, Outcome, PATIENT};
use crate::support::TestGateway;

/// Cases at the same time, each with a proxy and an upstream of its own.
const LANES: usize = 16;
/// The seed of the run that is always the same.
const SEED: u64 = 20_240_607;
const CASES: u64 = 400;
/// The cases of a long run, whose seed is another one each time.
const LONG_CASES: u64 = 20_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_requests_are_read_as_nginx_reads_them_or_refused() {
    compare(SEED, CASES).await;
}

/// `FRAMING_SEED` repeats a run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; `make test-long` runs it"]
async fn many_random_requests_are_read_as_nginx_reads_them_or_refused() {
    compare(number_from_env("FRAMING_SEED").unwrap_or_else(|| fastrand::u64(..)), LONG_CASES).await;
}

/// One lane: both proxies.
struct Pair {
    ours: Lane,
    nginx: Lane,
    _gateway: TestGateway,
}

async fn compare(seed: u64, cases: u64) {
    let (lanes, peer) = Lane::nginx(LANES).await;
    let peer = Arc::new(peer);
    let next = Arc::<AtomicU64>::default();
    let mut runs = tokio::task::JoinSet::new();
    for nginx in lanes {
        let (ours, _gateway) = Lane::ours().await;
        let pair = Pair { ours, nginx, _gateway };
        let (next, peer): (_, Arc<Peer>) = (next.clone(), peer.clone());
        runs.spawn(async move {
            let (_peer, mut tally) = (peer, Tally::default());
            loop {
                let case = next.fetch_add(1, Ordering::Relaxed);
                if case >= cases {
                    return tally;
                }
                pair.try_case(seed, case, &mut tally).await;
            }
        });
    }
    let mut sum = Tally::default();
    while let Some(tally) = runs.join_next().await {
        sum.add(tally.unwrap());
    }
    println!("seed {seed}: {cases} cases, {sum:?}");
    // A run in which one side refuses everything would prove nothing.
    assert!(sum.both_forward > cases / 10 && sum.both_refuse > cases / 20, "seed {seed}: {sum:?}");
}

/// What both proxies did.
#[derive(Debug, Default)]
struct Tally {
    both_forward: u64,
    both_refuse: u64,
    /// Ours forwards fewer requests.
    stricter: u64,
    /// nginx refuses a tab after a value, which RFC 9110 5.6.3 allows.
    tabs: u64,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.both_forward += other.both_forward;
        self.both_refuse += other.both_refuse;
        self.stricter += other.stricter;
        self.tabs += other.tabs;
    }
}

impl Pair {
    async fn send(&self, parts: &[&[u8]], patience: Duration) -> (Outcome, Outcome) {
        let (ours, nginx) = tokio::join!(self.ours.send(parts, patience), self.nginx.send(parts, patience));
        (ours.of_usual_methods(), nginx)
    }

    async fn try_case(&self, seed: u64, case: u64, tally: &mut Tally) {
        let mut rng = Rng::with_seed(seed.wrapping_add(case.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let bytes = generate(&mut rng);
        let at = rng.usize(..=bytes.len());
        let parts: [&[u8]; 2] = bytes.split_at(at).into();
        let (mut ours, mut nginx) = self.send(&parts, HASTY).await;
        if !ours.is_within(&nginx) {
            (ours, nginx) = self.send(&parts, PATIENT).await;
        }
        if !ours.is_within(&nginx) && is_refused_for_tab(&bytes, &nginx) {
            tally.tabs += 1;
            return;
        }
        assert!(
            ours.is_within(&nginx),
            "seed {seed}, case {case}, split at {at}: {:?}\nours: {ours:#?}\nnginx: {nginx:#?}",
            String::from_utf8_lossy(&bytes)
        );
        match (ours.recorded.len(), nginx.recorded.len()) {
            (0, 0) => tally.both_refuse += 1,
            (ours, nginx) if ours == nginx => tally.both_forward += 1,
            _ => tally.stricter += 1,
        }
    }
}

/// Whether nginx refused the first request, which has a tab at the end of a line.
fn is_refused_for_tab(bytes: &[u8], nginx: &Outcome) -> bool {
    let has_tab = bytes.split(|byte| *byte == b'\n').any(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        line.ends_with(b"\t") && line.contains(&b':')
    });
    has_tab && nginx.recorded.is_empty() && nginx.statuses.iter().all(|status| status == "400")
}

// === What is sent ===

/// One to three requests, pipelined, of which something is wrong in most cases.
fn generate(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..rng.usize(1..=3) {
        bytes.extend_from_slice(request(rng, number).as_bytes());
    }
    for _ in 0..rng.usize(0..=3) {
        bytes = mutate(rng, bytes);
    }
    bytes
}

fn request(rng: &mut Rng, number: usize) -> String {
    let body = &"hello world, GET /x HTTP/1.1\r\nHost: y\r\n\r\n"[..rng.usize(0..=41)];
    let mut head = match rng.usize(..3) {
        0 => format!("GET /get{number} HTTP/1.1\r\nHost: x\r\n"),
        1 => format!("POST /length{number} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n", body.len()),
        _ => format!("PUT /chunks{number} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"),
    };
    if rng.usize(..4) == 0 {
        head.push_str(choose(rng, &EXTRA_FIELDS));
    }
    head.push_str("\r\n");
    if head.starts_with("POST") {
        head.push_str(body);
    } else if head.starts_with("PUT") {
        let (first, second) = body.split_at(rng.usize(..=body.len()));
        for chunk in [first, second].into_iter().filter(|chunk| !chunk.is_empty()) {
            let extension = if rng.usize(..6) == 0 { choose(rng, &EXTENSIONS) } else { "" };
            head.push_str(&format!("{:x}{extension}\r\n{chunk}\r\n", chunk.len()));
        }
        head.push_str(if rng.usize(..5) == 0 { "0\r\nX-Trailer: 1\r\n\r\n" } else { "0\r\n\r\n" });
    }
    head
}

/// Not `Expect`: nginx refuses it twice, and here it is never forwarded.
const EXTRA_FIELDS: [&str; 9] = [
    "X-A: 1\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "Upgrade: h2c\r\nConnection: Upgrade\r\n",
    "TE: trailers\r\n",
    "Content-Length: 0\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Host: y\r\n",
    "X-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n",
];
const EXTENSIONS: [&str; 8] = [";a=b", ";a=\"b\"", ";", " ;a", " ", "\t", ";a\n", ";\r"];
/// What is put in the place of a line break.
const BREAKS: [&str; 10] = ["\n", "\r", "\r\r\n", "\n\r", "\r\n ", "\r\n\t", " \r\n", "\0\r\n", "\r\n\r\n", ""];
const LENGTHS: [&str; 16] = [
    "0",
    "1",
    "+5",
    "-5",
    "05",
    "0x5",
    "5, 5",
    "5 5",
    "",
    " 5 ",
    "5;",
    "18446744073709551616",
    "9223372036854775808",
    "5\t",
    "\x0b5",
    "1e1",
];
const ENCODINGS: [&str; 14] = [
    "Chunked",
    "chunked ",
    "\tchunked",
    "chunked,",
    ",chunked",
    "chunked, identity",
    "identity",
    "identity, chunked",
    "xchunked",
    "\x0bchunked",
    "chunked\0",
    "gzip, chunked",
    "chunked, chunked",
    "",
];
const NAMES: [(&str, &str); 8] = [
    ("Content-Length:", "Content-Length :"),
    ("Content-Length:", " Content-Length:"),
    ("Content-Length:", "Content_Length:"),
    ("Transfer-Encoding:", "Transfer-Encoding :"),
    ("Transfer-Encoding:", "Transfer-Encoding\t:"),
    ("Transfer-Encoding:", "Transfer_Encoding:"),
    ("Host:", "Host :"),
    ("HTTP/1.1", "HTTP/1.0"),
];
const VERSIONS: [&str; 7] = ["HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "HTTP/0.9", "http/1.1", "HTTP/1.1 ", "HTTP/11"];
const SIZES: [&str; 10] = ["00", "0x0", "+0", "-0", " 0", "0 ", "1", "ffffffffffffffffff", "8000000000000000", ""];

fn choose<'t>(rng: &mut Rng, texts: &[&'t str]) -> &'t str {
    texts[rng.usize(..texts.len())]
}

/// Changes one thing. What does not occur is not changed.
fn mutate(rng: &mut Rng, bytes: Vec<u8>) -> Vec<u8> {
    match rng.usize(..9) {
        0 => {
            let to = choose(rng, &BREAKS);
            replace_one(rng, &bytes, "\r\n", to)
        }
        1 => replace_value(rng, &bytes, "Content-Length: ", &LENGTHS),
        2 => replace_value(rng, &bytes, "Transfer-Encoding: ", &ENCODINGS),
        3 => {
            let (from, to) = NAMES[rng.usize(..NAMES.len())];
            replace_one(rng, &bytes, from, to)
        }
        4 => {
            let to = choose(rng, &VERSIONS);
            replace_one(rng, &bytes, "HTTP/1.1", to)
        }
        5 => {
            let to = format!("\r\n{}\r\n", choose(rng, &SIZES));
            replace_one(rng, &bytes, "\r\n0\r\n", &to)
        }
        6 => repeat_line(rng, bytes),
        7 => change_byte(rng, bytes),
        _ => bytes[..rng.usize(..=bytes.len())].to_vec(),
    }
}

fn places(bytes: &[u8], text: &str) -> Vec<usize> {
    bytes.windows(text.len()).enumerate().filter(|(_, part)| *part == text.as_bytes()).map(|(at, _)| at).collect()
}

fn replace_one(rng: &mut Rng, bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    let places = places(bytes, from);
    if places.is_empty() {
        return bytes.to_vec();
    }
    let at = places[rng.usize(..places.len())];
    [&bytes[..at], to.as_bytes(), &bytes[at + from.len()..]].concat()
}

fn replace_value(rng: &mut Rng, bytes: &[u8], field: &str, values: &[&str]) -> Vec<u8> {
    let places = places(bytes, field);
    if places.is_empty() {
        return bytes.to_vec();
    }
    let at = places[rng.usize(..places.len())] + field.len();
    let end = bytes[at..].iter().position(|byte| *byte == b'\r').map_or(bytes.len(), |length| at + length);
    [&bytes[..at], choose(rng, values).as_bytes(), &bytes[end..]].concat()
}

fn repeat_line(rng: &mut Rng, bytes: Vec<u8>) -> Vec<u8> {
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    if lines.is_empty() {
        return bytes;
    }
    let number = rng.usize(..lines.len());
    [&lines[..=number], &lines[number..]].concat().concat()
}

fn change_byte(rng: &mut Rng, mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.is_empty() {
        return bytes;
    }
    let at = rng.usize(..bytes.len());
    match rng.usize(..3) {
        0 => _ = bytes.remove(at),
        1 => bytes[at] ^= 1 << rng.u8(..8),
        _ => bytes.insert(at, rng.u8(..)),
    }
    bytes
}
