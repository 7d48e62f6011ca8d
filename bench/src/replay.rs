//! Lines a second of `tollgate replay`.

use std::fmt::Write as _;
use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::workload::Workload;

const LINES: usize = 2_000_000;
const TARGET: f64 = 300_000.0;

pub fn run() {
    let Ok(program) = std::env::var("TOLLGATE") else {
        println!("replay: skipped, TOLLGATE does not name the program (make bench does)");
        return;
    };
    println!("replay of {LINES} lines, 100,000 keys, Zipf 1.0");
    let folder = std::env::temp_dir().join(format!("tollgate-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the lines");
    let (lines, rules) = (folder.join("lines.jsonl"), folder.join("rules.yaml"));
    std::fs::write(&lines, requests()).expect("room for the lines");
    std::fs::write(&rules, crate::contenders::ONE).expect("room for the rules");

    let mut speeds: Vec<f64> = (0..7).map(|_| replay(&program, &rules, &lines)).collect();
    speeds.sort_by(f64::total_cmp);
    let median = speeds[speeds.len() / 2];
    let word = if median >= TARGET { "reached" } else { "MISSED" };
    println!(
        "  = {median:.0} lines a second ({:.0} to {:.0}), at least {TARGET:.0} required: {word}",
        speeds[0], speeds[6]
    );
    let _ = std::fs::remove_dir_all(&folder);
}

fn replay(program: &str, rules: &std::path::Path, lines: &std::path::Path) -> f64 {
    let start = Instant::now();
    let status = Command::new(program)
        .args(["replay", "--rules"])
        .arg(rules)
        .stdin(File::open(lines).expect("the lines"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("the program");
    assert!(status.success(), "replay failed");
    LINES as f64 / start.elapsed().as_secs_f64()
}

fn requests() -> String {
    let work = Workload::zipf(100_000, LINES);
    let mut text = String::with_capacity(LINES * 96);
    for (n, key) in work.order.iter().enumerate() {
        let micros = n * 300;
        let _ = writeln!(
            text,
            r#"{{"at": {}.{:06}, "attributes": {{"api_key": "{}", "endpoint": "GET /v1/orders"}}, "cost": 1}}"#,
            1_790_000_000 + micros / 1_000_000,
            micros % 1_000_000,
            work.keys[*key as usize]
        );
    }
    text
}
