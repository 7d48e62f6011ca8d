//! How long a plan of a million recorded requests takes: `cargo run --release -p tollgate-plan --example million`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example prints, and its rules are right")]

use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_plan::{RecordedCaller, TrafficDescriptor, TrafficRecord, World, compare, tenants_of};
use tollgate_rules::Ruleset;
use tollgate_store::{Clock as _, SystemClock};

const REQUESTS: u64 = 1_000_000;
const CALLERS: u64 = 20_000;

fn rules(limit: &str) -> Ruleset {
    let text = format!(
        "domain: shop\nentity: user\nrules:\n  \
         - {{name: per-user, key: [user], limit: {limit}/minute}}\n  \
         - {{name: orders, key: [user], match: {{endpoint: 'POST /orders*'}}, limit: 10/minute, algorithm: token_bucket}}\n"
    );
    Ruleset::from_text(&text, 1).unwrap().0
}

fn record(number: u64) -> TrafficRecord {
    // Callers take turns, in an order without a pattern; a fifth of the requests are orders.
    let user = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let endpoint = if number.is_multiple_of(5) { "POST /orders" } else { "GET /orders" };
    let entries = [("user", format!("user-{}", user % CALLERS)), ("endpoint", endpoint.to_owned())];
    let entries = entries.into_iter().map(|(name, value)| (Arc::from(name), value.into_boxed_str()));
    TrafficRecord {
        at: Timestamp::from_micros(1_800_000_000_000_000 + number * 900),
        domain: None,
        descriptors: Box::new([TrafficDescriptor { entries: entries.collect(), hits: None }]),
        cost: 1,
        copies: 1,
        callers: 1,
        caller: RecordedCaller::default(),
        limits: Box::default(),
    }
}

fn main() {
    let records: Vec<TrafficRecord> = (0..REQUESTS).map(record).collect();
    let (before, after) = (rules("100"), rules("3"));
    let clock = SystemClock::default();
    let started = clock.steady();
    let tenants = tenants_of(&records, &before);
    let world = |rules| World { rules, tenants: &tenants };
    let report = compare(&world(&before), &world(&after), &records, true, &mut |_| ());
    let took = clock.steady().since(started).as_micros();
    println!("{REQUESTS} requests in {}.{:03} s: {:?}", took / 1_000_000, took / 1_000 % 1_000, report.all);
}
