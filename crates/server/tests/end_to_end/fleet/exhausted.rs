//! A caller that has used up its limit gets nothing more when Redis is killed.

use tollgate_core::Source;
use tollgate_testing::Redis;

use crate::fleet::load::{Check, CheckResult, check_once};
use crate::fleet::servers::Fleet;
use crate::new_server;

const RULES: &str = "
domain: fleet
entity: user
rules:
  - {name: small, key: [user], match: {kind: small}, limit: 30/year, algorithm: fixed_window}
  - {name: log, key: [user], match: {kind: log}, limit: 30/day, algorithm: sliding_log}
  - {name: half, key: [user], match: {kind: half}, limit: 30/year, algorithm: fixed_window}
";

/// How many of these checks pass, and that all others are refused by this source.
fn passed(address: &str, kind: &'static str, checks: usize, source: Source) -> usize {
    let check = Check { user: "u".to_owned(), kind };
    let outcome = |_| match check_once(address, &check) {
        CheckResult::Decided { allowed, source: from } => {
            assert!(from == source || from == Source::Cache, "{kind}: {from:?}");
            allowed
        }
        other => panic!("{kind}: {other:?}"),
    };
    (0..checks).map(outcome).filter(|allowed| *allowed).count()
}

#[test]
fn a_limit_that_is_used_up_stays_used_up_when_redis_is_killed() {
    let mut redis = Redis::start();
    // A deadline that a busy machine does not exceed.
    let args = ["--store", &redis.url(), "--store-deadline", "1s"];
    let servers = (0..2).map(|_| new_server().rules(RULES).listen(&["http"]).args(&args).start()).collect();
    let fleet = Fleet::from_servers(servers, &Check { user: "warm-up".to_owned(), kind: "small" });
    let addresses = fleet.addresses();
    for kind in ["small", "log"] {
        let before: Vec<usize> = addresses.iter().map(|one| passed(one, kind, 31, Source::Store)).collect();
        assert_eq!(before, [30, 0], "{kind}");
    }
    assert_eq!(passed(&addresses[0], "half", 20, Source::Store), 20);
    redis.kill();
    for kind in ["small", "log"] {
        let after: Vec<usize> = addresses.iter().map(|one| passed(one, kind, 30, Source::Local)).collect();
        assert_eq!(after, [0, 0], "{kind}");
    }
    // The server that has seen twenty of thirty gives out its share of the other ten; whether it has already heard of the
    // other server decides how large that is.
    let rest = passed(&addresses[0], "half", 30, Source::Local);
    assert!(rest == 5 || rest == 10, "{rest}");
}
