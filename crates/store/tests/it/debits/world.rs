//! Three regions with a server each, and the ways between them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, GlobalTerms, Key, Limit, Mode, OnFailure, Period, RegionId, Scope,
    Settlement, Shortcuts, Span, Timestamp, Value,
};
use tollgate_store::conformance::block_on;
use tollgate_store::debits::Routes;
use tollgate_store::sharded::{Failure, ShardId};
use tollgate_store::{Courier, DebitConfig, DebitOutbox, DebitStatus, ManualClock, MemoryConfig, MemoryStore, Store};

pub(super) const START: Timestamp = Timestamp::from_secs(1_767_225_600);
pub(super) const REGIONS: usize = 3;

pub(super) type Memory = Arc<MemoryStore<ManualClock>>;
pub(super) type Server = DebitOutbox<Memory, TestCourier, ManualClock>;

/// The way from one region to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Way {
    #[default]
    Open,
    /// Nothing arrives, and that is known.
    Cut,
    /// The same, and a breaker is open.
    Broken,
    /// Nothing arrives, and there is no answer.
    Lost,
    /// Debits arrive, and there is no answer.
    Mute,
}

/// Brings debits to the stores of the other regions.
pub(super) struct TestCourier {
    /// By the number of the region.
    pub(super) stores: Vec<Memory>,
    pub(super) ways: Vec<Mutex<Way>>,
}

impl Routes for TestCourier {
    fn is_whole(&self, region: RegionId) -> bool {
        *self.way(region) != Way::Broken
    }

    fn shard(&self, key: &Key<'_>) -> ShardId {
        ShardId(0).at(key.region())
    }

    fn is_reachable(&self, shard: ShardId) -> bool {
        self.is_whole(shard.region())
    }

    fn servers_here(&self) -> u64 {
        1
    }
}

impl Courier for TestCourier {
    async fn deliver(&self, region: RegionId, claim: &Claim<'_>, timeout: Duration) -> Result<(), Failure> {
        assert_eq!(timeout, Duration::from_secs(1));
        let [charge] = &claim.charges[..] else { panic!("{claim:?}") };
        assert_eq!(charge.key.region(), region);
        let way = *self.way(region);
        if matches!(way, Way::Open | Way::Mute) {
            self.stores[usize::from(region.number())].settle(claim).await;
        }
        match way {
            Way::Open => Ok(()),
            Way::Cut | Way::Broken => Err(Failure::Unreachable("the way is cut".to_owned())),
            Way::Lost | Way::Mute => Err(Failure::Timeout),
        }
    }
}

impl TestCourier {
    fn way(&self, region: RegionId) -> std::sync::MutexGuard<'_, Way> {
        self.ways[usize::from(region.number())].lock().unwrap()
    }
}

/// Three regions with a server each.
pub(super) struct World {
    pub(super) clock: ManualClock,
    pub(super) stores: Vec<Memory>,
    pub(super) servers: Vec<Server>,
}

impl World {
    pub(super) fn new() -> World {
        let clock = ManualClock::at(START);
        let store = || Arc::new(MemoryConfig::default().build_with(clock.clone()));
        let stores: Vec<Memory> = (0..REGIONS).map(|_| store()).collect();
        let server = |here: usize| {
            // Each numbers itself first.
            let seen = (0..REGIONS).map(|number| stores[(here + number) % REGIONS].clone()).collect();
            let courier = TestCourier { stores: seen, ways: (0..REGIONS).map(|_| Mutex::default()).collect() };
            let others = (1..REGIONS).map(|number| (RegionId::new(number as u8), format!("region {number}"))).collect();
            DebitOutbox::with_clock(stores[here].clone(), courier, DebitConfig::default(), others, clock.clone())
        };
        World { servers: (0..REGIONS).map(server).collect(), clock, stores }
    }

    pub(super) fn set_way(&self, from: usize, to: usize, way: Way) {
        let number = (to + REGIONS - from) % REGIONS;
        *self.servers[from].courier().way(RegionId::new(number as u8)) = way;
    }

    /// All ways from and to a region.
    pub(super) fn set_ways(&self, region: usize, way: Way) {
        for other in (0..REGIONS).filter(|other| *other != region) {
            self.set_way(region, other, way);
            self.set_way(other, region, way);
        }
    }

    pub(super) fn skip(&self, millis: u64) {
        use tollgate_store::Clock as _;
        self.clock.set(self.clock.now().after(Span::from_micros(millis * 1_000)));
    }

    pub(super) fn beat(&self) {
        self.servers.iter().for_each(|server| block_on(server.maintain()));
    }

    pub(super) fn settle(&self, region: usize, charge: Charge<'_>) -> Settlement {
        block_on(self.servers[region].settle(&claim(charge)))
    }

    pub(super) fn take(&self, region: usize, rule: &Rule, caller: &str, units: u64) -> bool {
        self.settle(region, rule.take(caller, units)).readings[0].admits
    }

    /// What each region counts of a caller.
    pub(super) fn used(&self, rule: &Rule, caller: &str) -> [u64; REGIONS] {
        [0, 1, 2].map(|region| {
            let peek = Charge { ask: Ask::Exactly, ..rule.take(caller, 0) };
            let reading = block_on(self.stores[region].settle(&claim(peek))).readings[0];
            rule.limit.quota() - reading.remaining
        })
    }

    pub(super) fn status(&self, region: usize) -> Vec<DebitStatus> {
        self.servers[region].status()
    }
}

pub(super) struct Rule {
    pub(super) scope: Scope,
    pub(super) limit: Limit,
}

impl Rule {
    pub(super) fn new(amount: u64, algorithm: Algorithm, seconds: u64, terms: GlobalTerms) -> Rule {
        let limit = Limit::new(amount, Period::fixed(Span::from_secs(seconds)).unwrap(), algorithm).unwrap();
        let scope = Scope::new("d", "r", algorithm, limit.period(), Home::Caller(0)).with_global(Some(terms));
        Rule { scope, limit }
    }

    pub(super) fn window(amount: u64) -> Rule {
        Rule::new(amount, Algorithm::FixedWindow, 3_600, GlobalTerms { debit_threshold: 0, ..GlobalTerms::default() })
    }

    pub(super) fn take<'a>(&'a self, caller: &'a str, units: u64) -> Charge<'a> {
        Charge {
            key: Key::new(&self.scope, smallvec![Value::Text(caller)]),
            limit: &self.limit,
            ask: Ask::Exactly,
            units,
            mode: Mode::Enforce,
            on_failure: OnFailure::Local,
            shortcuts: Shortcuts::Leases,
        }
    }
}

pub(super) fn claim(charge: Charge<'_>) -> Claim<'_> {
    Claim { id: ClaimId(1), charges: smallvec![charge], once: None, timeout: None }
}
