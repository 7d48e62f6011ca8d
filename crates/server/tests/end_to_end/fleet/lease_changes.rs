//! Operators switch leases off and on and purge keys, on a real Redis and under load.

use serde_json::{Value, json};
use tollgate_core::Source;
use tollgate_store::{Clock as _, SystemClock};
use tollgate_testing::{Redis, Server, eventually};

use crate::fleet::leases::{RULES, admitted, check, remaining};
use crate::fleet::load::{Check, CheckResult, Load, Plan, check_concurrently, check_once};
use crate::fleet::servers::Fleet;
use crate::new_server;

/// The limit of the rule `slow`.
const SLOW: u64 = 20_000;

/// A server with an admin listener.
struct Subject {
    leases: String,
    fleet: Fleet,
}

impl Subject {
    fn start(redis: &Redis) -> Subject {
        let store = ["--store", &redis.url(), "--store-deadline", "1s"];
        let server: Server = new_server().rules(RULES).listen(&["http", "admin"]).args(&store).start();
        let leases = server.url("admin", "/admin/v1/leases");
        Subject { leases, fleet: Fleet::from_servers(vec![server], &check("warm-up", "log")) }
    }

    fn held(&self) -> u64 {
        crate::http::get(&self.leases).json()["units_held"].as_u64().unwrap()
    }

    #[track_caller]
    fn switch(&self, enabled: bool) -> Value {
        let request = crate::http::new_agent().put(&self.leases).header("Content-Type", "application/json");
        let body = json!({"enabled": enabled, "reason": "a test"}).to_string();
        let answer = crate::http::read(request.send(&body)).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    #[track_caller]
    fn purge(&self, selection: &Value) -> Value {
        let url = format!("{}/purge", self.leases);
        let request = crate::http::new_agent().post(&url).header("Content-Type", "application/json");
        let answer = crate::http::read(request.send(&selection.to_string())).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    fn source(&self, of: &Check) -> Source {
        match check_once(&self.fleet.addresses()[0], of) {
            CheckResult::Decided { source, .. } => source,
            CheckResult::Error(error) => panic!("{error}"),
        }
    }

    /// Sends requests until this server decides them without a call.
    #[track_caller]
    fn lease(&self, of: &Check) {
        let is_leased = || {
            check_concurrently(&self.fleet.addresses(), of, 80);
            (self.source(of) == Source::Lease).then_some(())
        };
        assert!(eventually(is_leased).is_some(), "{of:?} is not leased");
    }
}

#[test]
fn leases_that_are_switched_off_under_load_are_given_back_within_a_second() {
    let redis = Redis::start();
    let subject = Subject::start(&redis);
    let busy = check("busy", "slow");
    let load = Load::start(Plan { servers: subject.fleet.addresses(), checks: vec![busy.clone()], rate: 300 });
    assert!(eventually(|| (subject.held() > 0).then_some(())).is_some(), "the key is leased");
    let (clock, answer) = (SystemClock::default(), subject.switch(false));
    let off_from = clock.now().as_micros();
    assert_eq!((&answer["enabled"], &answer["audited"]), (&json!(false), &json!(true)));
    assert!(eventually(|| (subject.held() == 0).then_some(())).is_some(), "units are held");
    let took = clock.now().as_micros() - off_from;
    assert!(took < 1_000_000, "{took} µs");
    load.wait_for_more(300);
    let samples = load.stop();
    let results: Vec<CheckResult> = samples.iter().map(|sample| sample.result.clone()).collect();
    let errors = results.iter().filter(|result| matches!(result, CheckResult::Error(_))).count();
    let leased_later = samples.iter().filter(|sample| {
        sample.started > off_from && matches!(sample.result, CheckResult::Decided { source: Source::Lease, .. })
    });
    assert_eq!((errors, leased_later.count()), (0, 0));
    assert_eq!(remaining(&redis.url(), &busy), SLOW - admitted(&results) as u64, "exactly what passed is counted");

    assert_eq!(subject.switch(true)["enabled"], true);
    subject.lease(&busy);
}

#[test]
fn redis_decides_the_next_request_of_a_purged_key() {
    let redis = Redis::start();
    let subject = Subject::start(&redis);
    let (ada, bob) = (check("ada", "slow"), check("bob", "slow"));
    // What is idle for a second is no longer leased, which a slow machine may take to get here.
    let purged = eventually(|| {
        subject.lease(&ada);
        subject.lease(&bob);
        let purged = subject.purge(&json!({"key": "ada", "rule": "slow"}));
        let is_leased = purged["units_returned"] != 0 && subject.source(&bob) == Source::Lease;
        is_leased.then_some(purged)
    });
    assert_eq!(purged.expect("the other key is still leased")["keys"], 1);
    assert_eq!(subject.source(&ada), Source::Store);

    // The same for a whole rule, and for everything.
    for selection in [json!({"rule": "slow"}), json!({"all": true})] {
        let purged = eventually(|| {
            subject.lease(&ada);
            (subject.purge(&selection)["units_returned"] != 0).then_some(())
        });
        assert!(purged.is_some(), "{selection}");
        assert_eq!(subject.source(&ada), Source::Store, "{selection}");
    }
    let none = subject.purge(&json!({"key": "nobody"}));
    assert_eq!((&none["keys"], &none["units_returned"]), (&json!(0), &json!(0)));
}

#[test]
fn redis_decides_again_when_remembered_refusals_are_purged() {
    let redis = Redis::start();
    let subject = Subject::start(&redis);
    let eve = check("eve", "off");
    assert_eq!(admitted(&check_concurrently(&subject.fleet.addresses(), &eve, 1_600)), 1_000, "the limit is used up");
    for selection in [json!({"key": "eve"}), json!({"rule": "off"}), json!({"all": true})] {
        // A refusal is remembered for a second; a slow machine may need more than one attempt.
        let refused = || (subject.source(&eve) == Source::Cache).then(|| subject.purge(&selection));
        let purged = eventually(|| refused().filter(|purged| purged["refusals"] != 0));
        assert!(purged.is_some(), "{selection}: no refusal was remembered");
        assert_eq!(subject.source(&eve), Source::Store, "{selection}");
    }
}
