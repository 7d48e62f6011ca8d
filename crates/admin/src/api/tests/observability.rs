//! What the server sees of its decisions: pages and the live stream.

mod event_sinks;
mod history;
mod live;
mod pages;

use serde_json::Value;

use super::Bench;

/// Decides about a caller so many times.
async fn decide(bench: &Bench, caller: &str, times: usize) {
    for _ in 0..times {
        bench.decide(&[("api_key", caller)], 1).await;
    }
}

/// A second passes, and then is looked.
fn second(bench: &Bench) {
    bench.pass(1);
    bench.look();
}

/// Members of an object, in this order.
fn some<const N: usize>(of: &Value, members: [&str; N]) -> [Value; N] {
    members.map(|member| of[member].clone())
}
