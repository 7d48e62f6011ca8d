//! What one server, or a few, answer: classes, modes, releases, expiry, servers that fall silent, and bounds.

use std::collections::HashSet;

use tollgate_core::{Ask, ClaimId, Mode, Once, Reading, Scope, Source, Span, Wait};
use tollgate_store::summed::report::OtherReports;
use tollgate_store::summed::{IDLE_AFTER, MAX_COUNTERS, MAX_NOTES, MAX_NOTES_OF_REPORT, STALE_AFTER};
use tollgate_store::{ManualClock, Store as _};

use crate::summed::world::{HOLD, Rule, START, Server, claim, digest, exchange, new_id, one, passes, server, settle};

const CRITICAL: usize = 0;
const OTHER: usize = 1;

/// Servers that know each other's counts.
fn fleet(clock: &ManualClock, rule: &Rule, count: usize) -> Vec<Server> {
    let servers: Vec<Server> = (0..count).map(|_| server(clock)).collect();
    for server in &servers {
        server.set_servers(count as u64);
        one(server, new_id(), rule.peek(CRITICAL));
    }
    exchange(&servers, &[]);
    servers
}

fn take(server: &Server, rule: &Rule, class: usize) -> Option<ClaimId> {
    let id = new_id();
    passes(server, &claim(id, [rule.take(class)])).then_some(id)
}

fn left(server: &Server, rule: &Rule) -> (u64, Source) {
    let reading = one(server, new_id(), rule.peek(CRITICAL));
    (reading.remaining, reading.source)
}

fn later(clock: &ManualClock, span: Span) {
    use tollgate_store::Clock as _;
    clock.set(clock.now().after(span));
}

#[test]
fn classes_share_a_counter_and_critical_requests_have_a_reserve() {
    let (clock, rule) = (ManualClock::at(START), Rule::new("fleet", [5, 3]));
    let servers = fleet(&clock, &rule, 2);
    let ids: Vec<_> = (0..3).map(|at| take(&servers[at % 2], &rule, OTHER).unwrap()).collect();
    exchange(&servers, &[]);
    let refused = one(&servers[0], new_id(), rule.take(OTHER));
    assert_eq!((refused.admits, refused.remaining, refused.source), (false, 0, Source::Summed));
    assert_eq!(left(&servers[1], &rule), (2, Source::Summed));
    assert!(take(&servers[0], &rule, CRITICAL).is_some());
    exchange(&servers, &[]);
    assert!(take(&servers[1], &rule, CRITICAL).is_some());
    exchange(&servers, &[]);
    assert!(servers.iter().all(|server| take(server, &rule, CRITICAL).is_none()));
    for (id, at) in ids.into_iter().zip([0, 1, 0]) {
        assert_eq!(one(&servers[at], id, rule.back()).source, Source::Summed);
    }
    exchange(&servers, &[]);
    assert!(take(&servers[1], &rule, OTHER).is_some());
}

#[test]
fn a_refusal_says_when_own_requests_make_room_or_soon() {
    let (clock, rule) = (ManualClock::at(START), Rule::new("fleet", [2, 2]));
    let servers = fleet(&clock, &rule, 2);
    take(&servers[0], &rule, CRITICAL).unwrap();
    take(&servers[0], &rule, CRITICAL).unwrap();
    exchange(&servers, &[]);
    later(&clock, Span::from_micros(100_000));
    let own = one(&servers[0], new_id(), rule.take(CRITICAL));
    assert_eq!(own.wait, Wait::For(Span::from_micros(HOLD.as_micros() - 100_000)));
    let others = one(&servers[1], new_id(), rule.take(CRITICAL));
    assert_eq!(others.wait, Wait::For(Reading::RETRY_AFTER));
    let none = Rule::new("none", [0, 0]);
    assert_eq!(one(&servers[1], new_id(), none.take(CRITICAL)).wait, Wait::Forever);
}

#[test]
fn shadow_takes_nothing_past_the_amount_and_soft_does() {
    let (clock, rule) = (ManualClock::at(START), Rule::new("fleet", [1, 1]));
    let servers = fleet(&clock, &rule, 2);
    take(&servers[0], &rule, CRITICAL).unwrap();
    exchange(&servers, &[]);
    for (mode, taken) in [(Mode::Shadow, 0), (Mode::Soft, 1)] {
        let charge = rule.asks(CRITICAL, Ask::Exactly, 1, mode);
        let settlement = settle(&servers[1], &claim(new_id(), [charge]));
        assert_eq!((settlement.readings[0].admits, settlement.readings[0].taken), (false, taken));
    }
    assert_eq!(servers[1].status().counters[0].here, 1);
}

#[test]
fn a_request_without_a_release_ends_with_its_hold() {
    let (clock, rule) = (ManualClock::at(START), Rule::new("fleet", [1, 1]));
    let servers = fleet(&clock, &rule, 2);
    take(&servers[0], &rule, CRITICAL).unwrap();
    exchange(&servers, &[]);
    later(&clock, Span::from_micros(HOLD.as_micros() - 1));
    exchange(&servers, &[]);
    assert_eq!(left(&servers[1], &rule).0, 0);
    later(&clock, Span::from_micros(1));
    exchange(&servers, &[]);
    assert_eq!(left(&servers[1], &rule).0, 1);
}

#[test]
fn a_release_on_another_server_reaches_the_one_with_the_hold() {
    let (clock, rule) = (ManualClock::at(START), Rule::new("fleet", [2, 2]));
    let servers = fleet(&clock, &rule, 3);
    let id = take(&servers[0], &rule, CRITICAL).unwrap();
    take(&servers[0], &rule, CRITICAL).unwrap();
    for _ in 0..2 {
        // It is harmless if it comes twice.
        let released = one(&servers[2], id, rule.back());
        assert_eq!((released.admits, released.taken, released.source), (true, 0, Source::Assumed));
        exchange(&servers, &[]);
        assert_eq!(servers[0].status().counters[0].here, 1);
    }
    exchange(&servers, &[]);
    assert_eq!(left(&servers[1], &rule), (1, Source::Summed));
    // A caller that chose the id may have repeated its claim on another server.
    let id = ClaimId(7);
    assert!(servers[..2].iter().all(|server| passes(server, &claim(id, [rule.asks(0, Ask::Exactly, 1, Mode::Soft)]))));
    assert_eq!(one(&servers[0], id, rule.back()).taken, 1);
    exchange(&servers, &[]);
    let here = |server: &Server| server.status().counters[0].here;
    assert_eq!(servers.iter().map(here).collect::<Vec<_>>(), [1, 0, 0]);
}

#[test]
fn a_renewal_extends_the_hold_wherever_it_is() {
    let (clock, rule) = (ManualClock::at(START), Rule::new("fleet", [2, 2]));
    let servers = fleet(&clock, &rule, 2);
    let ids = [take(&servers[0], &rule, CRITICAL).unwrap(), take(&servers[0], &rule, CRITICAL).unwrap()];
    let records = Scope::for_records("d", "receipt", tollgate_core::key::Home::Own);
    let renew = |server: &Server, id| {
        let key = tollgate_core::Key::new(&records, Default::default());
        let once = Once { key, body: 1, terms: 1, keep: Span::ZERO };
        settle(server, &tollgate_core::Claim { once: Some(once), ..claim(id, [rule.take(CRITICAL)]) }).readings[0]
    };
    later(&clock, Span::from_secs(40));
    let (own, other) = (renew(&servers[0], ids[0]), renew(&servers[1], ids[1]));
    assert_eq!((own.admits, own.taken, own.source), (true, 1, Source::Local));
    assert_eq!((other.admits, other.taken, other.source), (true, 0, Source::Assumed));
    exchange(&servers, &[]);
    later(&clock, Span::from_secs(40));
    exchange(&servers, &[]);
    assert_eq!(servers[0].status().counters[0].here, 2);
    assert_eq!(servers[1].status().counters[0].here, 0);
}

#[test]
fn a_reset_is_for_all_servers_and_not_carried_out_without_them() {
    let (clock, rule) = (ManualClock::at(START), Rule::new("fleet", [4, 4]));
    let servers = fleet(&clock, &rule, 2);
    assert!(servers.iter().all(|server| take(server, &rule, CRITICAL).is_some()));
    let reset = || one(&servers[0], new_id(), rule.asks(CRITICAL, Ask::Reset, 0, Mode::Enforce));
    later(&clock, STALE_AFTER);
    assert_eq!((reset().admits, servers[0].status().counters[0].here), (false, 1));
    exchange(&servers, &[]);
    let cleared = reset();
    assert_eq!((cleared.admits, cleared.taken, cleared.source), (true, 1, Source::Summed));
    exchange(&servers, &[]);
    exchange(&servers, &[]);
    assert_eq!((left(&servers[0], &rule).0, left(&servers[1], &rule).0), (4, 4));
}

#[test]
fn without_answers_each_server_enforces_its_share() {
    let (clock, rule) = (ManualClock::at(START), Rule::new("fleet", [10, 7]));
    let servers = fleet(&clock, &rule, 3);
    for _ in 0..6 {
        take(&servers[0], &rule, CRITICAL).unwrap();
    }
    exchange(&servers, &[]);
    later(&clock, Span::from_micros(STALE_AFTER.as_micros() - 1));
    assert_eq!(left(&servers[1], &rule), (4, Source::Summed));
    assert!(!servers[1].status().is_stale);
    later(&clock, Span::from_micros(1));
    assert!(servers.iter().all(|server| server.status().is_stale));
    // It has more than its share, and admits nothing.
    assert!(take(&servers[0], &rule, CRITICAL).is_none());
    let admitted = |class| (0..20).filter(|_| take(&servers[1], &rule, class).is_some()).count();
    assert_eq!((admitted(OTHER), admitted(CRITICAL)), (3, 1));
    assert_eq!(left(&servers[1], &rule), (0, Source::Local));
    exchange(&servers, &[]);
    assert_eq!(left(&servers[2], &rule), (0, Source::Summed));
    // A server that falls silent is forgotten by the others.
    exchange(&servers, &[0]);
    assert_eq!(left(&servers[2], &rule), (6, Source::Summed));
}

#[test]
fn a_new_counter_is_shared_out_until_its_sum_is_known() {
    let (clock, rule, new) = (ManualClock::at(START), Rule::new("old", [9, 9]), Rule::new("new", [9, 9]));
    let servers = fleet(&clock, &rule, 3);
    let admitted = (0..20).filter(|_| take(&servers[0], &new, CRITICAL).is_some()).count();
    assert_eq!(admitted, 3);
    exchange(&servers, &[]);
    assert_eq!(left(&servers[0], &new), (6, Source::Summed));
}

#[test]
fn answers_that_come_late_change_nothing() {
    let (clock, rule) = (ManualClock::at(START), Rule::new("fleet", [9, 9]));
    let servers = fleet(&clock, &rule, 2);
    let (_, old) = servers[0].report(digest).unwrap();
    later(&clock, Span::from_micros(1_000));
    take(&servers[1], &rule, CRITICAL).unwrap();
    exchange(&servers, &[]);
    servers[0].receive(old, &OtherReports::default());
    assert_eq!(left(&servers[0], &rule).0, 8);
}

#[test]
fn a_claim_is_all_or_nothing_with_the_limits_of_the_store() {
    let (clock, rule, stored) = (ManualClock::at(START), Rule::new("fleet", [2, 2]), Rule::stored(2));
    let servers = fleet(&clock, &rule, 1);
    let server = &servers[0];
    let both = || claim(new_id(), [stored.take(0), rule.take(0)]);
    assert!(passes(server, &both()));
    one(server, new_id(), stored.take(0));
    let refused = settle(server, &both());
    let readings: Vec<_> = refused.readings.iter().map(|it| (it.admits, it.taken, it.remaining)).collect();
    assert_eq!(readings, [(false, 0, 0), (true, 0, 1)]);
    assert_eq!(server.status().counters[0].here, 1);
    // Refused here, the store is not called; but facts are recorded.
    take(server, &rule, CRITICAL).unwrap();
    let empty = Rule::stored(5);
    let refused = settle(server, &claim(new_id(), [empty.take(0), rule.take(0)]));
    assert_eq!((refused.readings[0].source, refused.readings[1].admits), (Source::Summed, false));
    let spent = empty.asks(0, Ask::Regardless, 1, Mode::Enforce);
    let refused = settle(server, &claim(new_id(), [spent, empty.take(0), rule.take(0)]));
    let readings: Vec<_> = refused.readings.iter().map(|it| (it.admits, it.taken)).collect();
    assert_eq!(readings, [(true, 1), (true, 0), (false, 0)]);
}

#[test]
fn too_many_checks_at_once_are_still_counted() {
    let (clock, rule, stored) = (ManualClock::at(START), Rule::new("fleet", [1, 1]), Rule::stored(1));
    let servers = fleet(&clock, &rule, 1);
    let mut settlement = Default::default();
    servers[0].assume(&claim(new_id(), [stored.take(0), rule.take(0)]), Source::Shed, &mut settlement);
    let sources: Vec<_> = settlement.readings.iter().map(|reading| reading.source).collect();
    assert_eq!(sources, [Source::Shed, Source::Summed]);
    assert!(take(&servers[0], &rule, CRITICAL).is_none());
}

#[test]
fn a_caller_that_goes_away_leaves_nothing_behind() {
    let (clock, rule, stored) = (ManualClock::at(START), Rule::new("fleet", [1, 1]), Rule::stored(1));
    let servers = fleet(&clock, &rule, 1);
    let both = claim(new_id(), [stored.take(0), rule.take(0)]);
    let step = servers[0].begin(&both, &mut Default::default());
    assert_eq!(servers[0].status().counters[0].here, 1);
    drop(step);
    assert_eq!(servers[0].status().counters[0].here, 0);
}

#[test]
fn counters_and_notes_are_bounded_and_idle_counters_are_forgotten() {
    let (clock, rule) = (ManualClock::at(START), Rule::new("keys", [2, 2]));
    let one_of_many = server(&clock);
    let values: Vec<String> = (0..MAX_COUNTERS + 3).map(|number| number.to_string()).collect();
    let mut ids = Vec::new();
    for value in &values {
        ids.push(new_id());
        assert!(one(&one_of_many, ids[ids.len() - 1], rule.of_value(value, Ask::Exactly)).admits);
    }
    let status = one_of_many.status();
    assert_eq!((status.counters.len(), status.without_place), (MAX_COUNTERS, 3));
    let back = Ask::Return { taken_at: START };
    assert!(values.iter().zip(ids).all(|(value, id)| one(&one_of_many, id, rule.of_value(value, back)).taken == 1));
    for number in 0..MAX_NOTES + 5 {
        one(&one_of_many, ClaimId(number as u128), rule.of_value("0", back));
    }
    assert_eq!(one_of_many.status().dropped_notes, 5);
    let (report, sent) = one_of_many.report(digest).unwrap();
    assert_eq!((report.counts.len(), report.notes.len()), (0, MAX_NOTES_OF_REPORT));
    let distinct: HashSet<_> = report.notes.iter().map(|note| note.encode()).collect();
    assert_eq!(distinct.len(), MAX_NOTES_OF_REPORT);
    one_of_many.receive(sent, &OtherReports::default());
    // Those of a report without an answer are published again.
    let (again, _) = one_of_many.report(digest).unwrap();
    one_of_many.put_back(again.notes.clone());
    assert_eq!(one_of_many.report(digest).unwrap().0.notes, again.notes);
    later(&clock, IDLE_AFTER);
    while one_of_many.report(digest).is_some() {}
    assert_eq!(one_of_many.status().counters.len(), 0);
}
