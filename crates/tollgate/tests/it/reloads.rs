//! Replays after a change of rules: what was decided or settled once stays so.

use tollgate::{
    CounterChange, Decision, Descriptor, Limiter, LoadOptions, ManualClock, MemoryConfig, MemoryStore, ReceiptWish,
    Replay, Request, RequestOutcome, Ruleset, Span, Timestamp, Wait, poll_once,
};
use tollgate_rules::{RuleFile as File, load_sources};

const START: Timestamp = Timestamp::from_secs(1_767_225_600);

const FIRST: &str = "
domain: d
entity: key
rules:
  - {name: day, key: [key], limit: 10/day, algorithm: fixed_window, refund: on_failure}
  - {name: hour, key: [key], limit: 3/hour, algorithm: fixed_window}
  - {name: in-flight, key: [key], limit: 5 concurrent, hold: 10m}
";

struct World {
    clock: ManualClock,
    limiter: Limiter<MemoryStore<ManualClock>>,
}

fn rules(text: &str) -> Ruleset {
    let file = File { name: "rules.yaml".to_owned(), text: text.to_owned() };
    Ruleset::compile(load_sources(&[file], &LoadOptions::default()).unwrap().domains, 1).unwrap()
}

impl World {
    fn new() -> World {
        let clock = ManualClock::at(START);
        World { limiter: Limiter::new(rules(FIRST), MemoryConfig::default().build_with(clock.clone())), clock }
    }

    fn ask(&self, once: Option<&str>, cost: u64) -> Decision {
        let (entries, receipt) = ([("key", "k")], ReceiptWish::Always);
        let descriptors = [Descriptor::new(&entries)];
        let request = Request { descriptors: &descriptors, once, cost, receipt, ..Request::default() };
        let decision = poll_once(self.limiter.check_request(&request)).unwrap().unwrap();
        let mut session = self.limiter.session();
        if once.is_some() {
            // With a session and without.
            let again = poll_once(session.check_request(&request)).unwrap().unwrap();
            assert_eq!((again.allowed(), again.wait()), (decision.allowed(), decision.wait()));
            assert_eq!(remaining(again), remaining(&decision));
            assert_eq!(again.receipt(), decision.receipt());
        }
        decision
    }

    /// How many units each rule has left.
    fn left(&self) -> Vec<(String, u64)> {
        remaining(&self.ask(None, 0))
    }
}

/// Each rule's name and remaining units.
fn remaining(decision: &Decision) -> Vec<(String, u64)> {
    decision.outcomes().map(|one| (one.rule.name().to_owned(), one.reading.remaining)).collect()
}

#[test]
fn an_answer_by_other_rules_is_its_verdict_alone() {
    // Another amount, another mode, one more, one fewer, another order, none that limits, another period.
    for other in [
        FIRST.replace("3/hour", "2/hour"),
        FIRST.replace("3/hour,", "3/hour, mode: shadow,"),
        format!("{FIRST}  - {{name: minute, key: [key], limit: 9/minute}}\n"),
        FIRST.replace("  - {name: hour, key: [key], limit: 3/hour, algorithm: fixed_window}\n", ""),
        "domain: d\nentity: key\nrules:\n  - {name: hour, key: [key], limit: 3/hour, algorithm: fixed_window}
  - {name: day, key: [key], limit: 10/day, algorithm: fixed_window}\n"
            .to_owned(),
        FIRST.replace("10/day", "10/week"),
        FIRST.replace("10/day", "unlimited").replace(", algorithm: fixed_window, refund: on_failure", ""),
    ] {
        let world = World::new();
        let first = world.ask(Some("passes"), 1);
        assert!(first.allowed() && first.replay() == Replay::First && first.receipt().is_some());
        let refused = world.ask(Some("waits"), 3);
        assert_eq!((refused.allowed(), refused.wait()), (false, Wait::For(Span::from_secs(3_600))));
        world.limiter.install(rules(&other));
        world.clock.set(START.after(Span::from_secs(60)));
        let left = world.left();

        let passed = world.ask(Some("passes"), 1);
        assert!(matches!(passed.replay(), Replay::Again { passed: true, .. }), "{other}");
        assert!(passed.allowed() && passed.wait() == Wait::None, "{other}");
        assert_eq!((remaining(&passed), passed.unlimited().count()), (vec![], 0), "{other}");
        assert!(passed.tightest().is_none() && passed.receipt().is_none(), "{other}");
        let again = world.ask(Some("waits"), 3);
        assert_eq!((again.allowed(), again.wait()), (false, refused.wait()), "{other}");
        assert!(again.denied_by().is_none() && remaining(&again).is_empty(), "{other}");
        assert_eq!(world.left(), left, "nothing was taken: {other}");

        let conflict = world.ask(Some("passes"), 2);
        assert_eq!(conflict.replay(), Replay::Conflict, "{other}");
        // The same rules again are the same terms.
        world.limiter.install(rules(FIRST));
        let known = world.ask(Some("passes"), 1);
        assert_eq!((remaining(&known), known.receipt()), (remaining(&first), first.receipt()), "{other}");
    }
}

#[test]
fn rules_that_only_count_elsewhere_are_the_same_terms() {
    let world = World::new();
    let first = world.ask(Some("name"), 1);
    world.limiter.install(rules(&format!("{FIRST}  - {{name: others, key: [other], limit: 1/day}}\n")));
    let again = world.ask(Some("name"), 1);
    assert_eq!((remaining(&again), again.receipt()), (remaining(&first), first.receipt()));
}

#[test]
fn a_receipt_that_was_settled_by_other_rules_tells_none() {
    let world = World::new();
    let decision = world.ask(None, 1);
    let receipt = decision.receipt().unwrap();
    let settle =
        || poll_once(world.limiter.settle_receipt(receipt, RequestOutcome::Failed, None, None)).unwrap().unwrap();
    let changes = [CounterChange::Returned(1), CounterChange::Released];
    assert_eq!(settle().rules().map(|one| one.change).collect::<Vec<_>>(), changes);
    world.limiter.install(rules(&FIRST.replace("in-flight", "renamed")));
    let again = settle();
    assert!(again.is_replay() && again.rules().next().is_none(), "{again:?}");
    world.limiter.install(rules(FIRST));
    assert_eq!(settle().rules().map(|one| one.change).collect::<Vec<_>>(), changes);
    assert!(settle().is_replay());
}
