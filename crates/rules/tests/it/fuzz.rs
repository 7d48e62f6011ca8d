//! The loader's fuzz target on the stable compiler: the corpus, then mutations of it, the same ones in each run.

#[allow(unreachable_pub)] // Public to libFuzzer's binary, which is not this one.
#[path = "../../../../fuzz/src/lib.rs"]
mod target;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// The number of mutated inputs of a run, unless `FUZZ_INPUTS` says otherwise.
const INPUTS: u64 = 20_000;
/// The seed of the mutations, unless `FUZZ_SEED` says otherwise.
const SEED: u64 = 0x7011_6a7e;
/// At least one input of this number must still load.
const LOADED_OF: u64 = 100;
/// The maximum length of a mutated input, in bytes.
const LONGEST: usize = 8192;
/// The maximum number of mutations between a corpus entry and an input.
const MAX_MUTATIONS: u64 = 6;

#[test]
fn the_corpus_loads_or_is_refused_with_reasons() {
    for (path, input) in corpus() {
        let loaded = load(&input, &path.display().to_string());
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(loaded || !name.starts_with("loads-"), "{name} does not load");
    }
}

#[test]
fn slow_mutations_of_the_corpus_load_or_are_refused_with_reasons() {
    let corpus: Vec<Vec<u8>> = corpus().into_iter().map(|(_, input)| input).collect();
    let seed = setting("FUZZ_SEED").unwrap_or(SEED);
    let mut random = Random::new(seed);
    let mut loaded = 0;
    let inputs = setting("FUZZ_INPUTS").unwrap_or(INPUTS);
    for at in 0..inputs {
        let input = mutated(&corpus, &mut random);
        loaded += u64::from(load(&input, &format!("input {at} of seed {seed}")));
    }
    // If nearly all were rejected, the code after the parser would not be tested.
    assert!(loaded * LOADED_OF >= inputs, "only {loaded} of {inputs} inputs loaded");
}

/// Rules by API, in full and in short form, that mutations start from.
const BY_API: &[&str] = &[
    r#"{"key": ["user"], "limit": {"free": "100/minute", "pro": "1000/minute"}, "algorithm": "token_bucket", "burst": "2x"}"#,
    r#"{"name": "r", "key": [], "limit": "5/s", "match": {"path": "\ud83d\ude00*", "plan": "absent", "ip": {"not": {"cidr": ["10.0.0.0/8"]}}}}"#,
    r#"{"key": ["a", "b?"], "limit": "20 concurrent", "hold": "60s", "mode": "shadow"}"#,
    r#"{"key_pattern": "user:{user_id}", "algorithm": "token_bucket", "rate": 100, "burst": 150, "window": "1m"}"#,
    r#"{"key_pattern": "t:{a}/u:{b}", "rate": 100, "unit": "minute"}"#,
    "key: [user]\nlimit: 100/month in Europe/Berlin\ncost: {path: {\"GET *\": 1, default: 5}}\n",
];

#[test]
fn slow_mutations_of_rules_by_api_load_or_are_refused_with_reasons() {
    let corpus: Vec<Vec<u8>> = BY_API.iter().map(|text| text.as_bytes().to_vec()).collect();
    let seed = setting("FUZZ_SEED").unwrap_or(SEED);
    let mut random = Random::new(seed);
    let (mut loaded, inputs) = (0, setting("FUZZ_INPUTS").unwrap_or(INPUTS));
    for at in 0..inputs {
        let input = mutated(&corpus, &mut random);
        let tried = catch_unwind(AssertUnwindSafe(|| target::load_layer(&input)));
        let sound = tried.unwrap_or_else(|_| panic!("input {at}: {:?}", String::from_utf8_lossy(&input)));
        loaded += u64::from(sound);
    }
    assert!(loaded * LOADED_OF >= inputs, "only {loaded} of {inputs} inputs loaded");
}

#[test]
fn the_same_seed_makes_the_same_inputs_and_they_differ() {
    let corpus = vec![b"domain: d\nrules: []\n".to_vec(), b"domain: e\n".to_vec()];
    let inputs = |seed| {
        let mut random = Random::new(seed);
        (0..1000).map(|_| mutated(&corpus, &mut random)).collect::<Vec<_>>()
    };
    let first = inputs(1);
    assert_eq!(first, inputs(1));
    assert_ne!(first, inputs(2));
    assert!(first.iter().all(|input| input.len() <= LONGEST));
    let distinct: std::collections::HashSet<_> = first.iter().collect();
    assert!(distinct.len() > 700, "{} distinct inputs of 1000", distinct.len());
}

fn load(input: &[u8], what: &str) -> bool {
    // A panic in the loader would not say which input caused it.
    catch_unwind(AssertUnwindSafe(|| target::load_rules(input)))
        .unwrap_or_else(|_| panic!("{what} makes the loader panic: {:?}", String::from_utf8_lossy(input)))
}

fn corpus() -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/load_rules");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    // The order of a directory depends on the file system; the inputs must not.
    paths.sort();
    assert!(paths.len() >= 12, "a corpus of {} files is too small", paths.len());
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn setting(name: &str) -> Option<u64> {
    Some(std::env::var(name).ok()?.parse().expect("a whole number"))
}

// === the mutator ===

fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.next() % MAX_MUTATIONS {
        mutate(&mut input, corpus, random);
        input.truncate(LONGEST);
    }
    input
}

fn mutate(input: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    if input.is_empty() {
        input.clone_from(&corpus[random.below(corpus.len())]);
        return;
    }
    let at = random.below(input.len());
    match random.below(9) {
        0 => input[at] ^= 1 << random.below(8),
        1 => input[at] = random.next() as u8,
        // Fragments with a meaning in YAML or in a limit get further than noise.
        2 => input[at] = pick(b":-[]{}#&*!|>'\"%@`?,~<\n\t 0/9.x", random),
        3 => input.insert(at, pick(b":-[]{}#&*!|>'\"\n\t 0", random)),
        4 => input.truncate(at),
        5 => {
            let end = at + random.below(input.len() - at).min(64);
            input.drain(at..end);
        }
        6 => splice(input, at, &corpus[random.below(corpus.len())], random),
        7 => swap_lines(input, random),
        // Many copies of a short part: nesting, long lists, long numbers.
        _ => {
            let part = input[at..(at + 1 + random.below(16)).min(input.len())].to_vec();
            let times = 1 << random.below(10);
            input.splice(at..at, part.repeat(times));
        }
    }
}

fn splice(input: &mut Vec<u8>, at: usize, other: &[u8], random: &mut Random) {
    if other.is_empty() {
        return;
    }
    let from = random.below(other.len());
    let to = from + random.below(other.len() - from + 1).min(256);
    input.splice(at..at, other[from..to].iter().copied());
}

fn swap_lines(input: &mut Vec<u8>, random: &mut Random) {
    let mut lines: Vec<&[u8]> = input.split_inclusive(|&byte| byte == b'\n').collect();
    let (one, other) = (random.below(lines.len()), random.below(lines.len()));
    lines.swap(one, other);
    *input = lines.concat();
}

fn pick(bytes: &[u8], random: &mut Random) -> u8 {
    bytes[random.below(bytes.len())]
}

/// Xorshift: good enough to shuffle bytes, and deterministic.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        // Zero would stay zero.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}
