//! Proof that each check can fail, and that it lets pass what it should.

use crate::checks::{self, Findings};
use crate::source::{code, dependencies};

/// Rows of a text and how many findings the check must have on it.
fn check(check: fn(&str, &str) -> Findings, rows: &[(&str, usize)]) {
    for (text, findings) in rows {
        let found = check("crates/core/src/some.rs", text);
        assert_eq!(found.len(), *findings, "{text:?}: {found:?}");
    }
}

#[test]
fn module_docs() {
    check(
        checks::begins_with_module_docs,
        &[
            ("//! Says.\n", 0),
            ("", 1),
            ("//!\n", 1),
            ("// Says.\n", 1),
            ("use a::b;\n//! Late.\n", 1),
            ("\n//! Late.\n", 1),
        ],
    );
}

#[test]
fn core_dependencies() {
    check(
        checks::core_dependencies,
        &[
            ("[dependencies]\njiff.workspace = true\nsmallvec = \"1\"\n", 0),
            ("[dependencies]\nserde.workspace = true\n", 1),
            ("[dependencies]\ntokio = { version = \"1\" }\nlog = \"1\" # jiff\n", 2),
            ("[dependencies.serde]\nversion = \"1\"\n", 1),
            ("[target.'cfg(unix)'.dependencies]\nlibc = \"1\"\n", 1),
            ("[build-dependencies]\ncc = \"1\"\n", 1),
            ("[dev-dependencies]\nproptest.workspace = true\n[lints]\nworkspace = true\n", 0),
        ],
    );
}

#[test]
fn dependencies_one_way() {
    check(
        checks::dependencies_point_one_way,
        &[
            ("name = \"tollgate-rules\"\n[dependencies]\ntollgate-core.workspace = true\nserde = \"1\"\n", 0),
            ("name = \"tollgate-store\"\n[dev-dependencies]\ntollgate-store = { path = \".\" }\n", 0),
            ("name = \"tollgate-server\"\n[dependencies]\ntollgate.workspace = true\n", 0),
            ("name = \"tollgate-core\"\n[dependencies]\ntollgate-rules.workspace = true\n", 1),
            ("name = \"tollgate-store\"\n[dependencies]\ntollgate-rules.workspace = true\n", 1),
            ("name = \"tollgate-rules\"\n[dev-dependencies]\ntollgate = { path = \"../limiter\" }\n", 1),
            ("name = \"tollgate\"\n[dependencies.tollgate-server]\npath = \"../server\"\n", 1),
            ("name = \"tollgate-new\"\n", 1),
        ],
    );
}

#[test]
fn clock_reads() {
    check(
        checks::reads_no_clock,
        &[
            ("let now = clock.now(); // not SystemTime::now()\n", 0),
            ("let words = \"Instant::now\";\n", 0),
            ("let now = std::time::SystemTime::now();\n", 1),
            ("let now = Instant::now();\n", 1),
            ("let f = Instant::now;\n", 1),
            ("SystemTime::UNIX_EPOCH.elapsed()", 1),
            ("let now = jiff::Timestamp::now();\nlet zoned = Zoned::now();\n", 2),
            ("use quanta::Clock;\n", 1),
            ("let quantas = 1;\n", 0),
        ],
    );
    for clock in [checks::CLOCK, checks::TEST_TIME] {
        assert!(checks::reads_no_clock(clock, "SystemTime::now()").is_empty());
    }
}

#[test]
fn sleeps() {
    check(
        checks::does_not_sleep,
        &[
            ("// thread::sleep would be wrong\nthread::spawn(f);\n", 0),
            ("std::thread::sleep(a_second);\n", 1),
            ("use std::thread::sleep;\n", 1),
        ],
    );
    assert!(checks::does_not_sleep(checks::TEST_TIME, "thread::sleep(a_second)").is_empty());
    assert_eq!(checks::does_not_sleep(checks::CLOCK, "thread::sleep(a_second)").len(), 1);
}

#[test]
fn floats() {
    check(
        checks::has_no_floats,
        &[
            ("let a = pair.0.1 + x[0..1].len() + 1.max(2) + 1_000; // 1.5 f64\n", 0),
            ("fn share(x: f64) {}\n", 1),
            ("let x = y as f32;\n", 1),
            ("let x = 1.5;\n", 1),
            ("let x = 1_000.5;\n", 1),
            ("let f64s = 1;\n", 0),
        ],
    );
}

#[test]
fn purity() {
    check(
        checks::is_pure,
        &[
            ("//! No async, no serde.\nuse std::net::IpAddr;\nfn log() -> sliding_log::Log {}\n", 0),
            ("async fn a() {}\n", 1),
            ("x.await\n", 1),
            ("#[derive(serde::Serialize)]\n", 1),
            ("tracing::info!(\"x\");\n", 1),
            ("log::warn!(\"x\");\n", 1),
            ("println!(\"x\");\n", 1),
            ("use std::fs;\n", 1),
            ("use std::net::{IpAddr, TcpStream};\n", 1),
            ("std::env::var(\"X\")\n", 1),
        ],
    );
}

#[test]
fn lengths() {
    let longest = "x\n".repeat(checks::MAX_LINES);
    let too_long = "x\n".repeat(checks::MAX_LINES + 1);
    check(checks::is_short, &[(&longest, 0), (&too_long, 1)]);
}

#[test]
fn machines() {
    check(
        checks::names_no_machine,
        &[
            ("see crates/wor\u{6b}/a and the /working day, https://example.com/root/x\n", 0),
            ("cd /wor\u{6b}/shared\n", 1),
            ("path = \"/tm\u{70}/x\"\n(/roo\u{74}/.cargo)\n", 2),
            ("/home/me/x", 1),
            ("registry = \"https://mirror.example/artifactory/crates\"\n", 1),
            ("index = \"sparse+https://mirror.example/\"\n", 1),
        ],
    );
}

#[test]
fn registries() {
    check(
        checks::is_locked_to_the_public_registry,
        &[
            ("name = \"a\"\nsource = \"registry+https://github.com/rust-lang/crates.io-index\"\n", 0),
            ("source = \"registry+https://mirror.example/index\"\n", 1),
            ("source = \"git+https://example.com/x#abc\"\n", 1),
        ],
    );
}

#[test]
fn comments_and_literals_are_no_code() {
    let rows = [
        ("a // b\nc", "a  \nc"),
        ("a /* b /* c */\nd */ e", "a  \n e"),
        ("a(\"b \\\" // c\", d)", "a( , d)"),
        ("r#\"a \" b\"# c", "  c"),
        ("var\"x\"", "var "),
        ("'a' '\\'' '\"' b", "      b"),
        ("fn a<'b>(c: &'b str)", "fn a<'b>(c: &'b str)"),
    ];
    for (text, expected) in rows {
        assert_eq!(code(text), expected, "{text:?}");
    }
}

#[test]
fn manifests_are_read() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\na = \"1\"\n# b = \"1\"\nc.workspace = true\n\
                    [dev-dependencies]\nd = \"1\"\n[dependencies.e]\nversion = \"1\"\n[features]\nf = []\n";
    let names = |dev| dependencies(manifest, dev).into_iter().map(|(_, name)| name).collect::<Vec<_>>();
    assert_eq!(names(false), ["a", "c", "e"]);
    assert_eq!(names(true), ["a", "c", "d", "e"]);
}
