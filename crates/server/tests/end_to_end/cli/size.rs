//! `tollgate size`: figures, JSON and errors.

use serde_json::Value;

use crate::cli::{CommandOutput, tollgate};

fn size(args: &str) -> CommandOutput {
    let args: Vec<&str> = std::iter::once("size").chain(args.split_whitespace()).collect();
    tollgate(&args, b"")
}

#[test]
fn figures_have_formulas_and_constants() {
    let output = size("--rps 1M --keys 5M --servers 500 --leases off --replicas 0");
    assert_eq!((output.code, output.err.as_str()), (0, ""));
    for (name, value) in [
        ("claims/s without leases", "1,000,000  = requests/s × "),
        ("Redis instances, without replicas", "11  = claims/s × "),
        ("memory of all Redis instances", "600.0 MB  = (keys × "),
        ("connections of a Redis instance", "1,000  = servers × store_pool"),
    ] {
        let line = output.out.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        assert!(line.contains(&format!(" {value}")), "{name}: {value} is missing in\n{}", output.out);
    }
    assert!(output.out.contains("claim 5.5 µs, limit 1.1 µs"), "{}", output.out);
    assert!(!output.out.contains("with leases"), "{}", output.out);
}

#[test]
fn figures_are_json_too() {
    let figures = |args: &str| -> Value {
        let output = size(&format!("{args} --json"));
        assert_eq!((output.code, output.err.as_str()), (0, ""), "{args}");
        serde_json::from_str(&output.out).unwrap()
    };
    let value = |figures: &Value, id: &str| {
        let lines = figures["lines"].as_array().unwrap();
        lines.iter().find(|line| line["id"] == id).unwrap()["value"].as_f64().unwrap()
    };
    let four = figures("--rps 1.67M --keys 100_000_000 --limits 4 --leases off");
    assert_eq!(value(&four, "redis_shards"), 30.0);
    let hot = figures("--rps 100k --keys 10 --zipf 0 --servers 10 --algorithm fixed_window");
    assert_eq!(hot["traffic"]["servers_per_key"], 10);
    assert!(value(&hot, "requests_for_a_claim") > 50.0, "{hot}");
    // Redis on a slower machine.
    let slow = figures("--rps 1M --keys 5M --leases off --claim-cost 11");
    assert_eq!(value(&slow, "redis_shards"), 22.0);
}

#[test]
fn errors_name_the_flag_and_the_remedy() {
    for (args, flag, remedy) in [
        ("--keys 5", "--rps", "required"),
        ("--rps 0 --keys 5", "--rps <RATE>", "write a number from 0.001 to 1000000000"),
        ("--rps -5 --keys 5", "--rps <RATE>", "write a number from 0.001 to 1000000000"),
        ("--rps NaN --keys 5", "--rps <RATE>", "such as 1000, 50k or 1.5M"),
        ("--rps inf --keys 5", "--rps <RATE>", "such as 1000, 50k or 1.5M"),
        ("--rps 1e300 --keys 5", "--rps <RATE>", "such as 1000, 50k or 1.5M"),
        ("--rps many --keys 5", "--rps <RATE>", "such as 1000, 50k or 1.5M"),
        ("--rps 5 --keys 0", "--keys <COUNT>", "write a whole number from 1 to 1000000000000"),
        ("--rps 5 --keys 1.5", "--keys <COUNT>", "write a whole number from 1 to 1000000000000"),
        ("--rps 5 --keys 5 --servers 0", "--servers <COUNT>", "write a whole number from 1 to 100000"),
        ("--rps 5 --keys 5 --servers 1G", "--servers <COUNT>", "write a whole number from 1 to 100000"),
        ("--rps 5 --keys 5 --zipf -1", "--zipf <EXPONENT>", "write a number from 0 to 10"),
        ("--rps 5 --keys 5 --limits 0", "--limits <COUNT>", "write a whole number from 1 to 512"),
        ("--rps 5 --keys 5 --period 60", "--period <TIME>", "write 60s"),
        ("--rps 5 --keys 5 --period 0s", "--period <TIME>", "write"),
        ("--rps 5 --keys 5 --algorithm sliding_log", "--algorithm", "fixed_window"),
        ("--rps 5 --keys 5 --leases maybe", "--leases", "on, off"),
        ("--rps 5 --keys 5 --claim-cost 0", "--claim-cost", "write microseconds"),
        ("--rps 5 --keys 5 --servers 2 --servers-per-key 3", "--servers-per-key 3", "write at most 2"),
        ("--rps 5 --keys 5 --idempotency-keys 6", "--idempotency-keys 6", "at most 5"),
    ] {
        let output = size(args);
        assert_eq!((output.code, output.out.as_str()), (2, ""), "{args}: {}", output.err);
        assert!(output.err.contains(flag) && output.err.contains(remedy), "{args}: {}", output.err);
    }
}
