//! Each check takes a file's path and text and says what is wrong with it.

use crate::source::{code, dependencies, lines_with, lines_with_float_literals, package};

/// What a check found: `:line: sentence` each, to be read after the path.
pub(crate) type Findings = Vec<String>;

/// The one file that reads a clock.
pub(crate) const CLOCK: &str = "crates/store/src/clock.rs";

/// The one file of the tests that reads a clock and sleeps: it waits for other processes, whose clocks can't be moved.
pub(crate) const TEST_TIME: &str = "crates/testing/src/time.rs";

/// The longest that a source file may be. Half of it is a better length.
pub(crate) const MAX_LINES: usize = 600;

/// What core may use: zones, a keyed hash, short lists without an allocation.
const CORE_MAY_USE: [&str; 3] = ["jiff", "siphasher", "smallvec"];

/// Which of our packages each of our packages may use. What is not here may use none.
const MAY_USE: &[(&str, &[&str])] = &[
    ("tollgate-core", &[]),
    ("tollgate-rules", &["tollgate-core"]),
    ("tollgate-store", &["tollgate-core", "tollgate-testing"]),
    ("tollgate-simulate", &["tollgate-core", "tollgate-rules", "tollgate-store"]),
    ("tollgate-shed", &[]),
    ("tollgate-redis-address", &[]),
    ("tollgate-redis", &["tollgate-core", "tollgate-store", "tollgate-redis-address", "tollgate-testing"]),
    ("tollgate-records", &["tollgate-core", "tollgate-rules"]),
    ("tollgate-control", &["tollgate-core", "tollgate-records", "tollgate-testing"]),
    (
        "tollgate",
        &[
            "tollgate-core",
            "tollgate-rules",
            "tollgate-store",
            "tollgate-redis",
            "tollgate-records",
            "tollgate-testing",
        ],
    ),
    (
        "tollgate-http",
        &["tollgate-core", "tollgate-rules", "tollgate-store", "tollgate-shed", "tollgate", "tollgate-testing"],
    ),
    ("tollgate-plan", &["tollgate-core", "tollgate-rules", "tollgate-store", "tollgate-records"]),
    ("tollgate-observe", &["tollgate-core", "tollgate-rules", "tollgate-plan", "tollgate"]),
    ("tollgate-telemetry", &["tollgate-core", "tollgate-store", "tollgate-testing"]),
    ("tollgate-net", &["tollgate-telemetry"]),
    (
        "tollgate-events",
        &[
            "tollgate-core",
            "tollgate-records",
            "tollgate-store",
            "tollgate-telemetry",
            "tollgate-net",
            "tollgate-testing",
        ],
    ),
    ("tollgate-proto", &[]),
    ("tollgate-openapi-stub", &[]),
    (
        "tollgate-wire",
        &[
            "tollgate-core",
            "tollgate-rules",
            "tollgate-store",
            "tollgate",
            "tollgate-observe",
            "tollgate-telemetry",
            "tollgate-net",
            "tollgate-http",
            "tollgate-proto",
            "tollgate-openapi-stub",
            "tollgate-testing",
        ],
    ),
    (
        "tollgate-gateway",
        &[
            "tollgate-core",
            "tollgate-rules",
            "tollgate-store",
            "tollgate-shed",
            "tollgate",
            "tollgate-telemetry",
            "tollgate-net",
            "tollgate-http",
            "tollgate-wire",
            "tollgate-testing",
        ],
    ),
    (
        "tollgate-admin",
        &[
            "tollgate-core",
            "tollgate-rules",
            "tollgate-store",
            "tollgate",
            "tollgate-plan",
            "tollgate-observe",
            "tollgate-telemetry",
            "tollgate-net",
            "tollgate-http",
            "tollgate-openapi-stub",
            "tollgate-testing",
            "tollgate-records",
            "tollgate-control",
            "tollgate-wire",
            "tollgate-shed",
            "tollgate-gateway",
            "tollgate-events",
        ],
    ),
    (
        "tollgate-cli",
        &[
            "tollgate-gateway",
            "tollgate-rules",
            "tollgate-store",
            "tollgate-simulate",
            "tollgate-plan",
            "tollgate",
            "tollgate-records",
            "tollgate-observe",
            "tollgate-http",
        ],
    ),
    (
        "tollgate-server",
        &[
            "tollgate-core",
            "tollgate-rules",
            "tollgate-store",
            "tollgate",
            "tollgate-observe",
            "tollgate-telemetry",
            "tollgate-net",
            "tollgate-http",
            "tollgate-proto",
            "tollgate-testing",
            "tollgate-redis",
            "tollgate-redis-address",
            "tollgate-records",
            "tollgate-control",
            "tollgate-wire",
            "tollgate-gateway",
            "tollgate-events",
            "tollgate-admin",
            "tollgate-cli",
        ],
    ),
    ("tollgate-testing", &[]),
    (
        "tollgate-perf",
        &[
            "tollgate",
            "tollgate-gateway",
            "tollgate-http",
            "tollgate-net",
            "tollgate-observe",
            "tollgate-proto",
            "tollgate-redis",
            "tollgate-rules",
            "tollgate-store",
            "tollgate-telemetry",
            "tollgate-wire",
        ],
    ),
];

const CLOCK_READS: [&str; 9] = [
    "SystemTime::now",
    "Instant::now",
    "UNIX_EPOCH.elapsed",
    "Timestamp::now",
    "Zoned::now",
    "Utc::now",
    "Local::now",
    "quanta",
    "coarsetime",
];

const SLEEPS: [&str; 4] = ["thread::sleep", "thread::sleep_until", "thread::park_timeout", "sleep_ms"];

/// Async, serde, logging, and everything that reaches outside the process.
const IMPURE: [&str; 25] = [
    "async",
    "await",
    "Future",
    "tokio",
    "futures",
    "serde",
    "tracing",
    "log::",
    "print!",
    "println!",
    "eprint!",
    "eprintln!",
    "dbg!",
    "std::env",
    "std::fs",
    "std::io",
    "TcpListener",
    "TcpStream",
    "UdpSocket",
    "ToSocketAddrs",
    "std::os",
    "std::process",
    "std::thread",
    "thread_local!",
    "SystemTime",
];

/// Folders at the root of the machines that this is written and tested on.
const MACHINE_FOLDERS: [&str; 4] = ["/work", "/tmp", "/root", "/home"];

/// What the addresses of a machine's own package mirrors have in common.
const MIRRORS: [&str; 4] = ["artifactory", "sparse+http", "index.crates.io", "static.crates.io"];

pub(crate) fn begins_with_module_docs(_: &str, text: &str) -> Findings {
    match text.lines().next() {
        Some(first) if first.strip_prefix("//!").is_some_and(|words| !words.trim().is_empty()) => Findings::new(),
        _ => vec![":1: begin with a `//!` line that says what the module is".to_owned()],
    }
}

pub(crate) fn core_dependencies(_: &str, text: &str) -> Findings {
    let others = dependencies(text, false).into_iter().filter(|(_, name)| !CORE_MAY_USE.contains(&name.as_str()));
    others.map(|(line, name)| format!(":{line}: core may not use {name}, only {}", CORE_MAY_USE.join(", "))).collect()
}

pub(crate) fn dependencies_point_one_way(_: &str, text: &str) -> Findings {
    let package = package(text);
    let Some((_, may_use)) = MAY_USE.iter().find(|(name, _)| *name == package) else {
        return vec![format!(": say in MAY_USE which packages {package} may use")];
    };
    let against = |name: &str| name.starts_with("tollgate") && name != package && !may_use.contains(&name);
    dependencies(text, true)
        .into_iter()
        .filter(|(_, name)| against(name))
        .map(|(line, name)| {
            format!(":{line}: {package} may not use {name}: see the picture of the crates in docs/ARCHITECTURE.md")
        })
        .collect()
}

pub(crate) fn reads_no_clock(path: &str, text: &str) -> Findings {
    if [CLOCK, TEST_TIME].contains(&path) {
        return Findings::new();
    }
    without(&CLOCK_READS, text, "time is an argument, or comes from a Clock")
}

pub(crate) fn does_not_sleep(path: &str, text: &str) -> Findings {
    if path == TEST_TIME {
        return Findings::new();
    }
    without(
        &SLEEPS,
        text,
        "a decider must not stall; a test moves a ManualClock, or polls with tollgate_testing::eventually",
    )
}

pub(crate) fn has_no_floats(_: &str, text: &str) -> Findings {
    let mut findings = without(&["f32", "f64"], text, "core counts in integers");
    let literals = lines_with_float_literals(&code(text));
    findings.extend(literals.into_iter().map(|line| format!(":{line}: a float literal: core counts in integers")));
    findings
}

pub(crate) fn is_pure(_: &str, text: &str) -> Findings {
    without(&IMPURE, text, "core is a pure function")
}

pub(crate) fn is_short(_: &str, text: &str) -> Findings {
    match text.lines().count() {
        ..=MAX_LINES => Findings::new(),
        lines => vec![format!(": {lines} lines, at most {MAX_LINES}: look for the second idea in it")],
    }
}

pub(crate) fn names_no_machine(_: &str, text: &str) -> Findings {
    let mut findings = Findings::new();
    for (at, line) in text.lines().enumerate() {
        let folder = MACHINE_FOLDERS.into_iter().find(|folder| names_folder(line, folder));
        let mirror = MIRRORS.into_iter().find(|mirror| line.contains(mirror));
        if let Some(word) = folder.or(mirror) {
            findings.push(format!(":{}: {word} is one machine's own", at + 1));
        }
    }
    findings
}

pub(crate) fn is_locked_to_the_public_registry(_: &str, text: &str) -> Findings {
    const PUBLIC: &str = r#"source = "registry+https://github.com/rust-lang/crates.io-index""#;
    let sources = text.lines().enumerate().filter(|(_, line)| line.starts_with("source = "));
    sources
        .filter(|(_, line)| *line != PUBLIC)
        .map(|(at, line)| format!(":{}: {line}: packages come from the public registry", at + 1))
        .collect()
}

/// Whether a line has a path that begins with this folder, and not one in which it comes later.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + folder.len()..].chars().next();
        let is_path = |c: char| c.is_alphanumeric() || "_-.~/*}])".contains(c);
        !before.is_some_and(is_path) && after == Some('/')
    })
}

fn without(words: &[&str], text: &str, why: &str) -> Findings {
    let code = code(text);
    let found = words.iter().flat_map(|word| lines_with(&code, word).into_iter().map(move |line| (line, word)));
    found.map(|(line, word)| format!(":{line}: {word}: {why}")).collect()
}
