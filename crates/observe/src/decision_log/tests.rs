//! What is counts, what it says, and what happens when there is too much of it.

use std::sync::Arc;

use tollgate::{
    Descriptor, Limiter, ManualClock, MemoryConfig, MemoryStore, Mode, RegionLink, Request, Ruleset, Source, Span,
    Timestamp, Wait,
};
use tollgate_rules::ResolvedBy;
use tollgate_rules::tenants::BlockAction;

use super::*;
use crate::{Observer, ObserverConfig};

mod regions;
mod shed_requests;

const RULES: &str = "
domain: api
entity: user
rules:
  - {name: per-user, key: [user], limit: {free: 3/minute, pro: 10/minute}, algorithm: fixed_window}
  - {name: tried, key: [user], match: {path: present}, limit: 1/minute, algorithm: fixed_window, mode: shadow}
  - {name: at-once, key: [user, slow], limit: 2 concurrent}
";

/// Everything is counts, unless said otherwise.
const ALL: LogConfig = LogConfig {
    on: true,
    sample: SampleRate::ALL,
    callers: SampleRate::NONE,
    max_entries: 16_384,
    max_bytes: 16 << 20,
    max_single: u64::MAX,
};
/// Nothing but refusals is.
const REFUSALS: LogConfig = LogConfig { sample: SampleRate::NONE, ..ALL };

struct Bench {
    limiter: Limiter<MemoryStore<ManualClock>>,
    observer: Arc<Observer>,
}

impl Bench {
    fn new(log: LogConfig) -> Bench {
        Bench::of(ObserverConfig { log, ..ObserverConfig::default() })
    }

    fn of(config: ObserverConfig) -> Bench {
        Bench::with(RULES, config, Arc::default())
    }

    fn with(rules: &str, config: ObserverConfig, privacy: Arc<KeyPrivacy>) -> Bench {
        let clock = ManualClock::at(Timestamp::from_secs(1_800_000_000));
        let store = MemoryConfig::default().build_with(clock.clone());
        let observer = Arc::new(Observer::new(config, privacy));
        let rules = Ruleset::from_text(rules, 7).unwrap().0;
        let limiter = Limiter::new(rules, store).with_clock(clock).with_witness(observer.clone());
        Bench { limiter, observer }
    }

    fn check(&self, entries: &[(&str, &str)]) -> bool {
        self.ask(&Request { descriptors: &[Descriptor::new(entries)], ..Request::default() })
    }

    fn ask(&self, request: &Request<'_>) -> bool {
        tollgate::poll_once(self.limiter.check_request(request)).unwrap().unwrap().allowed()
    }

    fn log(&self) -> &DecisionLog {
        self.observer.log()
    }
}

#[test]
fn refusals_are_logged_and_what_would_have_been_one() {
    let bench = Bench::new(REFUSALS);
    let passed: Vec<_> = (0..4).map(|_| bench.check(&[("user", "ann"), ("path", "/")])).collect();
    assert_eq!(passed, [true, true, true, false]);
    let outcomes: Vec<_> =
        bench.log().take().iter().map(|entry| (entry.outcome, entry.limits[0].rule.clone())).collect();
    let tried = || (DecisionOutcome::Shadow, "tried".to_owned());
    assert_eq!(outcomes, [tried(), tried(), (DecisionOutcome::Deny, "per-user".to_owned())]);
    assert_eq!(bench.log().counts(), LogCounts { queued: 3, ..LogCounts::default() });
    assert_eq!(bench.log().take(), []);
}

#[test]
fn nothing_is_logged_that_is_no_decision_or_when_it_is_off() {
    let bench = Bench::new(LogConfig { on: false, ..ALL });
    bench.check(&[("user", "ann")]);
    assert_eq!(bench.log().take(), []);
    let bench = Bench::new(ALL);
    let debit =
        Request { ask: Ask::Regardless, descriptors: &[Descriptor::new(&[("user", "ann")])], ..Request::default() };
    bench.ask(&debit);
    assert_eq!(bench.log().take(), []);
}

#[test]
fn of_some_callers_everything_is_logged() {
    let bench = Bench::new(LogConfig { callers: SampleRate::from_bps(1_000), ..REFUSALS });
    for _ in 0..2 {
        (0..1_000).for_each(|n| assert!(bench.check(&[("user", &format!("user_{n}"))])));
    }
    let mut callers: Vec<_> = bench.log().take().into_iter().filter_map(|entry| entry.caller).collect();
    let all = callers.len();
    callers.sort();
    callers.dedup();
    assert_eq!(all, 2 * callers.len());
    assert!((60..140).contains(&callers.len()), "{}", callers.len());
}

#[test]
fn an_entry_says_all_that_led_to_a_decision() {
    let bench = Bench::new(REFUSALS);
    let descriptors = [
        Descriptor::new(&[("path", "/a")]),
        Descriptor { hits: Some(2), ..Descriptor::new(&[("user", "ann"), ("user", "bob")]) },
    ];
    let request = Request { cost: 4, descriptors: &descriptors, domain: Some("api"), ..Request::default() };
    assert!(!bench.ask(&request));
    let entries = bench.log().take();
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let limit = |rule: &str, amount, mode| EntryLimit {
        rule: rule.to_owned(),
        tier: "default".to_owned(),
        by: ResolvedBy::Default,
        mode,
        amount,
        burst: None,
        period: "minute".to_owned(),
        units: 4,
        used: 0,
        remaining: amount,
        reset: Span::from_secs(60),
        wait: Wait::Forever,
        admits: false,
        key: "ann".to_owned(),
        region: None,
    };
    let expected = DecisionEntry {
        at: Timestamp::from_secs(1_800_000_000),
        domain: "api".to_owned(),
        caller: Some("ann".to_owned()),
        descriptors: vec![
            EntryDescriptor { entries: vec![pair("path", "/a")], hits: None },
            EntryDescriptor { entries: vec![pair("user", "ann"), pair("user", "bob")], hits: Some(2) },
        ],
        is_cut: false,
        cost: 4,
        outcome: DecisionOutcome::Deny,
        source: Source::Store,
        link: RegionLink::Together,
        is_replay: false,
        wait: Wait::Forever,
        rules_generation: 7,
        rule_version: None,
        is_decided: true,
        limits: vec![
            EntryLimit { tier: "free".to_owned(), by: ResolvedBy::Tier, ..limit("per-user", 3, Mode::Enforce) },
            limit("tried", 1, Mode::Shadow),
        ],
        block: None,
        shed: None,
        repetition: None,
    };
    assert_eq!(entries, [expected]);
}

#[test]
fn texts_are_cut_and_entries_are_bounded() {
    let bench = Bench::new(ALL);
    let long = "ä".repeat(2_000);
    bench.check(&[("user", &long)]);
    let entries = bench.log().take();
    let caller = entries[0].caller.as_deref().unwrap();
    assert!(caller.len() <= MAX_TEXT_BYTES && caller.ends_with("ä…"), "{}", caller.len());
    assert_eq!(caller, truncate(&long));
    assert_eq!(entries[0].limits[0].key, caller);
    let value = entries[0].descriptors[0].entries[0].1.as_str();
    assert!(value.len() <= MAX_VALUE_BYTES && value.ends_with("ä…"), "{}", value.len());
    assert!(!entries[0].is_cut);

    let names: Vec<_> = (0..30).map(|n| format!("n{n}")).collect();
    let pairs: Vec<_> = names.iter().map(|name| (name.as_str(), long.as_str())).collect();
    bench.check(&pairs);
    let entries = bench.log().take();
    assert!(entries[0].is_cut && entries[0].bytes() < MAX_DESCRIPTOR_BYTES + 4_096, "{}", entries[0].bytes());
}

#[test]
fn a_flood_is_dropped_and_counted_and_hides_nobody() {
    let config = LogConfig { max_entries: 1_000, ..REFUSALS };
    let bench = Bench::new(config);
    let refused = |user: &str| {
        let entries = [("user", user)];
        let request = Request { cost: 4, descriptors: &[Descriptor::new(&entries)], ..Request::default() };
        assert!(!bench.ask(&request));
    };
    (0..5_000).for_each(|_| refused("flood"));
    refused("ann");
    let counts = bench.log().counts();
    assert_eq!(counts, LogCounts { queued: 500 + 16 + 1, dropped: 5_000 - 516, summarized: 0 });
    // Many callers fill it to the end.
    (0..5_000).for_each(|n| refused(&format!("user_{n}")));
    assert_eq!(bench.log().counts(), LogCounts { queued: 1_000, dropped: 5_000 - 516 + 5_000 - 483, summarized: 0 });
    let taken = bench.log().take();
    assert_eq!((taken.len(), taken.iter().filter(|entry| entry.caller.as_deref() == Some("ann")).count()), (1_000, 1));
    refused("flood");
    assert_eq!(bench.log().take().len(), 1);
}

/// Checks that are refused: they cost more than the limit.
fn refuse(bench: &Bench, user: &str, times: usize) {
    let entries = [("user", user)];
    let request = Request { cost: 4, descriptors: &[Descriptor::new(&entries)], ..Request::default() };
    (0..times).for_each(|_| assert!(!bench.ask(&request)));
}

#[test]
fn a_caller_that_is_refused_again_and_again_is_summarized() {
    let bench = Bench::new(LogConfig { max_single: 5, ..REFUSALS });
    let start = Timestamp::from_secs(1_800_000_000);
    assert_eq!(bench.log().take_summaries(Some(start)), []);
    refuse(&bench, "flood", 1_000);
    refuse(&bench, "ann", 5);
    let logged = |caller: &str, entries: &[DecisionEntry]| {
        entries.iter().filter(|entry| entry.caller.as_deref() == Some(caller)).count()
    };
    let entries = bench.log().take();
    assert_eq!((logged("flood", &entries), logged("ann", &entries)), (5, 5));
    assert_eq!(bench.log().counts(), LogCounts { queued: 10, dropped: 0, summarized: 995 });

    // Whoever asks in the same minute sees the number so far.
    let repetition = Some(Repetition { count: 995, until: start });
    let current = bench.log().summaries();
    assert_eq!((current.len(), logged("flood", &current), current[0].repetition), (1, 1, repetition));
    assert_eq!(bench.log().take_summaries(Some(start.after(Span::from_secs(59)))), []);
    refuse(&bench, "flood", 5);
    let summaries = bench.log().take_summaries(Some(start.after(SUMMARY_INTERVAL)));
    assert_eq!(summaries.len(), 1);
    assert_eq!(summaries[0].repetition, Some(Repetition { count: 1_000, until: start }));
    assert!(summaries[0].explain().ends_with("; the entry stands for 1000 such decisions within 0 ms."));

    // The next minute begins anew. One more than the first ones is no summary.
    refuse(&bench, "flood", 6);
    assert_eq!(bench.log().take().len(), 5);
    let last = bench.log().take_summaries(None);
    assert_eq!((last.len(), last[0].repetition), (1, None));
    assert_eq!((bench.log().take_summaries(None), bench.log().summaries()), (vec![], vec![]));
}

#[test]
fn callers_and_rules_are_summarized_separately_and_their_number_is_bounded() {
    let bench = Bench::new(LogConfig { max_single: 1, ..REFUSALS });
    // Two shadow refusals by one rule, then refusals by another.
    (0..6).for_each(|_| {
        bench.check(&[("user", "ann"), ("path", "/")]);
    });
    let mut counts: Vec<_> =
        bench.log().take_summaries(None).iter().map(|one| one.repetition.map(|r| r.count)).collect();
    counts.sort_unstable();
    assert_eq!(counts, [None, Some(2)]);
    bench.log().take();
    let before = bench.log().counts();
    (0..5 * MAX_REPEATING).for_each(|n| refuse(&bench, &format!("user_{n}"), 2));
    let (counts, summaries) = (bench.log().counts(), bench.log().take_summaries(None).len());
    assert!((MAX_REPEATING / 2..=MAX_REPEATING).contains(&summaries), "{summaries}");
    let recorded = |counts: LogCounts| counts.queued + counts.summarized + counts.dropped;
    assert_eq!(recorded(counts) - recorded(before), 10 * MAX_REPEATING as u64);
}

#[test]
fn whatever_threads_do_each_refusal_is_in_an_entry() {
    let bench = Bench::new(LogConfig { max_single: 3, ..REFUSALS });
    std::thread::scope(|scope| {
        (0..4).for_each(|_| drop(scope.spawn(|| refuse(&bench, "flood", 5_000))));
    });
    let singles = bench.log().take().len() as u64;
    let summary = bench.log().take_summaries(None)[0].repetition.unwrap().count;
    assert_eq!((singles, summary), (3, 19_997));
}

#[test]
fn bytes_are_bounded_too() {
    let bench = Bench::new(LogConfig { max_bytes: 100_000, ..ALL });
    let long = "x".repeat(1_000);
    let fill = || {
        (0..1_000).for_each(|n| {
            bench.check(&[("path", &long), ("user", &format!("user_{n}"))]);
        });
        bench.log().take()
    };
    let (taken, counts) = (fill(), bench.log().counts());
    let bytes: usize = taken.iter().map(DecisionEntry::bytes).sum();
    assert!(bytes <= 100_000 && bytes > 90_000, "{bytes}");
    assert_eq!((taken.len() as u64, counts.queued + counts.dropped), (counts.queued, 1_000));
    // What found no room takes none.
    assert_eq!(fill().len(), taken.len());
}

#[test]
fn who_finds_others_everywhere_does_not_wait() {
    let queue = EntryQueue::new(10, 1 << 20);
    let others = queue.lock_all();
    assert!(!queue.push(entry()));
    drop(others);
    (0..10).for_each(|_| assert!(queue.push(entry())));
    assert!(!queue.push(entry()));
    assert_eq!(queue.take().len(), 10);
}

#[test]
fn whatever_threads_do_each_entry_is_taken_or_counted_as_dropped() {
    let bench = Bench::new(LogConfig { max_entries: 2_000, ..ALL });
    let taken = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let bench = &bench;
            scope.spawn(move || {
                (0..5_000).for_each(|n| {
                    bench.check(&[("user", &format!("{thread}/{n}"))]);
                })
            });
        }
        scope.spawn(|| {
            while taken.load(std::sync::atomic::Ordering::Relaxed) < 1_000 {
                taken.fetch_add(bench.log().take().len(), std::sync::atomic::Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
    });
    let taken = taken.into_inner() + bench.log().take().len();
    let counts = bench.log().counts();
    assert_eq!((taken as u64, counts.queued + counts.dropped), (counts.queued, 20_000));
    // There is as much room as in the beginning.
    (0..2_100).for_each(|n| {
        bench.check(&[("user", &format!("later/{n}"))]);
    });
    assert_eq!(bench.log().take().len(), 2_000);
}

#[test]
fn shadow_mode_logs_refusals_as_such() {
    let bench = Bench::of(ObserverConfig { shadow: true, log: REFUSALS, ..ObserverConfig::default() });
    (0..4).for_each(|_| {
        bench.check(&[("user", "ann")]);
    });
    let taken = bench.log().take();
    assert_eq!(
        taken[0].explain(),
        "ann passed, since this server refuses nothing (shadow mode); it would have been refused: per-user allows 3/minute \
         to the tier free, it had used 3 of 3, and there was room again 1 min later."
    );
}

/// A refusal with the usual numbers.
fn entry() -> DecisionEntry {
    let limit = EntryLimit {
        rule: "per-user".to_owned(),
        tier: "free".to_owned(),
        by: ResolvedBy::Tier,
        mode: Mode::Enforce,
        amount: 100,
        burst: None,
        period: "minute".to_owned(),
        units: 1,
        used: 100,
        remaining: 0,
        reset: Span::from_secs(20),
        wait: Wait::For(Span::from_micros(12_500_000)),
        admits: false,
        key: "user_7".to_owned(),
        region: None,
    };
    DecisionEntry {
        at: Timestamp::from_secs(1_800_000_000),
        domain: "api".to_owned(),
        caller: Some("user_7".to_owned()),
        descriptors: Vec::new(),
        is_cut: false,
        cost: 1,
        outcome: DecisionOutcome::Deny,
        source: Source::Store,
        link: RegionLink::Together,
        is_replay: false,
        wait: limit.wait,
        rules_generation: 7,
        rule_version: None,
        is_decided: true,
        limits: vec![limit],
        block: None,
        shed: None,
        repetition: None,
    }
}

fn shed(by: &str) -> EntryShed {
    EntryShed { by: by.to_owned(), class: Some("get".to_owned()), route: Some("list".to_owned()), upstream: None }
}

#[test]
fn why_in_a_sentence() {
    type Change = fn(&mut DecisionEntry);
    let rows: [(Change, &str); 31] = [
        (
            |entry| entry.shed = Some(EntryShed { upstream: Some("orders".to_owned()), ..shed("adaptive") }),
            "user_7 was shed (503): the upstream orders had as many requests in flight as it answers without a queue; it was of the class get and the route list.",
        ),
        (
            |entry| entry.shed = Some(EntryShed { upstream: Some("orders".to_owned()), ..shed("fairness") }),
            "user_7 was shed (503): the upstream orders was overloaded, and the caller sent more than its fair rate; it was of the class get and the route list.",
        ),
        (
            |entry| entry.shed = Some(shed("worker")),
            "user_7 was shed (503): this server had been overloaded for long; it was of the class get and the route list.",
        ),
        (
            |entry| {
                entry.shed = Some(EntryShed { route: None, ..shed("fleet") });
                let limit = &mut entry.limits[0];
                (limit.period, limit.key, limit.by) =
                    (EntryLimit::CONCURRENT.to_owned(), String::new(), ResolvedBy::Default);
            },
            "user_7 was shed (503) to protect the service: per-user allows 100 at a time, all callers had 100 of 100 in flight, and there was room when one ended, 12.5 s later at the latest; it was of the class get.",
        ),
        (
            |_| {},
            "user_7 was refused: per-user allows 100/minute to the tier free, it had used 100 of 100, and there was room again 12.5 s later.",
        ),
        (
            |entry| entry.limits[0].by = ResolvedBy::Default,
            "user_7 was refused: per-user allows 100/minute, it had used 100 of 100, and there was room again 12.5 s later.",
        ),
        (
            |entry| entry.limits[0].by = ResolvedBy::Override,
            "user_7 was refused: per-user allows 100/minute by an override of its own, it had used 100 of 100, and there was room again 12.5 s later.",
        ),
        (
            |entry| entry.limits[0].by = ResolvedBy::OverrideGlob,
            "user_7 was refused: per-user allows 100/minute by an override for names like it, it had used 100 of 100, and there was room again 12.5 s later.",
        ),
        (
            |entry| entry.limits[0].by = ResolvedBy::OverrideAll,
            "user_7 was refused: per-user allows 100/minute by an override for all callers, it had used 100 of 100, and there was room again 12.5 s later.",
        ),
        (
            |entry| entry.limits[0].by = ResolvedBy::Emergency,
            "user_7 was refused: per-user allows 100/minute in an emergency, it had used 100 of 100, and there was room again 12.5 s later.",
        ),
        (
            |entry| entry.limits[0].by = ResolvedBy::Request,
            "user_7 was refused: per-user allows 100/minute as the request specified, it had used 100 of 100, and there was room again 12.5 s later.",
        ),
        (
            |entry| (entry.limits[0].units, entry.limits[0].used, entry.limits[0].remaining) = (5, 97, 3),
            "user_7 was refused: per-user allows 100/minute to the tier free, it had used 97 of 100, 5 were requested, and there was room again 12.5 s later.",
        ),
        (
            |entry| (entry.limits[0].units, entry.limits[0].used, entry.limits[0].wait) = (101, 0, Wait::Forever),
            "user_7 was refused: per-user allows 100/minute to the tier free, it had used 0 of 100, 101 were requested, and there is never room for that many.",
        ),
        (
            |entry| (entry.limits[0].amount, entry.limits[0].used, entry.limits[0].wait) = (0, 0, Wait::Forever),
            "user_7 was refused: per-user allows 0/minute to the tier free, it had used 0 of 0.",
        ),
        (
            |entry| (entry.limits[0].burst, entry.limits[0].used) = (Some(200), 200),
            "user_7 was refused: per-user allows 100/minute with a burst of 200 to the tier free, it had used 200 of 200, and there was room again 12.5 s later.",
        ),
        (
            |entry| entry.limits[0].period = EntryLimit::CONCURRENT.to_owned(),
            "user_7 was refused: per-user allows 100 at a time to the tier free, it had 100 of 100 in flight, and there was room when one ended, 12.5 s later at the latest.",
        ),
        (
            |entry| entry.limits[0].key = String::new(),
            "user_7 was refused: per-user allows 100/minute to the tier free, all callers had used 100 of 100, and there was room again 12.5 s later.",
        ),
        (
            |entry| entry.caller = None,
            "a request without a caller was refused: per-user allows 100/minute to the tier free, user_7 had used 100 of 100, and there was room again 12.5 s later.",
        ),
        (
            |entry| entry.source = Source::Cache,
            "user_7 was refused: per-user allows 100/minute to the tier free, it had used 100 of 100, and there was room again 12.5 s later (from the deny cache).",
        ),
        (
            |entry| entry.source = Source::Local,
            "user_7 was refused: per-user allows 100/minute to the tier free, it had used 100 of 100, and there was room again 12.5 s later (counted by this server alone while the store was unavailable or full).",
        ),
        (
            |entry| entry.source = Source::Assumed,
            "user_7 was refused: the store could not answer, and per-user (100/minute) refuses then.",
        ),
        (
            |entry| entry.source = Source::Shed,
            "user_7 was refused: too many checks were in flight to ask the store, and per-user (100/minute) refuses then.",
        ),
        (
            |entry| {
                let more =
                    ["a", "b", "c", "d"].map(|rule| EntryLimit { rule: rule.to_owned(), ..entry.limits[0].clone() });
                entry.limits.extend(more);
            },
            "user_7 was refused: per-user allows 100/minute to the tier free, it had used 100 of 100, and there was room again 12.5 s later; a, b, c and others had no room either.",
        ),
        (
            |entry| (entry.outcome, entry.limits[0].mode) = (DecisionOutcome::Shadow, Mode::Shadow),
            "user_7 passed, but would have been refused by a limit in shadow mode: per-user allows 100/minute to the tier free, it had used 100 of 100, and there was room again 12.5 s later.",
        ),
        (
            |entry| {
                (entry.outcome, entry.limits[0].mode, entry.limits[0].wait) =
                    (DecisionOutcome::Soft, Mode::Soft, Wait::None)
            },
            "user_7 passed beyond a soft limit: per-user allows 100/minute to the tier free, it had used 100 of 100.",
        ),
        (
            |entry| {
                (entry.outcome, entry.block, entry.is_decided) =
                    (DecisionOutcome::Blocked, Some(BlockAction::Forbidden), false)
            },
            "user_7 was refused: it, or its address, is blocked (403).",
        ),
        (
            |entry| (entry.outcome, entry.source) = (DecisionOutcome::Assumed, Source::Assumed),
            "user_7 passed: the store could not answer, and per-user (100/minute) lets requests pass then.",
        ),
        (
            |entry| (entry.outcome, entry.source) = (DecisionOutcome::Shed, Source::Shed),
            "user_7 passed: too many checks were in flight to ask the store, and per-user (100/minute) lets requests pass then.",
        ),
        (
            |entry| (entry.outcome, entry.limits[0].used, entry.limits[0].remaining) = (DecisionOutcome::Allow, 3, 97),
            "user_7 passed: per-user allows 100/minute to the tier free, it had used 3 of 100, and 97 were left.",
        ),
        (
            |entry| (entry.outcome, entry.is_decided) = (DecisionOutcome::Allow, false),
            "user_7 passed: no limit applied to it.",
        ),
        (
            |entry| (entry.is_replay, entry.is_decided) = (true, false),
            "user_7 was refused, by rules that have changed since; it repeats the decision about the same request, by its idempotency key.",
        ),
    ];
    for (change, expected) in rows {
        let mut entry = entry();
        change(&mut entry);
        assert_eq!(entry.explain(), expected);
    }
}

#[test]
fn private_values_are_masked_everywhere_in_an_entry() {
    const PRIVATE: &str = "
domain: api
entity: api_key
rules:
  - {name: per-key, key: [api_key], limit: 1/minute, algorithm: fixed_window}
  - {name: per-path, key: [path, api_key], limit: 9/minute, algorithm: fixed_window}
";
    const KEY: &str = "sk_live_51H8mZqT9f3a";
    const MASKED: &str = "#26f0a07cd8d2b07554bf762c1189cfe1-9f3a";
    let entry = |rules: &str, setting| {
        let privacy = KeyPrivacy::with_secrets(setting, ["a secret of the fleet"]).unwrap();
        let config = ObserverConfig { log: REFUSALS, ..ObserverConfig::default() };
        let bench = Bench::with(rules, config, Arc::new(privacy));
        for _ in 0..2 {
            bench.check(&[("path", "/a"), ("api_key", KEY), ("X-Auth-Token", KEY), ("user", "ann")]);
        }
        bench.log().take().remove(0)
    };
    let masked = entry(PRIVATE, tollgate::PrivacySetting::Auto);
    assert_eq!(masked.caller.as_deref(), Some(MASKED));
    let pairs = |entry: &DecisionEntry| entry.descriptors[0].entries.clone();
    let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        pairs(&masked),
        [own("path", "/a"), own("api_key", MASKED), own("X-Auth-Token", MASKED), own("user", "ann")]
    );
    assert_eq!(
        masked.limits.iter().map(|limit| limit.key.clone()).collect::<Vec<_>>(),
        [MASKED.to_owned(), format!("/a,{MASKED}")]
    );
    assert!(
        masked.explain().starts_with(&format!("{MASKED} was refused: per-key allows 1/minute, it had used 1 of 1"))
    );
    assert!(!format!("{masked:?}").contains("sk_live"), "{masked:?}");
    // In clear where an operator wants it: everywhere, or in a domain.
    let clear = entry(PRIVATE, tollgate::PrivacySetting::Clear);
    assert_eq!((clear.caller.as_deref(), clear.limits[1].key.as_str()), (Some(KEY), "/a,sk_live_51H8mZqT9f3a"));
    let listed = entry(&PRIVATE.replace("entity:", "private: [user]\nentity:"), tollgate::PrivacySetting::Hashed);
    assert_eq!(listed.caller.as_deref(), Some(KEY));
    assert!(pairs(&listed)[3].1.starts_with('#'), "{listed:?}");
}
