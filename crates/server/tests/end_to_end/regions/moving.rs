//! Shares of regions follow demand, and are never more than the limit together.

use tollgate_testing::{Postgres, eventually, until};

use super::{REGIONS, World};
use crate::control::support::{get, try_get, with_control};

const RULES: &str = "
domain: fleet
entity: user
rules:
  - {name: calls, key: [user], limit: 10000/second, algorithm: fixed_window, region: {split: moving}}
";
const ARGS: [&str; 4] = ["--store-deadline", "1s", "--region-share-interval", "500ms"];

impl World {
    /// The share of a server's region, of 10,000 units.
    fn share(&self, server: usize) -> Option<u64> {
        let shown = try_get(&self.servers[server].url("admin", "/admin/v1/counters/ada"))?.json();
        shown["counters"][0]["limit"]["requests_per_unit"].as_u64()
    }

    /// The shares of all, if they did not change while they were read.
    fn shares(&self) -> Option<Vec<u64>> {
        let read = || (0..REGIONS.len()).map(|server| self.share(server)).collect::<Option<Vec<_>>>();
        let shares = read()?;
        (read()? == shares).then_some(shares)
    }

    /// Sends requests to a server until its region has at least this share, and no region less than 5 %.
    fn ask_until(&self, server: usize, share: u64) {
        let reached = eventually(|| {
            (0..20).for_each(|number| drop(self.check(server, &format!("user {number}"), "calls")));
            let shares = self.shares()?;
            let sum: u64 = shares.iter().sum();
            assert!(sum <= 10_000 && shares.iter().all(|share| *share >= 500), "{shares:?}");
            (shares[server] >= share).then_some(())
        });
        assert!(reached.is_some(), "{:?}\n{}", self.shares(), self.servers[server].log());
    }
}

#[test]
fn shares_follow_traffic_that_moves_and_hold_without_the_database() {
    let mut postgres = Postgres::start();
    let control = postgres.url();
    let args = [&["--control", &*control][..], &ARGS].concat();
    let mut world = World::start(RULES, 1, &args);
    let (first, last) = (0, 2);
    until("all servers know that there are no other shares yet", || world.shares() == Some(vec![3_333; 3]));
    world.ask_until(first, 8_500);
    let audit = get(&world.servers[1].url("admin", "/admin/v1/audit?kind=shares")).json();
    let entry = &audit["items"][0];
    assert_eq!((&entry["action"], &entry["by"]), (&"shares.put".into(), &"tollgate".into()), "{audit}");
    assert!(entry["reason"].as_str().unwrap().starts_with("units a minute: eu-west "), "{entry}");

    world.ask_until(last, 5_000);
    postgres.kill();
    let held = eventually(|| world.shares()).unwrap();
    // A server that starts from its copy does not know what was given out since.
    let server = world.servers.pop().unwrap();
    let own = world.args_of(last);
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    world.servers.push(with_control(server.restart(), &control, &ARGS).args(&own).start());
    let now = eventually(|| world.shares()).unwrap();
    assert_eq!((&now[..last], now[last]), (&held[..last], 500));
    postgres.restart();
    world.ask_until(last, 8_500);
}
