//! A million callers with limits of their own: what a decision costs more, for those who have one and those who have none, and what
//! loading them takes.

use std::hint::black_box;
use std::io::Write as _;
use std::process::Command;
use std::time::Instant;

use tollgate::control::lines::{self, ControlLine, SnapshotEnd, SnapshotHead};
use tollgate::control::{Controls, Record, RecordKind};
use tollgate::{Limiter, MemoryConfig, MemoryStore, Ruleset};

use crate::contenders::check;
use crate::memory::resident;
use crate::rounds::{more, take_turns};
use crate::workload::Workload;

/// The argument with which this program loads a snapshot and tells.
pub const CHILD: &str = "load-tenants";

const KEYS: usize = 1_000_000;
const DRAWS: usize = 2_000_000;

const RULES: &str = "
domain: bench
entity: api_key
rules:
  - {name: per-key, key: [api_key], limit: {free: 1000000/m, pro: 2000000/m}, algorithm: token_bucket}
";

const DOCUMENT: &str = r#"{"tier":"pro","overrides":[{"rule":"per-key","requests_per_unit":5000000,"unit":"minute"}]}"#;

pub fn run() {
    println!("{KEYS} overrides, one decision by Zipf 1.0, {DRAWS} draws a round");
    let work = Workload::zipf(KEYS, DRAWS);
    let (none, others, own) = (limiter(None), limiter(Some("other")), limiter(Some("user")));
    let ask = |limiter: &'static Limiter<MemoryStore>, work: &Workload| {
        for key in &work.order {
            black_box(check(limiter, &[("api_key", &work.keys[*key as usize])]));
        }
        work.order.len()
    };
    let times = take_turns(&mut [
        ("no overrides at all", &mut || ask(none, &work)),
        ("a million, none of them this caller's", &mut || ask(others, &work)),
        ("a million, one of them this caller's", &mut || ask(own, &work)),
    ]);
    let median: Vec<f64> = times.iter().map(|times| times.median()).collect();
    more("for callers without one", median[1] - median[0], 50.0);
    more("for callers with one", median[2] - median[0], 120.0);
    load();
}

fn limiter(callers: Option<&str>) -> &'static Limiter<MemoryStore> {
    let (rules, _) = Ruleset::from_text(RULES, 1).expect("the rules are sound");
    let limiter = Limiter::new(rules, MemoryConfig::default().build());
    if let Some(callers) = callers {
        let mut controls = Controls::default();
        for number in 0..KEYS {
            controls.apply(&record(&format!("{callers}-{number:011}"))).expect("it can be read");
        }
        limiter.install_tenants(controls.tenants().clone());
    }
    Box::leak(Box::new(limiter))
}

fn record(caller: &str) -> Record<'_> {
    let document = Some(DOCUMENT.into());
    Record { generation: 1, kind: RecordKind::Quota, domain: "bench".into(), name: caller.into(), document }
}

/// A snapshot of as many, loaded by a process of its own.
fn load() {
    let path = std::env::temp_dir().join(format!("tollgate-bench-{}.jsonl", std::process::id()));
    {
        let mut out = std::io::BufWriter::new(std::fs::File::create(&path).expect("a file"));
        lines::write(&mut out, &SnapshotHead { format: lines::FORMAT_VERSION, identity: "bench".to_owned(), as_of: 1 }).expect("written");
        for number in 0..KEYS {
            lines::write(&mut out, &record(&format!("user-{number:011}"))).expect("written");
        }
        lines::write(&mut out, &SnapshotEnd { records: KEYS as u64 }).expect("written");
        out.flush().expect("written");
    }
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program).args([CHILD, &path.to_string_lossy()]).output().expect("a child");
    let _ = std::fs::remove_file(&path);
    print!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Loads a snapshot and prints what that took.
pub fn loaded(path: &str) {
    let (before, start) = (resident(), Instant::now());
    let mut controls = Controls::default();
    let file = std::io::BufReader::with_capacity(1 << 20, std::fs::File::open(path).expect("the snapshot"));
    lines::read_snapshot(file, |line| {
        if let ControlLine::Record(record) = line {
            controls.apply(&record).expect("it can be read");
        }
    })
    .expect("a snapshot");
    let (took, taken) = (start.elapsed().as_secs_f64(), (resident() - before) >> 20);
    assert_eq!(controls.tenants().len(), KEYS);
    let word = |reached| if reached { "reached" } else { "MISSED" };
    println!("  = a snapshot of {KEYS} loaded in {took:.2} s, at most 5 s required: {}", word(took <= 5.0));
    println!("  = in {taken} MiB, at most 286 MiB required: {}", word(taken <= 286));
}
