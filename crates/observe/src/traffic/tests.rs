//! What is recorded of little traffic and of much, and that callers that are recorded are recorded whole.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate::{
    Ask, Clock as _, Descriptor, KeyPrivacy, Limiter, ManualClock, MemoryConfig, MemoryStore, PrivacySetting, Request,
    Ruleset, Span, Timestamp, tenants,
};

use super::*;
use crate::{Observer, ObserverConfig};

const RULES: &str = "domain: shop
entity: user
rules:
  - {name: per-user, key: [user], limit: {free: 5/minute, pro: 1000000/minute}, algorithm: fixed_window}
  - {name: tokens, key: [session_token], limit: 1000000/minute}
";

const START: Timestamp = Timestamp::from_secs(1_800_000_000);

struct Recorder {
    limiter: Limiter<MemoryStore<ManualClock>>,
    observer: Arc<Observer>,
    clock: ManualClock,
}

impl Recorder {
    fn new(max_bytes: usize) -> Recorder {
        let traffic = TrafficConfig { on: true, max_bytes, ..TrafficConfig::default() };
        let privacy = Arc::new(KeyPrivacy::new(PrivacySetting::Hashed));
        let observer = Arc::new(Observer::new(ObserverConfig { traffic, ..ObserverConfig::default() }, privacy));
        let clock = ManualClock::default();
        clock.set(START);
        let store = MemoryConfig::default().build_with(clock.clone());
        let limiter = Limiter::new(Ruleset::from_text(RULES, 1).unwrap().0, store);
        let limiter = limiter.with_clock(clock.clone()).with_witness(observer.clone());
        observer.traffic().adjust(START);
        Recorder { limiter, observer, clock }
    }

    fn check(&self, entries: &[(&str, &str)]) {
        let request = Request { descriptors: &[Descriptor::new(entries)], ..Request::default() };
        tollgate::poll_once(self.limiter.check_request(&request)).unwrap().unwrap();
    }

    fn ask(&self, request: Request<'_>) {
        let request = Request { descriptors: &[Descriptor::new(&[("user", "ann")])], ..request };
        tollgate::poll_once(self.limiter.check_request(&request)).unwrap().unwrap();
    }

    fn pass(&self, time: Span) {
        self.clock.set(self.clock.now().after(time));
    }

    /// Ten seconds of these requests, and an adjustment.
    fn ten_seconds(&self, requests: u64, user: impl Fn(u64) -> String) {
        for number in 0..requests {
            self.pass(Span::from_micros(10_000_000 / requests));
            self.check(&[("user", &user(number))]);
        }
        self.observer.traffic().adjust(self.clock.now());
    }

    fn excerpt(&self) -> TrafficExcerpt {
        self.observer.traffic().excerpt(START)
    }
}

#[test]
fn little_traffic_is_recorded_whole() {
    let recorder = Recorder::new(1 << 20);
    let pro = tenants::QuotaStage {
        during: tenants::TimeRange::ALWAYS,
        tier: Some("pro".to_owned()),
        home: None,
        overrides: vec![tenants::Override {
            selector: tenants::Selector::rule("per-user"),
            cap: tenants::OverrideCap::Amount(7),
            during: tenants::TimeRange::ALWAYS,
        }],
    };
    recorder.limiter.tenants().set_quota("shop", "bob", Some(&tenants::Quota { stages: vec![pro] }));
    for _ in 0..7 {
        recorder.check(&[("user", "ann"), ("endpoint", "GET /a")]);
        recorder.pass(Span::from_secs(1));
    }
    recorder.check(&[("user", "bob"), ("session_token", "secret-1234")]);
    recorder.check(&[("session_token", "secret-1234")]);
    let TrafficExcerpt { records, is_complete } = recorder.excerpt();
    assert_eq!((records.len(), is_complete), (9, true));
    let used: Vec<u64> = records[..7].iter().map(|record| record.limits[0].used).collect();
    assert_eq!(used, [0, 1, 2, 3, 4, 5, 5]);
    let (first, bob, nobody) = (&records[0], &records[7], &records[8]);
    assert_eq!((&*first.limits[0].rule, first.limits[0].period), ("per-user", Span::from_secs(60)));
    assert_eq!((first.at, first.cost, first.copies, first.callers), (START, 1, 1, 1));
    assert_eq!((first.attribute("endpoint"), first.caller.tier.as_deref()), (Some("GET /a"), None));
    assert_eq!(bob.caller.tier.as_deref(), Some("pro"));
    let (rule, cap) = &bob.caller.overrides[0];
    assert!(**rule == *"per-user" && matches!(cap, tenants::OverrideCap::Rate { amount: 7, .. }), "{cap:?}");
    // Private values are masked, and always in the same way.
    let token = bob.attribute("session_token").unwrap();
    assert!(!token.contains("secret") && nobody.attribute("session_token") == Some(token), "{token}");
    let status = recorder.observer.traffic().status();
    assert_eq!((status.records, status.callers_bps, status.busy_callers, status.lost), (9, 10_000, 0, 0));
    assert_eq!(status.oldest, Some(START));
}

#[test]
fn what_is_no_check_is_not_recorded() {
    let recorder = Recorder::new(1 << 20);
    recorder.ask(Request { ask: Ask::Regardless, ..Request::default() });
    recorder.ask(Request { cost: 0, ..Request::default() });
    let blocked = tenants::Block { during: tenants::TimeRange::ALWAYS, action: tenants::BlockAction::Forbidden };
    let ann = tenants::BlockSubject::Caller { domain: "shop".to_owned(), caller: "ann".to_owned() };
    recorder.limiter.tenants().set_block(&ann, Some(blocked));
    recorder.ask(Request::default());
    assert_eq!(recorder.excerpt().records.len(), 0);
    recorder.limiter.tenants().set_block(&ann, None);
    recorder.ask(Request::default());
    assert_eq!(recorder.excerpt().records.len(), 1);
}

#[test]
fn of_much_traffic_some_callers_are_recorded_whole() {
    // Room for about two records a second, and a hundred requests a second of a thousand callers, for 20 minutes.
    let recorder = Recorder::new(500 << 10);
    (0..120).for_each(|_| recorder.ten_seconds(1_000, |number| format!("user-{number}")));
    let (now, status) = (recorder.clock.now(), recorder.observer.traffic().status());
    assert!(status.bytes <= 500 << 10 && status.callers_bps < 500, "{status:?}");
    assert!(status.oldest.unwrap() <= now.before(SAMPLED_TIME), "{status:?}");
    let since = now.before(SAMPLED_TIME);
    let TrafficExcerpt { records, is_complete } = recorder.observer.traffic().excerpt(since);
    assert!(!is_complete);
    let mut by_user: HashMap<&str, u64> = HashMap::new();
    records.iter().for_each(|record| *by_user.entry(record.attribute("user").unwrap()).or_default() += 1);
    // One request each ten seconds.
    assert!(by_user.len() > 3 && by_user.values().all(|count| (89..=91).contains(count)), "{by_user:?}");
    let all: u64 = records.iter().map(TrafficRecord::requests).sum();
    assert!((30_000..300_000).contains(&all), "{all} of 90,000");
}

#[test]
fn of_the_busiest_callers_one_request_in_so_many_is_recorded() {
    let recorder = Recorder::new(500 << 10);
    // Half of the requests are of two callers.
    let user = |number: u64| match number % 4 {
        0 => "busy-0".to_owned(),
        2 => "busy-1".to_owned(),
        _ => format!("user-{number}"),
    };
    (0..120).for_each(|_| recorder.ten_seconds(2_000, user));
    assert_eq!(recorder.observer.traffic().status().busy_callers, 2);
    let since = recorder.clock.now().before(SAMPLED_TIME);
    let records = recorder.observer.traffic().excerpt(since).records;
    for busy in ["busy-0", "busy-1"] {
        let own: Vec<_> = records.iter().filter(|record| record.attribute("user") == Some(busy)).collect();
        assert!(own.iter().all(|record| record.copies > 1 && record.callers == 1));
        let requests: u64 = own.iter().map(|record| record.requests()).sum();
        // 50 a second for 15 minutes; one in 64 is drawn.
        assert!((300..2_000).contains(&own.len()) && (36_000..54_000).contains(&requests), "{}, {requests}", own.len());
    }
}

#[test]
fn the_same_callers_are_sampled_whatever_the_order_of_domains() {
    let sampled = |rules: &str| {
        let config = TrafficConfig { on: true, max_callers_bps: 3_000, ..TrafficConfig::default() };
        let privacy = Arc::new(KeyPrivacy::new(PrivacySetting::Hashed));
        let observer = ObserverConfig { traffic: config, ..ObserverConfig::default() };
        let observer = Arc::new(Observer::new(observer, privacy));
        let limiter = Limiter::in_memory(Ruleset::from_text(rules, 1).unwrap().0).with_witness(observer.clone());
        for number in 0..100 {
            let user = format!("user-{number}");
            tollgate::poll_once(limiter.check("shop", [("user", &*user)])).unwrap().unwrap();
        }
        let records = observer.traffic().excerpt(Timestamp::default()).records;
        records.iter().map(|record| record.attribute("user").unwrap().to_owned()).collect::<Vec<_>>()
    };
    let other = "domain: other\nentity: user\nrules:\n  - {name: a, key: [user], limit: 5/minute}\n";
    let names = sampled(RULES);
    assert!((10..60).contains(&names.len()), "{}", names.len());
    assert_eq!(names, sampled(&format!("{other}---\n{RULES}")));
}

#[test]
fn a_flood_is_bounded_before_the_sample_is_adjusted() {
    let recorder = Recorder::new(64 << 20);
    for number in 0..100_000 {
        recorder.check(&[("user", &format!("user-{number}"))]);
    }
    let status = recorder.observer.traffic().status();
    assert!(status.records < 60_000 && status.callers_bps < 10_000, "{status:?}");
}

#[test]
fn old_records_are_dropped() {
    let recorder = Recorder::new(1 << 20);
    recorder.check(&[("user", "ann")]);
    recorder.pass(Span::from_secs(60));
    recorder.check(&[("user", "bob")]);
    recorder.observer.traffic().adjust(START.after(MAX_SAMPLED_TIME).after(Span::from_secs(30)));
    let records = recorder.excerpt().records;
    assert_eq!(records.iter().map(|record| record.attribute("user")).collect::<Vec<_>>(), [Some("bob")]);
}

#[test]
fn off_records_nothing() {
    let observer = Observer::new(ObserverConfig::default(), Arc::new(KeyPrivacy::new(PrivacySetting::Hashed)));
    let observer = Arc::new(observer);
    let rules = Ruleset::from_text(RULES, 1).unwrap().0;
    let limiter = Limiter::in_memory(rules).with_witness(observer.clone());
    tollgate::poll_once(limiter.check("shop", [("user", "ann")])).unwrap().unwrap();
    assert_eq!((observer.tally().totals().iter().sum::<u64>(), observer.traffic().status().records), (1, 0));
}
