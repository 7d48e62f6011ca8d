//! Long logs, of which the script reads only parts: the answers are the core's, and claims that take nothing are cheap.

use fastrand::Rng;
use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Period, Scope, Shortcuts, Span, Timestamp,
    Value,
};
use tollgate_testing::Redis;

use super::direct::{Answer, Direct};
use tollgate_store::conformance::{Subject, block_on, reference::Reference};
use tollgate_store::{Clock, Store, SystemClock};

const START: Timestamp = Timestamp::from_secs(1_767_225_600);
/// The largest number of entries of a log.
const ENTRIES: u64 = 10_000;
const HOUR: u64 = 3_600;

struct Counter {
    scope: Scope,
    limit: Limit,
}

impl Counter {
    fn new(name: &str, amount: u64, algorithm: Algorithm) -> Counter {
        let limit = Limit::new(amount, Period::fixed(Span::from_secs(HOUR)).unwrap(), algorithm).unwrap();
        Counter { scope: Scope::new("d", name, algorithm, limit.period(), Home::Caller(0)), limit }
    }

    fn log(amount: u64) -> Counter {
        Counter::new("log", amount, Algorithm::SlidingLog)
    }

    fn key(&self) -> Key<'_> {
        Key::new(&self.scope, smallvec![Value::Text("acme")])
    }

    fn claim(&self, ask: Ask, units: u64) -> Claim<'_> {
        let charge = Charge {
            key: self.key(),
            limit: &self.limit,
            ask,
            units,
            mode: Mode::Enforce,
            on_failure: OnFailure::Deny,
            shortcuts: Shortcuts::Refusals,
        };
        Claim { id: ClaimId(1), charges: smallvec![charge], once: None, timeout: None }
    }
}

/// Writes a log with these entries: how long ago, in milliseconds, and units.
fn write(direct: &Direct, counter: &Counter, entries: impl Iterator<Item = (u64, u64)>) {
    let now = SystemClock::default().now().as_micros() / 1_000;
    let seven = |number: u64| number.to_le_bytes().into_iter().take(7);
    let (mut total, mut bytes) = (0, Vec::new());
    for (ago, units) in entries {
        total += units;
        bytes.extend(seven(now - ago).chain(seven(units)));
    }
    let value: Vec<u8> = [1].into_iter().chain(seven(total)).chain(bytes).collect();
    direct.command(&[b"SET", direct.own_name(&counter.key()).as_bytes(), &value]);
}

/// The microseconds that a claim costs Redis: the least of several averages, because the machine does other things.
fn cost(direct: &Direct, claim: &Claim<'_>) -> f64 {
    let averages = (0..12).map(|_| {
        direct.command(&[b"CONFIG", b"RESETSTAT"]);
        for _ in 0..50 {
            direct.settle_at(std::slice::from_ref(claim), None).remove(0).unwrap();
        }
        let stats = String::from_utf8(direct.command(&[b"INFO", b"commandstats"]).text().unwrap()).unwrap();
        let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap();
        let average = line.split(',').find_map(|field| field.strip_prefix("usec_per_call=")).unwrap();
        average.parse::<f64>().unwrap()
    });
    averages.fold(f64::MAX, f64::min)
}

#[test]
fn slow_a_refusal_by_a_long_log_costs_little() {
    let redis = Redis::start();
    let direct = Direct::unchecked(redis.port(), "c:");
    let bucket = Counter::new("bucket", 1_000_000, Algorithm::Bucket { burst: 1_000_000, paced: false });
    let bucket = cost(&direct, &bucket.claim(Ask::Exactly, 1));
    for mixed in [false, true] {
        let units = |at: u64| if mixed { 1 + at % 2 } else { 1 };
        let total: u64 = (0..ENTRIES).map(units).sum();
        let log = Counter::new("log", ENTRIES, Algorithm::SlidingLog);
        write(&direct, &log, (0..ENTRIES).map(|at| (300 * (ENTRIES - at), units(at))));
        for requested in [1, ENTRIES / 3, ENTRIES / 2, ENTRIES] {
            let claim = log.claim(Ask::Exactly, requested);
            let refused = direct.settle_at(std::slice::from_ref(&claim), None).remove(0).unwrap().readings[0];
            assert!(!refused.admits, "{total} of {ENTRIES} are taken: {refused:?}");
            let log = cost(&direct, &claim);
            println!("{requested} of a log: {log:.0} µs, a bucket: {bucket:.0} µs, {:.1} times", log / bucket);
            assert!(log <= 5.0 * bucket, "{requested} of a log cost {log} µs, a bucket {bucket} µs");
        }
    }
}

/// Otherwise every claim that takes nothing would look at them.
#[test]
fn many_expired_entries_are_removed_by_a_refusal() {
    let redis = Redis::start();
    let direct = Direct::new(redis.port(), "x:");
    let log = Counter::log(ENTRIES);
    let expired = (0..ENTRIES - 1).map(|at| (1_000 * HOUR + ENTRIES - at, 1));
    write(&direct, &log, expired.chain([(5_000, ENTRIES)]));
    let length = || match direct.command(&[b"STRLEN", direct.own_name(&log.key()).as_bytes()]) {
        Answer::Number(length) => length,
        other => panic!("{other:?}"),
    };
    assert!(length() > 100_000);
    for _ in 0..2 {
        let refused = direct.settle_at(&[log.claim(Ask::Exactly, 1)], None).remove(0).unwrap().readings[0];
        assert!(!refused.admits && refused.remaining == 0, "{refused:?}");
        assert_eq!(length(), 8 + 14);
    }
}

fn answers_like_the_core(direct: &Direct) {
    let (reference, log, mut rng) = (Reference::default(), Counter::log(1_500), Rng::with_seed(11));
    let (mut now, mut moments) = (START, Vec::new());
    for number in 0..1_400 {
        // The first thousand fill the log; some of their entries expire.
        let is_filling = number < 1_000;
        now = now.after(Span::from_micros(1_000 * rng.u64(0..4_000)));
        moments.push(now);
        let taken_at = moments[rng.usize(moments.len().saturating_sub(1_200)..moments.len())];
        let units = *rng.choice(&[0, 1, 1, 2, 3, 40, 700, 1_500]).unwrap();
        let (ask, units) = match rng.u8(0..12) {
            _ if is_filling => (Ask::Regardless, rng.u64(1..3)),
            0..6 => (Ask::Exactly, units),
            6 => (Ask::UpTo, units.min(3)),
            7 => (Ask::Regardless, units.min(3)),
            8 => (Ask::Credit, units.min(3)),
            9 if rng.u8(0..20) == 0 => (Ask::Reset, 0),
            _ => (Ask::Return { taken_at }, units.min(40)),
        };
        direct.set_now(now);
        reference.set_now(now);
        // Several claims in a call share what was read.
        let claims = vec![log.claim(ask, units); if is_filling { 1 } else { rng.usize(1..4) }];
        for actual in direct.settle_all(&claims) {
            let expected = block_on(reference.settle(&claims[0]));
            assert_eq!(actual.unwrap(), expected, "claim {number} at {now:?}: {ask:?} {units}");
        }
    }
    assert_eq!(direct.unsound(), 0);
}

#[test]
fn parts_of_a_log_are_read_like_the_whole() {
    let redis = Redis::start();
    let direct = Direct::new(redis.port(), "p:");
    answers_like_the_core(&direct);
    let reads = |command: &str| redis.commandstats(command);
    assert!(reads("getrange") > 100 && reads("strlen") > 100);
}

/// A user without these permissions, as earlier versions needed them, reads logs as a whole.
#[test]
fn without_the_permission_logs_are_read_as_a_whole() {
    let redis = Redis::start();
    let direct = Direct::new(redis.port(), "p:");
    direct.command(&[
        b"ACL",
        b"SETUSER",
        b"old",
        b"on",
        b">pw",
        b"~p:*",
        b"-@all",
        b"+evalsha",
        b"+mget",
        b"+set",
        b"+exists",
        b"+time",
    ]);
    direct.command(&[b"AUTH", b"old", b"pw"]);
    answers_like_the_core(&direct);
    assert_eq!(redis.commandstats("getrange"), 0);
}
