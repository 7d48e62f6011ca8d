//! An in-process limiter: load rules, check requests, print the decisions. No server, no executor.
//!
//! The clock is manual, so that the output is always the same; a service would use `MemoryConfig::default().build()`
//! and the system clock.

use std::error::Error;
use std::path::Path;

use tollgate::{Limiter, LoadOptions, ManualClock, MemoryConfig, Ruleset, Span, Timestamp, Wait, poll_once};

/// The start: 2 March 2026, 9:00 UTC.
const START: Timestamp = Timestamp::from_secs(1_772_442_000);

/// Seconds since the start, with the caller and the endpoint.
const REQUESTS: [(u64, &[(&str, &str)]); 10] = [
    (0, &[("api_key", "ada"), ("endpoint", "GET /api/v1/orders")]),
    (1, &[("api_key", "ada"), ("endpoint", "POST /api/v1/orders")]),
    (1, &[("api_key", "ada"), ("endpoint", "POST /api/v1/orders")]),
    (2, &[("api_key", "ada"), ("endpoint", "POST /api/v1/orders")]),
    (2, &[("api_key", "ada"), ("endpoint", "POST /api/v1/orders")]),
    (2, &[("api_key", "bob"), ("endpoint", "POST /api/v1/orders")]),
    (3, &[("remote_address", "198.51.100.7"), ("endpoint", "POST /login")]),
    (4, &[("remote_address", "198.51.100.7"), ("endpoint", "POST /login")]),
    (5, &[("remote_address", "198.51.100.7"), ("endpoint", "POST /login")]),
    (310, &[("remote_address", "198.51.100.7"), ("endpoint", "POST /login")]),
];

fn main() -> Result<(), Box<dyn Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rules");
    let (rules, _warnings) = Ruleset::load(&[path], &LoadOptions::default(), 1)
        .map_err(|problems| problems.iter().map(|problem| format!("\n{problem}")).collect::<String>())?;
    println!("Rules of examples/rules/api.yaml, counters in memory, {} requests:\n", REQUESTS.len());

    let clock = ManualClock::at(START);
    let limiter = Limiter::new(rules, MemoryConfig::default().build_with(clock.clone()));
    for (second, entries) in REQUESTS {
        clock.set(START.after(Span::from_secs(second)));
        let decision = poll_once(limiter.check("api_platform", entries)).ok_or("the in-memory store never waits")??;

        let call = entries.iter().map(|(_, value)| *value).collect::<Vec<_>>().join(": ");
        let result = match (decision.denied_by(), decision.tightest()) {
            (Some(denied), _) => format!("refused by {}, {}", denied.rule.name(), retry_text(decision.wait())),
            (None, Some(tightest)) => {
                format!("allowed, {} left of {}", tightest.reading.remaining, tightest.rule.name())
            }
            (None, None) => "allowed, no limit applies".to_owned(),
        };
        println!("{second:>4} s  {call:<33}  {result}");
    }
    println!("\nTo see why: tollgate explain --rules examples/rules api_key=ada endpoint='POST /api/v1/orders'");
    Ok(())
}

fn retry_text(wait: Wait) -> String {
    match wait.span() {
        Some(span) => format!("retry in {} s", span.as_secs_ceil()),
        None => "and it never fits".to_owned(),
    }
}
