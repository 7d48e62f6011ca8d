//! A limit that all callers share, in a cluster: a caller that is bound to be refused does not take it from the others, not
//! even for a moment.

use tollgate_testing::Cluster;

use crate::fleet::load::Check;
use crate::fleet::servers::Fleet;
use crate::new_server;
use crate::settle::client::{CHECK, CheckClient, runtime};

const RULES: &str = "
domain: fleet
entity: user
rules:
  - {name: mine, key: [user], limit: 200000/hour, algorithm: fixed_window}
  - {name: shared, key: [pool], limit: 1000000/hour, algorithm: fixed_window}
";

/// Each trial has a shared counter of its own.
const TRIALS: usize = 60;

fn body(user: &str, pool: usize, cost: u64) -> String {
    format!(r#"{{"attributes":{{"user":"{user}","pool":"p{pool}"}},"cost":{cost}}}"#)
}

#[test]
fn slow_a_caller_that_asks_for_more_than_its_own_limit_takes_nothing_from_others() {
    let cluster = Cluster::start();
    // A deadline that a busy machine does not exceed.
    let args = ["--store", &cluster.url(), "--store-deadline", "1s"];
    let server = new_server().rules(RULES).listen(&["http"]).args(&args).start();
    let fleet = Fleet::from_servers(vec![server], &Check { user: "warm-up".to_owned(), kind: "none" });
    let address = &fleet.addresses()[0];
    runtime().block_on(async {
        let (mut greedy, mut victim, mut late) =
            (CheckClient::new(address), CheckClient::new(address), CheckClient::new(address));
        for pool in 0..TRIALS {
            let (refused, first) = tokio::join!(
                greedy.send(CHECK, None, body("greedy", pool, 900_000)),
                victim.send(CHECK, None, body(&format!("v{pool}"), pool, 150_000)),
            );
            let second = late.send(CHECK, None, body(&format!("w{pool}"), pool, 150_000)).await;
            let statuses = (refused.status, first.status, second.status);
            assert_eq!(statuses, (429, 200, 200), "pool {pool}: {first:?} {second:?}");
        }
    });
}
