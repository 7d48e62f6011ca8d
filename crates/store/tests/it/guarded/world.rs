//! Rules, claims on them, and servers over shards, with manual clocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smallvec::smallvec;
use tokio::task::JoinHandle;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Period, Reading, Scope, Settlement, Shortcuts,
    Span, Timestamp, Value,
};
use tollgate_store::sharded::{MemoryShards, ShardFault, ShardId, ShardNode, Sharded};
use tollgate_store::{Circuit, GuardConfig, Guarded, ManualClock, Store};

/// A time at which every window begins.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_767_225_600);

/// A rule on a minute.
pub(crate) struct Rule {
    scope: Scope,
    pub(crate) limit: Limit,
    on_failure: OnFailure,
}

impl Rule {
    pub(crate) fn new(name: &str, amount: u64, algorithm: Algorithm, on_failure: OnFailure) -> Rule {
        Rule::at_home(name, amount, algorithm, on_failure, Home::Own)
    }

    /// A rule whose counters live with the caller's others.
    pub(crate) fn of_callers(name: &str, amount: u64, algorithm: Algorithm, on_failure: OnFailure) -> Rule {
        Rule::at_home(name, amount, algorithm, on_failure, Home::Caller(0))
    }

    fn at_home(name: &str, amount: u64, algorithm: Algorithm, on_failure: OnFailure, home: Home) -> Rule {
        let limit = Limit::new(amount, Period::fixed(Span::from_secs(60)).unwrap(), algorithm).unwrap();
        Rule { scope: Scope::new("d", name, algorithm, limit.period(), home), limit, on_failure }
    }

    /// Ten in a minute by a fixed window.
    pub(crate) fn ten(on_failure: OnFailure) -> Rule {
        Rule::new("ten", 10, Algorithm::FixedWindow, on_failure)
    }

    pub(crate) fn key<'a>(&'a self, value: &'a str) -> Key<'a> {
        Key::new(&self.scope, smallvec![Value::Text(value)])
    }

    pub(crate) fn asks<'a>(&'a self, value: &'a str, ask: Ask, units: u64, mode: Mode) -> Charge<'a> {
        let key = self.key(value);
        Charge {
            key,
            limit: &self.limit,
            ask,
            units,
            mode,
            on_failure: self.on_failure,
            shortcuts: Shortcuts::Refusals,
        }
    }

    pub(crate) fn take<'a>(&'a self, value: &'a str, units: u64) -> Charge<'a> {
        self.asks(value, Ask::Exactly, units, Mode::Enforce)
    }
}

pub(crate) fn claim<'a>(charges: impl IntoIterator<Item = Charge<'a>>) -> Claim<'a> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = ClaimId(NEXT.fetch_add(1, Ordering::Relaxed).into());
    Claim { id, charges: charges.into_iter().collect(), once: None, timeout: None }
}

/// A server over its own or shared shards.
pub(crate) struct Server {
    pub(crate) shards: MemoryShards<ManualClock>,
    pub(crate) guard: Arc<Guarded<MemoryShards<ManualClock>, ManualClock>>,
    task: Option<JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Server {
    pub(crate) fn new(shards: usize) -> Server {
        Server::with(shards, GuardConfig::default())
    }

    pub(crate) fn with(shards: usize, config: GuardConfig) -> Server {
        Server::over(MemoryShards::new(shards, 1_024, ManualClock::at(START)), config)
    }

    pub(crate) fn over(shards: MemoryShards<ManualClock>, config: GuardConfig) -> Server {
        let guard = Guarded::with_clock(shards.clone(), config, shards.clock().clone());
        Server::from_parts(shards, guard)
    }

    pub(crate) fn from_parts(
        shards: MemoryShards<ManualClock>,
        guard: Guarded<MemoryShards<ManualClock>, ManualClock>,
    ) -> Server {
        Server { shards, guard: guard.into(), task: None }
    }

    /// Starts the background tasks.
    pub(crate) fn run(&mut self) {
        let guard = self.guard.clone();
        self.task = Some(tokio::spawn(async move { guard.run().await }));
    }

    pub(crate) fn node(&self, shard: u32) -> &ShardNode<ManualClock> {
        &self.shards.nodes()[shard as usize]
    }

    /// A value whose counters live in this shard.
    pub(crate) fn value(&self, rule: &Rule, shard: u32, nth: usize) -> String {
        let mut values = (0..).map(|number: u32| format!("v{number}"));
        values.by_ref().filter(|value| self.shards.locate(&rule.key(value)).shard == ShardId(shard)).nth(nth).unwrap()
    }

    pub(crate) async fn settle(&self, claim: &Claim<'_>) -> Settlement {
        self.guard.settle(claim).await
    }

    /// Settles a claim of one charge.
    pub(crate) async fn one(&self, charge: Charge<'_>) -> Reading {
        self.settle(&claim([charge])).await.readings[0]
    }

    pub(crate) fn circuit(&self, shard: usize) -> Circuit {
        self.guard.status().shards[shard].circuit
    }

    pub(crate) fn fail_open(&self, reason: &str) -> u64 {
        self.guard.status().fail_open.iter().find(|(name, _)| *name == reason).unwrap().1
    }

    /// Makes a shard fail until its breaker opens.
    pub(crate) async fn lose(&self, shard: u32) {
        let deny = Rule::new("lose", 10, Algorithm::FixedWindow, OnFailure::Deny);
        let value = self.value(&deny, shard, 0);
        self.node(shard).set_fault(ShardFault::Unreachable);
        for _ in 0..5 {
            self.one(deny.take(&value, 1)).await;
            skip(self.shards.clock(), Duration::from_millis(10));
        }
        assert_eq!(self.circuit(shard as usize), Circuit::Open);
    }

    /// Advances the time.
    pub(crate) async fn pass(&self, time: Duration) {
        pass(self.shards.clock(), time).await;
    }
}

/// Advances only the clock of the stores.
pub(crate) fn skip(clock: &ManualClock, time: Duration) {
    use tollgate_store::Clock;
    clock.set(clock.now().after(Span::from_micros(time.as_micros() as u64)));
}

/// Advances all clocks, in steps.
pub(crate) async fn pass(clock: &ManualClock, time: Duration) {
    const STEP: Duration = Duration::from_millis(10);
    for _ in 0..time.as_millis() / STEP.as_millis() {
        skip(clock, STEP);
        tokio::time::sleep(STEP).await;
    }
}
