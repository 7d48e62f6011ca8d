//! What servers tell each other, without a database between them.

use serde_json::json;
use tollgate::{Descriptor, Limiter, ManualClock, MemoryConfig, Request, Ruleset};
use tollgate_events::EventType;
use tollgate_observe::{KeyFilter, RankBy};

use super::*;

const RULES: &str = "
domain: api
entity: user
rules:
  - {name: per-user, key: [user], limit: 10/minute, algorithm: fixed_window}
signals:
  - {name: users-per-address, distinct: user, per: [remote_address], threshold: 40}
";
const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

/// A server that saw these callers ask so often.
fn server(requests: &[(&str, usize)]) -> Arc<Observability> {
    let (observability, clock) = (Observability::for_tests(), ManualClock::at(NOW));
    let store = MemoryConfig::default().build_with(clock.clone());
    let limiter = Limiter::new(Ruleset::from_text(RULES, 1).unwrap().0, store);
    let limiter = limiter.with_clock(clock).with_witness(observability.observer.clone());
    for (user, times) in requests {
        let entries = [("user", *user)];
        let request = Request { descriptors: &[Descriptor::new(&entries)], ..Request::default() };
        (0..*times).for_each(|_| drop(tollgate::poll_once(limiter.check_request(&request))));
    }
    observability
}

fn rules(generation: u64) -> Ruleset {
    Ruleset::from_text(RULES, generation).unwrap().0
}

impl Observability {
    /// As if another server had reported this position, and had ended.
    pub(crate) fn hear_audit_position(&self, position: AuditPosition, rules: &Ruleset, now: Timestamp) {
        let other = Observability::for_tests();
        other.report_audit_position(position);
        let document = other.report(rules, (None, Span::ZERO), now);
        self.fleet.update(vec![ServerRow { id: other.fleet.id.clone(), at: now, age: SERVER_TTL, document }], now);
    }
}

fn row(observability: &Observability, seconds_ago: u64) -> ServerRow {
    let age = Span::from_secs(seconds_ago);
    ServerRow {
        id: observability.fleet.id.clone(),
        at: NOW.before(age),
        age,
        document: observability.report(&rules(7), (None, Span::ZERO), NOW),
    }
}

/// `key decisions refusals thousandths`, and how many servers say so.
fn top(observability: &Observability, now: Timestamp) -> (Vec<String>, usize) {
    let (top, servers) = observability.top(RankBy::Decisions, Window::FiveMinutes, KeyFilter::default(), 10, now);
    assert_eq!(top.error, 0);
    let keys = top.keys.iter().map(|key| {
        assert_eq!(key.name.caller(), Some(key.name.key()));
        format!("{} {} {} {}", key.name.key(), key.decisions, key.refusals, key.used_permille.unwrap())
    });
    (keys.collect(), servers)
}

#[test]
fn lists_of_servers_are_put_together() {
    let (one, other) = (server(&[("ann", 12), ("bob", 3)]), server(&[("ann", 5), ("eve", 4)]));
    assert_eq!(top(&one, NOW), (vec!["ann 12 2 1000".to_owned(), "bob 3 0 300".to_owned()], 1));
    one.fleet.update(vec![row(&one, 0), row(&other, 20)], NOW);
    let all = vec!["ann 17 2 1000".to_owned(), "eve 4 0 400".to_owned(), "bob 3 0 300".to_owned()];
    assert_eq!(top(&one, NOW), (all, 2));
    // What it reports is true for a minute.
    assert_eq!(top(&one, NOW.after(Span::from_secs(39))).1, 2);
    assert_eq!(top(&one, NOW.after(Span::from_secs(40))).1, 1);
}

#[test]
fn servers_are_known_by_name_and_how_busy_they_are() {
    let (one, other) = (server(&[]), server(&[("ann", 15)]));
    other.fleet.record_load([0; 7], NOW);
    other.fleet.record_load(other.observer.tally().totals(), NOW.after(Span::from_secs(10)));
    one.fleet.update(vec![row(&one, 0), row(&other, 5)], NOW);
    let servers = one.servers(3, NOW);
    let reports: Vec<_> = servers.iter().map(|one| (one.this, one.info.rules_generation, one.seen_at)).collect();
    assert_eq!(reports, [(true, 3, NOW), (false, 7, NOW.before(Span::from_secs(5)))]);
    assert_eq!(servers[1].info.load, ServerLoad { decisions_per_second: 1.5, deny_per_second: 0.5 });
    assert_eq!((&*servers[1].info.name, &*servers[1].info.version), ("here", VERSION));
}

#[test]
fn what_is_not_understood_is_left_out() {
    let (one, other) = (server(&[]), server(&[("ann", 1)]));
    let strange = |document: &str| ServerRow { document: document.to_owned(), ..row(&other, 0) };
    one.fleet.update(vec![strange(""), strange("{}"), strange("[1]"), row(&other, 0)], NOW);
    assert_eq!(top(&one, NOW).1, 2);
    // A newer one may tell more.
    let more = other.report(&rules(7), (None, Span::ZERO), NOW).replacen('{', "{\"novelty\": {\"a\": 1}, ", 1);
    one.fleet.update(vec![strange(&more)], NOW);
    assert_eq!(top(&one, NOW).1, 2);
}

#[test]
fn reports_are_bounded() {
    let users: Vec<_> = (0..3_000).map(|n| format!("{}{n}", "\u{1}\"".repeat(150))).collect();
    let requests: Vec<_> = users.iter().map(|user| (user.as_str(), 1 + user.len() % 3)).collect();
    let reports = server(&requests).report(&rules(1), (None, Span::ZERO), NOW);
    assert!((10_000..=MAX_SERVER_BYTES).contains(&reports.len()), "{}", reports.len());
}

#[test]
fn hashes_are_the_same_where_the_secret_is() {
    let (one, other) = (server(&[]), server(&[]));
    assert_ne!(one.fleet.hash_key("ann"), other.fleet.hash_key("ann"));
    one.fleet.set_secret("0123");
    other.fleet.set_secret("0123");
    assert_eq!(one.fleet.hash_key("ann"), other.fleet.hash_key("ann"));
    assert_ne!(one.fleet.hash_key("ann"), one.fleet.hash_key("bob"));
    other.fleet.set_secret("0124");
    assert_ne!(one.fleet.hash_key("ann"), other.fleet.hash_key("ann"));
}

/// Twenty users of an address on each of two servers, and thirty that both saw: a signal on both.
#[test]
fn distinct_values_are_counted_together() {
    let servers = [0, 20].map(|first| {
        let observability = Observability::for_tests();
        observability.fleet.set_secret("0123");
        observability.observer.signals().use_secret(observability.fleet.hash_secret());
        let clock = ManualClock::at(NOW);
        let limiter = Limiter::new(rules(1), MemoryConfig::default().build_with(clock.clone()));
        let limiter = limiter.with_clock(clock).with_witness(observability.observer.clone());
        for number in first..first + 20 {
            for (address, user) in
                [("203.0.113.7", format!("u{number}")), ("198.51.100.1", format!("u{}", number % 30))]
            {
                let entries = [("remote_address", address), ("user", &user)];
                let request = Request { descriptors: &[Descriptor::new(&entries)], ..Request::default() };
                tollgate::poll_once(limiter.check_request(&request)).unwrap().unwrap();
            }
        }
        observability
    });
    let [one, other] = &servers;
    // One that knows of no other server reports only what is enough by itself.
    one.fleet.update(vec![row(other, 0)], NOW);
    one.evaluate_signals(&rules(1), NOW);
    assert!(one.observer.signals().raised().is_empty());
    other.fleet.update(vec![row(one, 0)], NOW);
    one.fleet.update(vec![row(other, 0)], NOW);
    one.evaluate_signals(&rules(1), NOW);
    let raised = one.observer.signals().raised();
    let raised: Vec<_> = raised.iter().map(|one| (one.name.rule(), one.name.key(), one.count)).collect();
    assert_eq!(raised, [("users-per-address", "203.0.113.7", 40)]);
    let events = one.sampler.events.all();
    let text = &events.last().unwrap().text;
    assert!(text.starts_with("the signal users-per-address is raised for #") && text.ends_with(": 40 user"), "{text}");
    assert!(!text.contains("203.0.113.7"), "{text}");
    // Both see it; one sends it, and the other one would with the same id.
    other.evaluate_signals(&rules(1), NOW);
    let sent = servers.each_ref().map(|server| {
        let recent = server.sampler.events.stream().recent().into_iter().map(|recent| recent.event);
        recent.filter(|event| event.kind == EventType::SignalRaised).collect::<Vec<_>>()
    });
    let (first, second) = if one.fleet.id < other.fleet.id { (one, other) } else { (other, one) };
    assert_eq!(
        (sent[0].len() + sent[1].len(), first.fleet.is_first(NOW), second.fleet.is_first(NOW)),
        (1, true, false)
    );
    let event = sent.iter().flatten().next().unwrap();
    assert_eq!((&event.data["key"], &event.data["count"]), (&json!("203.0.113.7"), &json!(40)));
    // Until the first is known to have ended.
    let later = NOW.after(Span::from_secs(61));
    second.evaluate_signals(&rules(1), later);
    let recent = second.sampler.events.stream().recent();
    assert!(recent.iter().any(|recent| recent.event.id == event.id), "{recent:?}");
    // Its report is valid for a minute.
    one.evaluate_signals(&rules(1), NOW.after(Span::from_secs(61)));
    assert!(one.observer.signals().raised().is_empty());
}
