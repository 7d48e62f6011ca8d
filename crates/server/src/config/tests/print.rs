//! `--print-config`.

use proptest::prelude::*;

use super::{Start, start};
use crate::config::{DataSettings, ServerSettings};

/// The settings that the printed file has, and the original ones. A file makes the default data directory and the address explicit.
fn again(start: &Start) -> (ServerSettings, ServerSettings) {
    let loaded = start.loaded();
    let printed = Start { file: Some(loaded.print()), ..Start::default() };
    let mut first = loaded.settings;
    if let DataSettings::Directory { is_explicit, .. } = &mut first.data {
        *is_explicit = true;
    }
    first.admin.as_envoy = false;
    (printed.loaded().settings, first)
}

#[test]
fn the_printed_file_is_equivalent() {
    let rows = [
        Start::default(),
        start(&["--envoy-env"], &["GRPC_UDS=/run/x.sock", "LOG_LEVEL=trace", "TRACING_ENABLED=1"], ""),
        start(&["--rules=a b", "--rules=#c"], &["TOLLGATE_HTTP=[::1]:80"], "service_name: 'null'"),
        start(&["--service-name", "\"a\\b\"\t\u{2028}\u{feff}ü: #"], &[], "authorize_domain: '~'"),
        start(&["--authorize-attributes=a=:path,b=X-B", "--data=off"], &[], "max_keys: 1_0"),
    ];
    for start in rows {
        let (second, first) = again(&start);
        assert_eq!(second, first, "{start:?}");
    }
}

#[test]
fn every_line_has_the_origin_of_its_value() {
    let start =
        start(&["--grpc=unix:/run/x"], &["TOLLGATE_RULES=a,b", "PORT=1"], "\nlog_level: debug\nenvoy_env: on\n");
    let printed = start.loaded().print();
    let lines: Vec<&str> = printed.lines().collect();
    let line = |name: &str| lines.iter().find(|line| line.starts_with(&format!("{name}: "))).unwrap().to_string();
    let parts = |name: &str| {
        line(name).split_once("  # ").map(|(value, origin)| (value.trim_end().to_owned(), origin.to_owned())).unwrap()
    };
    let row = |value: &str, origin: &str| (value.to_owned(), origin.to_owned());
    assert_eq!(parts("grpc"), row("grpc: unix:/run/x", "flag --grpc"));
    assert_eq!(parts("rules"), row("rules: a,b", "environment variable TOLLGATE_RULES"));
    assert_eq!(parts("http"), row("http: 0.0.0.0:1", "envoyproxy/ratelimit's PORT"));
    assert_eq!(parts("admin"), row("admin: 0.0.0.0:6070", "envoyproxy/ratelimit's default"));
    assert_eq!(parts("workers"), row("workers: auto", "default"));
    let (value, origin) = parts("log_level");
    assert!(value == "log_level: debug" && origin.ends_with("tollgate.yaml:2"), "{value} {origin}");
    // Aligned, except for very long values.
    let columns: Vec<usize> = lines
        .iter()
        .filter(|line| !line.starts_with("authorize_attributes"))
        .map(|line| line.find('#').unwrap())
        .collect();
    assert!(columns.iter().all(|column| *column == columns[0]), "{printed}");
}

#[test]
fn passwords_are_not_shown() {
    let start = start(&["--otlp-endpoint=http://me:p%40ss@w@collector:4317"], &[], "");
    let loaded = start.loaded();
    assert_eq!(loaded.settings.observe.otlp_endpoint.as_ref().unwrap().as_str(), "http://me:p%40ss@w@collector:4317");
    let shown = format!("{}{:?}", loaded.print(), loaded.settings);
    assert!(!shown.contains("p%40ss") && !shown.contains("@w@"), "{shown}");
    assert_eq!(shown.matches("http://me:***@collector:4317").count(), 2, "{shown}");
}

#[test]
fn the_password_of_redis_is_not_shown() {
    let rows: [&[&str]; 4] = [
        &["--store=redis://me:s3cret@host"],
        &["--store=redis://:s3cret@a,b:7002"],
        &["--store=redis://host", "--store-password=s3cret"],
        &["--store=redis://a:7001", "--store=redis://b", "--store-user=me", "--store-password=s3cret"],
    ];
    for flags in rows {
        let loaded = start(flags, &[], "").loaded();
        let shown = format!("{}{loaded:?}", loaded.print());
        assert!(!shown.contains("s3cret") && shown.contains("***"), "{shown}");
    }
    // Errors do not contain the address.
    for wrong in ["redis://me:s3cret@host/9", "redis://me:s3cret@", "http://s3cret@host", "redis://a,s3cret@b:0"] {
        let problems = start(&[&format!("--store={wrong}")], &[], "").problems().join("\n");
        assert!(problems.starts_with("--store: error: `store`: ") && !problems.contains("s3cret"), "{problems}");
    }
    let problems = start(&[], &[], "store: ['redis://:s3,cret@a', 'redis://b']").problems().join("\n");
    assert!(problems.contains("contains a comma") && !problems.contains("s3"), "{problems}");
}

#[test]
fn keys_of_receipts_are_not_shown() {
    let secrets = "s3cret-s3cret-s3cret,an-older-s3cret-of-the-fleet";
    let loaded = start(&[&format!("--receipt-keys={secrets}")], &[], "").loaded();
    let shown = format!("{}{loaded:?}", loaded.print());
    assert!(!shown.contains("s3cret") && shown.contains("receipt_keys: \"***\""), "{shown}");
    // Errors do not contain the keys.
    let many = ["a-s3cret-that-is-long-enough"; 9].join(",");
    let rows = [
        ("s3cret", "a key has fewer than 16 bytes; make one with `openssl rand -hex 32`, or none"),
        (
            "a-s3cret-that-is-long-enough,",
            "a key has fewer than 16 bytes; make one with `openssl rand -hex 32`, or none",
        ),
        (&many, "there are more than 8 keys; keep the newest of them, or none"),
    ];
    for (wrong, error) in rows {
        let problem = format!("--receipt-keys: error: `receipt_keys`: {error}");
        assert_eq!(start(&[&format!("--receipt-keys={wrong}")], &[], "").problems(), [problem]);
    }
    let problems = start(&[], &[], "receipt_keys: ['a s3cret, and a comma', 'another s3cret']").problems().join("\n");
    assert!(
        problems.contains("`receipt_keys`: a value contains a comma") && !problems.contains("s3cret"),
        "{problems}"
    );
    let both = start(&["--receipt-keys=a-s3cret-that-is-long-enough", "--receipt-keys-file=f"], &[], "").problems();
    let problem = "--receipt-keys-file: error: `receipt_keys_file`: `receipt_keys` has keys too; keep one of the two";
    assert_eq!(both, [problem]);
}

proptest! {
    #[test]
    fn any_text_is_printed_as_it_was(text in "\\PC{1,20}|.{1,20}") {
        let start = Start { flags: vec![format!("--service-name={text}")], ..Start::default() };
        prop_assume!(!text.trim().is_empty());
        let (second, first) = again(&start);
        prop_assert_eq!(second.observe.service_name, first.observe.service_name);
    }
}
