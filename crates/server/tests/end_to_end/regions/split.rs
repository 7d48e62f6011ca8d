//! Each region has a share of a limit.

use tollgate_testing::Redis;

use super::REGIONS;
use crate::fleet::load::{Check, CheckResult, check_once};
use crate::new_server;

const RULES: &str = "
domain: fleet
entity: user
rules:
  - {name: r, key: [user], match: {kind: split}, limit: 100/year, algorithm: fixed_window, region: split}
";

#[test]
fn shares_are_admitted_and_the_whole_is_the_policy() {
    let redis = Redis::start();
    let mut admitted = Vec::new();
    for here in REGIONS {
        // `split` needs to know the other regions and never calls them.
        let regions = REGIONS.map(|name| format!("{name}=redis://127.0.0.1:1")).join(",");
        let prefix = format!("{here}:");
        let args = ["--store", &redis.url(), "--store-prefix", &prefix, "--region", here, "--regions", &regions];
        let server = new_server().rules(RULES).listen(&["http"]).args(&args).args(&["--store-deadline", "1s"]).start();
        let check = Check { user: "ada".to_owned(), kind: "split" };
        let passes =
            || matches!(check_once(server.address("http"), &check), CheckResult::Decided { allowed: true, .. });
        admitted.push((0..40).filter(|_| passes()).count());
    }
    assert_eq!(admitted, [33, 33, 33]);
}

#[test]
fn a_server_without_a_region_refuses_rules_that_need_one() {
    let (status, refused) = new_server().rules(RULES).listen(&["http"]).run_to_exit();
    assert!(
        status != Some(0) && refused.contains("this rule depends on regions, and no `region` is set here"),
        "{refused}"
    );
}
