//! Blocks reach all regions while the store of record is unavailable.

use serde_json::{Value, json};
use tollgate_testing::{Postgres, eventually, until};

use super::World;
use crate::control::support::{get, send};
use crate::http::{HttpResponse, post};

const RULES: &str = "
domain: fleet
entity: user
rules:
  - {name: calls, key: [user], limit: 1000/year}
";

/// The status of a check of this caller.
fn check(world: &World, server: usize, user: &str) -> u16 {
    let body = json!({"attributes": {"user": user}}).to_string();
    post(&world.servers[server].url("http", "/v1/ratelimit/check"), &body).status
}

fn block(world: &World, server: usize, user: &str) -> HttpResponse {
    let url = world.servers[server].url("admin", &format!("/admin/v1/blocks/{user}"));
    send("PUT", &url, "application/json", json!({"reason": "stolen"}).to_string())
}

#[test]
fn a_block_reaches_all_regions_without_the_database_and_names_those_that_it_does_not_reach() {
    let mut postgres = Postgres::start();
    let control = postgres.url();
    let mut world = World::start(RULES, 1, &["--control", &control, "--store-deadline", "1s"]);
    let (first, second, cut) = (0, 1, 2);
    postgres.kill();
    until("all regions can be reached", || {
        let response = block(&world, first, "thief");
        assert_eq!(response.status, 202, "{response:?}");
        response.json()["pending"]["in_force"] == "fleet"
    });
    for server in [first, second, cut] {
        until("the block is in force", || check(&world, server, "thief") == 403);
    }

    world.relays[cut].stall();
    let response = block(&world, first, "robber");
    let pending = &response.json()["pending"];
    assert_eq!((response.status, &pending["in_force"]), (202, &json!("regions")), "{response:?}");
    assert_eq!(pending["missed_regions"], json!(["us-west"]));
    assert!(pending["detail"].as_str().unwrap().contains("us-west ("), "{pending}");
    until("the block is in force", || check(&world, second, "robber") == 403);
    until("its servers still read the other regions", || check(&world, cut, "robber") == 403);

    // Nor do they reach the others.
    world.relays.iter().for_each(|relay| relay.stall());
    let response = block(&world, first, "burglar");
    let pending = &response.json()["pending"];
    assert_eq!((response.status, &pending["missed_regions"]), (202, &json!(["us-east", "us-west"])), "{response:?}");
    assert_eq!(check(&world, first, "burglar"), 403);
    assert_eq!((check(&world, second, "burglar"), check(&world, cut, "burglar")), (200, 200));
    world.relays.iter_mut().for_each(|relay| relay.pass());
    for server in [second, cut] {
        until("the region hears of it when it can be reached", || check(&world, server, "burglar") == 403);
    }

    postgres.restart();
    let waiting = |server: usize| -> Vec<Value> {
        let page = get(&world.servers[server].url("admin", "/admin/v1/pending")).json();
        page["items"].as_array().unwrap().clone()
    };
    for server in [first, second, cut] {
        let written = eventually(|| waiting(server).is_empty().then_some(()));
        assert!(written.is_some(), "{:?}\n{}", waiting(server), world.servers[server].log());
        assert_eq!((check(&world, server, "thief"), check(&world, server, "robber")), (403, 403));
    }
    let robber = "SELECT count(*) FROM audit WHERE action = 'block.put' AND name = 'robber'";
    assert_eq!(postgres.query(robber).trim(), "1");
}
