//! Debits between regions with a real server each: partitions, lost answers, servers that are killed, and lag.

use std::collections::HashMap;
use std::time::Duration;

use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Apart, Charge, Claim, ClaimId, GlobalTerms, Key, Limit, Mode, OnFailure, Period, RegionLink, Scope,
    Shortcuts, Source, Span, Value,
};
use tollgate_redis::{RedisCounters, RedisRegion};
use tollgate_store::{Clock as _, DebitConfig, DebitStatus, GuardConfig, LeaseConfig, Store, SystemClock};
use tollgate_testing::{Redis, Relay, machine};

use crate::{RunningStore, TIMEOUT, config, until};

const REGIONS: usize = 3;
const NAMES: [&str; REGIONS] = ["a", "b", "c"];
const CALLERS: usize = 40;

/// Three regions with a server each, and a relay on each way between them.
struct World {
    redis: Vec<Redis>,
    /// From each region to each.
    relays: Vec<Vec<Relay>>,
    servers: Vec<Option<RedisCounters>>,
    /// Reads the counters of each region.
    readers: Vec<RunningStore>,
    rule: Rule,
    taken: HashMap<usize, u64>,
}

struct Rule {
    scope: Scope,
    limit: Limit,
}

impl Rule {
    fn new(amount: u64) -> Rule {
        // No test reaches the end of the period.
        let period = Period::fixed(Span::from_secs(86_400)).unwrap();
        let limit = Limit::new(amount, period, Algorithm::SlidingWindow { sub_windows: 1 }).unwrap();
        let scope = Scope::new("shop", "all", limit.algorithm(), limit.period(), Home::Caller(0));
        Rule { scope: scope.with_global(Some(GlobalTerms { apart: Apart::Alone, debit_threshold: 0 })), limit }
    }

    fn claim<'a>(&'a self, caller: &'a str, units: u64) -> Claim<'a> {
        let charge = Charge {
            key: Key::new(&self.scope, smallvec![Value::Text(caller)]),
            limit: &self.limit,
            ask: tollgate_core::Ask::Exactly,
            units,
            mode: Mode::Enforce,
            on_failure: OnFailure::Local,
            shortcuts: Shortcuts::Refusals,
        };
        Claim { id: ClaimId(1), charges: smallvec![charge], once: None, timeout: None }
    }
}

impl World {
    /// `delay` is how long a message is on its way between two regions.
    async fn start(delay: Duration) -> World {
        let redis: Vec<Redis> = (0..REGIONS).map(|_| Redis::start()).collect();
        let relay = |to: &Redis| Relay::far_from(to.port(), delay);
        let relays: Vec<Vec<Relay>> = (0..REGIONS).map(|_| redis.iter().map(relay).collect()).collect();
        let readers = redis.iter().map(|redis| RunningStore::at(&redis.url())).collect();
        let mut world =
            World { redis, relays, servers: Vec::new(), readers, rule: Rule::new(1_000_000), taken: HashMap::new() };
        for region in 0..REGIONS {
            let server = world.server(region);
            assert!(server.wait_until_ready(TIMEOUT).await);
            world.servers.push(Some(server));
        }
        world
    }

    fn server(&self, here: usize) -> RedisCounters {
        let other = |to: usize| {
            let url = format!("redis://127.0.0.1:{}", self.relays[here][to].port());
            RedisRegion { deadline: Duration::from_millis(200), ..RedisRegion::new(NAMES[to], config(&url)) }
        };
        let others = (0..REGIONS).filter(|to| *to != here).map(other).collect();
        // A busy machine is not a failure of the region itself.
        let guard = GuardConfig { deadline: TIMEOUT, cool_down: Duration::from_millis(500), ..GuardConfig::default() };
        let leases = LeaseConfig { is_enabled: false, ..LeaseConfig::default() };
        let own = config(&self.redis[here].url());
        RedisCounters::in_regions(own, others, guard, leases, DebitConfig::default(), None).unwrap()
    }

    async fn take(&mut self, region: usize, caller: usize, units: u64) {
        let name = caller.to_string();
        let Some(server) = &self.servers[region] else { return };
        let settlement = server.settle(&self.rule.claim(&name, units)).await;
        let reading = settlement.readings[0];
        assert!(reading.admits && reading.source == Source::Store, "{reading:?}");
        *self.taken.entry(caller).or_default() += units;
    }

    /// Each region takes units of all callers, again and again, for this long.
    async fn take_for(&mut self, duration: Duration) {
        const PAUSE: Duration = Duration::from_millis(50);
        for round in 0..duration.as_millis() / PAUSE.as_millis() {
            for caller in 0..CALLERS {
                self.take((caller + round as usize) % REGIONS, caller, 1 + caller as u64 % 3).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// What a region counts of each caller.
    async fn used(&self, region: usize) -> Vec<u64> {
        let mut used = Vec::new();
        for caller in 0..CALLERS {
            let name = caller.to_string();
            let claim = self.rule.claim(&name, 0);
            let location = tollgate_store::sharded::Sharded::locate(&self.readers[region].store, &claim.charges[0].key);
            let mut settlement = tollgate_core::Settlement::default();
            let record = tollgate_store::sharded::OnceRecord::Whole;
            let settled = tollgate_store::sharded::Sharded::settle_at(
                &self.readers[region].store,
                location,
                &claim,
                record,
                TIMEOUT,
                &mut settlement,
            );
            settled.await.unwrap();
            used.push(self.rule.limit.quota() - settlement.readings[0].remaining);
        }
        used
    }

    /// What no region may exceed, and how much of all that was taken a region misses.
    async fn missing(&self, region: usize) -> u64 {
        let mut missing = 0;
        for (caller, used) in self.used(region).await.into_iter().enumerate() {
            let taken = self.taken.get(&caller).copied().unwrap_or(0);
            assert!(used <= taken, "{} counts {used} units of {taken} of caller {caller}", NAMES[region]);
            missing += taken - used;
        }
        missing
    }

    fn all_taken(&self) -> u64 {
        self.taken.values().sum()
    }

    fn debits(&self, region: usize) -> Vec<DebitStatus> {
        self.servers[region].as_ref().map(RedisCounters::debits).unwrap_or_default()
    }

    fn is_together(&self) -> bool {
        (0..REGIONS).all(|region| self.debits(region).iter().all(|debit| debit.link == RegionLink::Together))
    }

    fn is_apart(&self, from: usize) -> bool {
        self.debits(from).iter().any(|debit| debit.link == RegionLink::Apart)
    }

    /// Waits until nothing is to be sent any more.
    async fn drained(&self) {
        until(|| async {
            (0..REGIONS).all(|region| self.debits(region).iter().all(|debit| debit.oldest == Span::ZERO))
        })
        .await;
    }

    fn stall(&self, from: usize, to: usize) {
        self.relays[from][to].stall();
    }

    fn heal(&mut self, from: usize, to: usize) {
        let relay = &mut self.relays[from][to];
        // What stood still is gone, as after a real partition.
        relay.cut();
        relay.pass();
    }
}

/// A partition of region 0, one way or both, while all regions take units. Afterwards all count the same, but for what had no
/// answer when it began.
async fn partition(both_ways: bool, duration: Duration) {
    let mut world = World::start(Duration::from_millis(20)).await;
    world.take_for(Duration::from_secs(2)).await;
    let ways: Vec<(usize, usize)> =
        [(0, 1), (0, 2), (1, 0), (2, 0)].into_iter().take(if both_ways { 4 } else { 2 }).collect();
    ways.iter().for_each(|(from, to)| world.stall(*from, *to));
    world.take_for(duration).await;
    assert!(world.is_apart(0) && world.is_apart(1) == both_ways);
    let flagged = world.servers[0].as_ref().unwrap().settle(&world.rule.claim("other", 0)).await;
    assert_eq!(flagged.link, RegionLink::Apart);
    ways.iter().for_each(|(from, to)| world.heal(*from, *to));
    let clock = SystemClock::default();
    let healed = clock.steady();
    until(|| async { world.is_together() }).await;
    world.drained().await;
    let took = clock.steady().since(healed);
    println!("what waited was sent in {} ms", took.as_micros() / 1_000);
    let all = world.all_taken();
    for (region, name) in NAMES.into_iter().enumerate() {
        let missing = world.missing(region).await;
        let unsure: u64 = (0..REGIONS)
            .filter(|from| *from != region)
            .flat_map(|from| world.debits(from))
            .filter(|debit| debit.region == name)
            .map(|debit| debit.units.unsure + debit.units.dropped)
            .sum();
        println!("{name}: misses {missing} of {all}, {unsure} had no answer");
        assert!(missing <= unsure, "{name}: {missing} are missing, {unsure} had no answer");
        if duration >= Duration::from_secs(30) {
            assert!(took <= Span::from_secs(10), "{took:?}");
            assert!(missing * 100 <= all, "{name}: {missing} of {all} are missing");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_taken_in_a_partition_counts_everywhere_after_it() {
    partition(true, Duration::from_secs(4)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more than half a minute: make test-long"]
async fn slow_a_partition_of_half_a_minute_heals() {
    partition(true, Duration::from_secs(30)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more than half a minute: make test-long"]
async fn slow_a_partition_of_half_a_minute_in_one_direction_heals() {
    partition(false, Duration::from_secs(30)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_debit_whose_answer_is_lost_counts_once() {
    let mut world = World::start(Duration::ZERO).await;
    world.take_for(Duration::from_millis(500)).await;
    world.drained().await;
    for _ in 0..3 {
        world.relays[0][1].lose_reply_to(b"EVALSHA");
        let lost = world.relays[0][1].replies_lost();
        world.take(0, 7, 5).await;
        until(|| async { world.relays[0][1].replies_lost() > lost }).await;
        until(|| async { world.debits(0)[0].oldest == Span::ZERO }).await;
    }
    world.drained().await;
    assert_eq!(world.debits(0)[0].units.unsure, 15);
    // They arrived, and were not sent again.
    assert_eq!((world.missing(1).await, world.missing(2).await), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ends_with_a_full_outbox_loses_only_that() {
    let mut world = World::start(Duration::ZERO).await;
    world.take_for(Duration::from_millis(500)).await;
    world.drained().await;
    let before = world.all_taken();
    world.relays[0][1].refuse();
    world.relays[0][1].cut();
    for caller in 0..CALLERS {
        world.take(0, caller, 3).await;
    }
    until(|| async { world.debits(0)[1].units.sent >= before / 4 && world.debits(0)[1].oldest == Span::ZERO }).await;
    let waiting = world.debits(0)[0].waiting;
    assert!(waiting > 0, "{waiting}");
    // It can't send what waits, and a new one knows nothing of it.
    world.servers[0] = None;
    world.relays[0][1].pass();
    let server = world.server(0);
    assert!(server.wait_until_ready(TIMEOUT).await);
    world.servers[0] = Some(server);
    world.take_for(Duration::from_millis(500)).await;
    until(|| async { world.debits(0)[0].units.sent > 0 }).await;
    world.drained().await;
    assert_eq!((world.missing(0).await, world.missing(2).await), (0, 0));
    let missing = world.missing(1).await;
    assert!(missing <= 3 * CALLERS as u64, "{missing}");
}

/// Bursts that begin in all regions at once: what is over the limit is at most what regions took within the lag.
async fn burst(algorithm: Algorithm, period: Span) {
    const AMOUNT: u64 = 1_000;
    const TICKS: u64 = 300;
    const TAKEN_AT_ONCE: u64 = 3;
    let mut world = World::start(Duration::from_millis(20)).await;
    let limit = Limit::new(AMOUNT, Period::fixed(period).unwrap(), algorithm).unwrap();
    let scope = Scope::new("shop", "burst", algorithm, limit.period(), Home::Caller(0));
    let terms = GlobalTerms { apart: Apart::Alone, debit_threshold: 0 };
    world.rule = Rule { scope: scope.with_global(Some(terms)), limit };
    let clock = SystemClock::default();
    let began = clock.steady();
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    let mut admitted = 0;
    for _ in 0..TICKS {
        ticks.tick().await;
        for server in world.servers.iter().flatten() {
            for _ in 0..TAKEN_AT_ONCE {
                let reading = server.settle(&world.rule.claim("me", 1)).await.readings[0];
                assert!(matches!(reading.source, Source::Store | Source::Cache), "{reading:?}");
                admitted += u64::from(reading.admits);
            }
        }
    }
    let seconds = clock.steady().since(began).as_micros() as f64 / 1e6;
    world.drained().await;
    // However busy the machine is: by the rate and the lag that it had.
    let lag = (0..REGIONS).flat_map(|region| world.debits(region)).filter_map(|debit| debit.lag.quantile(1.0));
    let (lag, demand) = (lag.fold(0.0, f64::max), (TICKS * TAKEN_AT_ONCE) as f64 / seconds);
    let replenished = match algorithm {
        Algorithm::Bucket { .. } => seconds * AMOUNT as f64 / (period.as_micros() as f64 / 1e6),
        _ => 0.0,
    };
    let others = (REGIONS - 1) as f64;
    let bound = AMOUNT as f64 + replenished + others * ((demand * lag).min(AMOUNT as f64) + TAKEN_AT_ONCE as f64);
    println!("{algorithm:?}: {admitted} of at most {bound:.0}, {demand:.0} requests a second in a region, lag {lag} s");
    assert!(admitted >= AMOUNT && admitted as f64 <= bound, "{algorithm:?}: {admitted} of {bound}");
    let unsure: u64 = (0..REGIONS).flat_map(|region| world.debits(region)).map(|debit| debit.units.unsure).sum();
    assert_eq!(unsure, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bursts_in_all_regions_exceed_a_limit_by_what_is_taken_within_the_lag() {
    burst(Algorithm::FixedWindow, Span::from_secs(86_400)).await;
    burst(Algorithm::SlidingWindow { sub_windows: 1 }, Span::from_secs(86_400)).await;
    burst(Algorithm::Bucket { burst: 1_000, paced: false }, Span::from_secs(60)).await;
}

/// Whichever server of the region resets a counter: what another one has not sent yet is dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_drops_what_waits_on_other_servers() {
    let mut world = World::start(Duration::ZERO).await;
    let second = world.server(0);
    assert!(second.wait_until_ready(TIMEOUT).await);
    world.relays[0][1].refuse();
    world.relays[0][1].cut();
    let waiting = |world: &World| world.debits(0)[0].waiting;
    // From then on the server reads what the other one did.
    world.take(0, 1, 3).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.take(0, 0, 5).await;
    assert_eq!(waiting(&world), 2);
    let mut reset = world.rule.claim("0", 0);
    reset.charges[0].ask = tollgate_core::Ask::Reset;
    assert_eq!(second.settle(&reset).await.readings[0].source, Source::Store);
    until(|| async { waiting(&world) == 1 }).await;
    world.relays[0][1].pass();
    world.drained().await;
    assert_eq!(world.used(1).await[..2], [0, 3]);
    assert_eq!(world.debits(0)[0].units.returned, 5);
}

/// 10,000 debits a second: 5,000 counters a second, each debited in two regions with a round trip of 40 ms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "judges how long debits take, on a machine without other tests: make test-long"]
async fn slow_debits_arrive_within_a_quarter_of_a_second() {
    const SECONDS: usize = 10;
    const BATCH: usize = 50;
    machine::alone();
    let world = World::start(Duration::from_millis(20)).await;
    let server = world.servers[0].as_ref().unwrap();
    let names: Vec<String> = (0..50_000).map(|caller| format!("caller {caller}")).collect();
    let mut beats = tokio::time::interval(Duration::from_millis(10));
    let mut taken = 0;
    for batch in 0..SECONDS * 100 {
        beats.tick().await;
        let mut claims = Vec::new();
        for at in 0..BATCH {
            claims.push(world.rule.claim(&names[(batch * BATCH + at) % names.len()], 1));
        }
        for claim in &claims {
            assert!(server.settle(claim).await.readings[0].admits);
            taken += 1;
        }
    }
    world.drained().await;
    let mut count = 0;
    for debit in world.debits(0) {
        let [half, most, all] = [0.5, 0.99, 1.0].map(|share| debit.lag.quantile(share).unwrap());
        count += debit.lag.count();
        println!("{}: {} debits, p50 ≤ {half} s, p99 ≤ {most} s, max ≤ {all} s", debit.region, debit.lag.count());
        assert!(most <= 0.25, "{}: p99 of {most} s", debit.region);
        assert_eq!((debit.units.sent, debit.units.unsure), (taken, 0));
    }
    assert!(count as usize >= SECONDS * 9_000, "{count} debits");
}
