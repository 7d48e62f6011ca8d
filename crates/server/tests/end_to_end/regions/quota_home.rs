//! Operators give callers a home, which moves their counters.

use serde_json::{Value, json};
use tollgate::control::Rfc3339;
use tollgate::{Clock as _, Span, SystemClock};
use tollgate_testing::{Postgres, until};

use super::{REGIONS, World};
use crate::control::support::{get, send};
use crate::http::{HttpResponse, post};

const RULES: &str = "
domain: fleet
entity: user
rules:
  - {name: calls, key: [user], limit: 100/year, algorithm: fixed_window, region: home}
";
/// A busy machine is not a fault.
const PATIENT: [&str; 4] = ["--store-deadline", "1s", "--region-deadline", "1s"];

impl World {
    fn put_quota(&self, server: usize, quota: &Value) -> HttpResponse {
        let url = self.servers[server].url("admin", "/admin/v1/quotas/ada");
        send("PUT", &url, "application/json", quota.to_string())
    }

    /// The region of the counter, and what is used of it, as a server sees it.
    fn counter(&self, server: usize) -> (String, u64) {
        let shown = get(&self.servers[server].url("admin", "/admin/v1/counters/ada")).json();
        let counter = &shown["counters"][0];
        (counter["region"].as_str().unwrap().to_owned(), counter["used"].as_u64().unwrap())
    }

    fn take(&self, server: usize, units: u64) {
        let body = json!({"attributes": {"user": "ada"}, "cost": units}).to_string();
        let answer = post(&self.servers[server].url("http", "/v1/ratelimit/check"), &body);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

#[test]
fn the_home_of_a_quota_moves_its_counters_in_all_regions() {
    let database = Postgres::database();
    let args = [&["--control", database.url()][..], &PATIENT].concat();
    let world = World::start(RULES, 1, &args);
    let refused = world.put_quota(0, &json!({"home": "atlantis"}));
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(refused.body.contains("the regions are eu-west, us-east, us-west"), "{refused:?}");

    // One that it does not have anyway.
    let derived = world.counter(0).0;
    let others: Vec<&str> = REGIONS.into_iter().filter(|name| *name != derived).collect();
    let moved = world.put_quota(0, &json!({"home": others[0]}));
    let expected = json!([{"from": derived, "to": others[0]}]);
    assert_eq!((moved.status, &moved.json()["counters_begin_anew"]), (200, &expected), "{moved:?}");
    for server in 0..REGIONS.len() {
        until("the home is known", || world.counter(server).0 == others[0]);
        until("the home is reached", || {
            world.take(server, 1);
            let (_, used) = world.counter(server);
            used > 0
        });
    }
    let used = world.counter(0).1;
    assert!(used >= 3 && (1..3).all(|server| world.counter(server).1 == used), "all count in one region");

    // Later, by itself.
    let begins = SystemClock::default().now().after(Span::from_secs(2));
    let scheduled = world.put_quota(1, &json!({"home": others[1], "effective_at": Rfc3339(begins)}));
    let expected = json!([{"from": others[0], "to": others[1], "at": Rfc3339(begins)}]);
    assert_eq!((scheduled.status, &scheduled.json()["counters_begin_anew"]), (200, &expected), "{scheduled:?}");
    for server in 0..REGIONS.len() {
        until("the counter begins anew", || world.counter(server) == (others[1].to_owned(), 0));
    }
    let audit = get(&world.servers[2].url("admin", "/admin/v1/audit?kind=counter")).json();
    let actions: Vec<&Value> = audit["items"].as_array().unwrap().iter().map(|entry| &entry["action"]).collect();
    assert_eq!(actions, ["counter.move", "counter.move"], "{audit}");
}
