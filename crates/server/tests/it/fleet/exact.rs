//! Two servers, one key: exactly the limit passes, whatever counts it.

use tollgate_core::Source;
use tollgate_testing::Redis;

use crate::fleet::load::{Answer, Ask, hammer};
use crate::fleet::servers::Fleet;
use crate::new_server;

const LIMIT: usize = 100;

/// What the rules are called, and what they say.
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
    // So long that nothing but the counting decides, however busy the machine is.
    let args = ["--store", &redis.url(), "--store-deadline", "1s"];
    let servers = (0..2).map(|_| new_server().rules(&rules()).listen(&["http"]).args(&args).start()).collect();
    let fleet = Fleet::of(servers, &Ask { user: "warm-up".to_owned(), kind: ALGORITHMS[0].0 });
    for (name, _) in ALGORITHMS {
        let answers = hammer(&fleet.addresses(), &Ask { user: "u".to_owned(), kind: name }, 8 * LIMIT);
        let count = |wanted: &dyn Fn(&Answer) -> bool| answers.iter().filter(|answer| wanted(answer)).count();
        let errors = count(&|answer| matches!(answer, Answer::Error(_)));
        let elsewhere = count(&|answer| matches!(answer, Answer::Decided { source, .. } if *source > Source::Cache));
        assert_eq!((errors, elsewhere), (0, 0), "{name}");
        assert_eq!(count(&|answer| matches!(answer, Answer::Decided { allowed: true, .. })), LIMIT, "{name}");
    }
}
