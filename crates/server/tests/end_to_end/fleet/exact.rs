//! Two servers and one key: exactly the limit is admitted, with every algorithm.

use tollgate_core::Source;
use tollgate_testing::Redis;

use crate::fleet::load::{Check, CheckResult, check_concurrently};
use crate::fleet::servers::Fleet;
use crate::new_server;

const LIMIT: usize = 100;

/// The name and the limit of each rule.
const ALGORITHMS: [(&str, &str); 8] = [
    ("token_bucket", "limit: 100/year, algorithm: token_bucket"),
    ("gcra", "limit: 100/year, algorithm: gcra"),
    ("leaky_bucket", "limit: 100/year, algorithm: leaky_bucket"),
    ("fixed_window", "limit: 100/year, algorithm: fixed_window"),
    ("sliding_window", "limit: 100/year, algorithm: sliding_window"),
    ("sub_windows", "limit: 100/day, algorithm: sliding_window, sub_windows: 24"),
    ("sliding_log", "limit: 100/day, algorithm: sliding_log"),
    ("concurrent", "limit: 100 concurrent, hold: 10m"),
];

fn rules() -> String {
    let rule =
        |(name, text): &(&str, &str)| format!("  - {{name: {name}, key: [user], match: {{kind: {name}}}, {text}}}\n");
    format!("domain: fleet\nentity: user\nrules:\n{}", ALGORITHMS.iter().map(rule).collect::<String>())
}

#[test]
fn slow_two_servers_admit_exactly_the_limit_of_every_algorithm() {
    let redis = Redis::start();
    // A deadline that a busy machine does not exceed.
    let args = ["--store", &redis.url(), "--store-deadline", "1s"];
    let servers = (0..2).map(|_| new_server().rules(&rules()).listen(&["http"]).args(&args).start()).collect();
    let fleet = Fleet::from_servers(servers, &Check { user: "warm-up".to_owned(), kind: ALGORITHMS[0].0 });
    for (name, _) in ALGORITHMS {
        let results = check_concurrently(&fleet.addresses(), &Check { user: "u".to_owned(), kind: name }, 8 * LIMIT);
        let count =
            |is_counted: &dyn Fn(&CheckResult) -> bool| results.iter().filter(|result| is_counted(result)).count();
        let errors = count(&|result| matches!(result, CheckResult::Error(_)));
        let without_store =
            count(&|result| matches!(result, CheckResult::Decided { source, .. } if *source > Source::Cache));
        assert_eq!((errors, without_store), (0, 0), "{name}");
        assert_eq!(count(&|result| matches!(result, CheckResult::Decided { allowed: true, .. })), LIMIT, "{name}");
    }
}
