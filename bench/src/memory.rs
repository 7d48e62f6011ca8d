//! Bytes a key: how much more memory a process has after so many keys were seen once, in a process of its own.

use std::process::Command;

use crate::contenders::{ONE, check, governor, tollgate};
use crate::rounds::verdict;

/// The argument with which this program fills one contender and tells.
pub const CHILD: &str = "fill-memory";

pub fn run() {
    println!("memory, bytes a key (resident memory after less before, a bucket each)");
    for (keys, at_most) in [(1_000_000, 72.0), (10_000_000, 64.0)] {
        let peer = bytes("governor", keys);
        let ours = bytes("tollgate", keys);
        println!("  {keys:>10} keys: governor {peer:.1}, tollgate {ours:.1}");
        verdict("tollgate", ours, at_most);
    }
}

fn bytes(contender: &str, keys: usize) -> f64 {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program).args([CHILD, contender, &keys.to_string()]).output().expect("a child");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number from the child")
}

/// Fills a contender and prints the bytes that a key took.
pub fn fill(contender: &str, keys: usize) {
    let key = |n: usize| format!("user-{n:011}");
    let taken = match contender {
        "governor" => {
            let limiter = governor();
            let before = resident();
            (0..keys).for_each(|n| assert!(limiter.check_key(&key(n)).is_ok()));
            resident() - before
        }
        _ => {
            let limiter = tollgate(ONE);
            let before = resident();
            (0..keys).for_each(|n| assert!(check(&limiter, &[("api_key", &key(n))])));
            let taken = resident() - before;
            assert_eq!(limiter.store().stats().keys, keys, "all of them are stored");
            taken
        }
    };
    println!("{:.2}", taken as f64 / keys as f64);
}

/// Resident memory in bytes.
pub fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = status.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).expect("pages");
    pages * 4096
}
