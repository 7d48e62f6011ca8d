//! What a caller takes of Redis's memory.

use std::sync::Arc;

use tollgate_testing::Redis;
use tollgate_testing::resp::Reply;

use super::driven::{Callers, Driven};
use crate::server::turns::at_most;

/// A bucket, or as many as there are keys.
fn rules(keys: &[&str]) -> String {
    let mut text = "domain: api\nentity: customer\nrules:\n".to_owned();
    for (number, key) in keys.iter().enumerate() {
        text += &format!("  - {{name: r{number}, key: {key}, limit: 1000/hour, algorithm: token_bucket}}\n");
    }
    text
}

pub fn run(redis: &Redis) {
    println!("bytes in Redis for a caller of 16 characters (MEMORY USAGE)");
    let four = ["[customer]", "[customer, user_id]", "[customer, api_key]", "[customer, endpoint]"];
    for (name, keys, bound) in [("one bucket", &four[..1], 150.0), ("four buckets", &four[..], 260.0)] {
        redis.command(&["FLUSHALL"]);
        let (store, callers) = (Driven::new(&redis.url()), Arc::new(Callers::new(1)));
        let tally = store.drive_while(&store.limiter(&rules(keys)), &callers, |number| number == 0);
        assert_eq!(tally.admitted, 1);
        let bytes = bytes_of(redis, &callers.names()[0]);
        at_most(name, (bytes, bytes, bytes), bound);
    }
}

/// The bytes of all values whose names have this in them.
fn bytes_of(redis: &Redis, name: &str) -> f64 {
    let Reply::List(keys) = redis.command(&["KEYS", &format!("*{name}*")]) else { panic!("no list of keys") };
    assert!(!keys.is_empty(), "no value is named for {name}");
    let bytes = |key: &Reply| match redis.command(&["MEMORY", "USAGE", &key.text(), "SAMPLES", "0"]) {
        Reply::Number(bytes) => bytes as f64,
        other => panic!("MEMORY USAGE says {other:?}"),
    };
    keys.iter().map(bytes).sum()
}
