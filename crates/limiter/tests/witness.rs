//! A witness sees every decision, whichever way it was asked for, and nothing else.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails may panic")]

use std::sync::{Arc, Mutex};

use tollgate::{
    Ask, Descriptor, Limiter, ManualClock, MemoryConfig, MemoryStore, Request, Ruleset, Seen, Timestamp, Witness, now,
};

const RULES: &str = "
domain: d
rules:
  - {name: first, key: [k], limit: 2/minute, algorithm: fixed_window}
  - {name: second, key: [k], limit: 5/minute, algorithm: fixed_window}
";

/// Writes down what it sees.
#[derive(Debug, Default)]
struct Notes {
    lines: Mutex<Vec<String>>,
    timed: bool,
}

impl Witness for Notes {
    fn times(&self) -> bool {
        self.timed
    }

    fn saw(&self, seen: &Seen<'_, '_>) {
        let limits: Vec<_> = seen
            .limits()
            .map(|limit| {
                format!("{} {:?} left {}", limit.rule.name(), limit.charge.key.values(), limit.reading.remaining)
            })
            .collect();
        let took = match seen.took {
            None => "",
            Some(took) if took.store.is_some_and(|store| store <= took.whole) => ", timed with the store",
            Some(_) => ", timed",
        };
        let (word, source) = (if seen.verdict.allowed { "passed" } else { "refused" }, seen.verdict.source.name());
        self.lines.lock().unwrap().push(format!("{word} by {source}: {}{took}", limits.join("; ")));
    }
}

fn watched(timed: bool) -> (Limiter<MemoryStore<ManualClock>>, Arc<Notes>) {
    let notes = Arc::new(Notes { timed, ..Notes::default() });
    let store = MemoryConfig::default().build_with(ManualClock::at(Timestamp::from_secs(1_767_225_600)));
    let rules = Ruleset::from_text(RULES, 1).unwrap().0;
    (Limiter::new(rules, store).with_witness(notes.clone()), notes)
}

fn request<'a>(descriptors: &'a [Descriptor<'a>]) -> Request<'a> {
    Request { descriptors, ..Request::default() }
}

#[test]
fn every_way_to_ask_is_seen() {
    let (limiter, notes) = watched(false);
    let descriptors = [Descriptor::new(&[("k", "a")])];
    let request = request(&descriptors);
    now(limiter.check(&request)).unwrap().unwrap();
    limiter.session().check_now(&request).unwrap();
    now(limiter.session().check(&request)).unwrap().unwrap();
    limiter.shed(&request).unwrap();
    let lines = notes.lines.lock().unwrap().clone();
    assert_eq!(
        lines,
        [
            r#"passed by store: first [Text("a")] left 1; second [Text("a")] left 4"#,
            r#"passed by store: first [Text("a")] left 0; second [Text("a")] left 3"#,
            r#"refused by store: first [Text("a")] left 0; second [Text("a")] left 3"#,
            r#"passed by shed: first [Text("a")] left 2; second [Text("a")] left 5"#,
        ]
    );
}

#[test]
fn only_those_who_ask_are_told_the_time() {
    let (limiter, notes) = watched(true);
    let descriptors = [Descriptor::new(&[("k", "a")])];
    now(limiter.check(&request(&descriptors))).unwrap().unwrap();
    let nothing = [Descriptor::new(&[("other", "a")])];
    now(limiter.check(&request(&nothing))).unwrap().unwrap();
    let lines = notes.lines.lock().unwrap().clone();
    assert!(lines[0].ends_with(", timed with the store"), "{lines:?}");
    assert_eq!(lines[1], "passed by store: , timed", "the store was not asked");
}

#[test]
fn what_is_not_decided_is_not_seen() {
    let (limiter, notes) = watched(false);
    let descriptors = [Descriptor::new(&[("k", "a")])];
    let unknown = Request { domain: Some("elsewhere"), ..request(&descriptors) };
    assert!(now(limiter.check(&unknown)).unwrap().is_err());
    let once = Request { once: Some("one"), ..request(&descriptors) };
    now(limiter.check(&once)).unwrap().unwrap();
    // Another request under the same name: nothing is decided.
    now(limiter.check(&Request { cost: 2, ..once })).unwrap().unwrap();
    now(limiter.explain(&request(&descriptors))).unwrap().unwrap();
    assert_eq!(notes.lines.lock().unwrap().len(), 1);
    // The same one again is: it is answered as it was.
    now(limiter.check(&once)).unwrap().unwrap();
    now(limiter.check(&Request { ask: Ask::Regardless, ..request(&descriptors) })).unwrap().unwrap();
    assert_eq!(notes.lines.lock().unwrap().len(), 3);
}
