//! Claims on the store, many at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tollgate::{DenyCache, Descriptor, GuardConfig, Guarded, Limiter, Request, Ruleset, Source};
use tollgate_redis::{RedisConfig, RedisStore};
use tollgate_rules::{LoadOptions, load_sources};

use crate::workload::Random;

/// How many claims are under way at any time.
pub const IN_FLIGHT: usize = 256;

/// How long a claim waits for Redis: so long that none is answered without it. What is measured is what an answer costs.
const DEADLINE: Duration = Duration::from_secs(1);

/// What the server settles claims with.
pub type Counters = DenyCache<Arc<Guarded<RedisStore>>>;

/// The store, with a thread that speaks to Redis and one that asks, as in the server.
pub struct Driven {
    guard: Arc<Guarded<RedisStore>>,
    worker: Runtime,
    /// Dropped with this, which ends the thread.
    _tending: oneshot::Sender<()>,
}

/// Those who ask: each has a user, a key and a name as a customer, all of 16 characters.
pub struct Callers(Vec<String>);

/// What came of claims.
#[derive(Clone, Copy, Default)]
pub struct Tally {
    pub decisions: u64,
    pub admitted: u64,
}

impl Driven {
    pub fn new(url: &str) -> Driven {
        let config = RedisConfig::new(url.parse().expect("an address"));
        let guard = GuardConfig { deadline: DEADLINE, ..GuardConfig::default() };
        let guard = Arc::new(Guarded::new(config.build().expect("a store"), guard));
        let (tending, dropped) = oneshot::channel::<()>();
        let (tended, runtime) = (Arc::clone(&guard), one_thread());
        std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = tended.inner().run() => {}
                    () = tended.run() => {}
                    _ = dropped => {}
                }
            });
        });
        Driven { guard, worker: one_thread(), _tending: tending }
    }

    /// Rules on this store.
    pub fn limiter(&self, rules: &str) -> Arc<Limiter<Counters>> {
        Arc::new(Limiter::new(ruleset(rules), DenyCache::new(Arc::clone(&self.guard))))
    }

    /// Rules on this store, whose refusals are all Redis's own.
    pub fn forgetful(&self, rules: &str) -> Arc<Limiter<Arc<Guarded<RedisStore>>>> {
        Arc::new(Limiter::new(ruleset(rules), Arc::clone(&self.guard)))
    }

    /// Asks for so long, for callers drawn evenly.
    pub fn drive<S: tollgate::Store + 'static>(
        &self,
        limiter: &Arc<Limiter<S>>,
        callers: &Arc<Callers>,
        seconds: f64,
    ) -> Tally {
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        self.drive_while(limiter, callers, move |_| Instant::now() < until)
    }

    /// Sends claims as long as a condition on the number of the claim holds.
    pub fn drive_while<S: tollgate::Store + 'static>(
        &self,
        limiter: &Arc<Limiter<S>>,
        callers: &Arc<Callers>,
        goes_on: impl Fn(u64) -> bool + Clone + Send + 'static,
    ) -> Tally {
        self.worker.block_on(async {
            let mut tasks = JoinSet::new();
            for number in 0..IN_FLIGHT as u64 {
                let (limiter, callers, goes_on) = (Arc::clone(limiter), Arc::clone(callers), goes_on.clone());
                tasks.spawn(async move {
                    let (mut random, mut tally) = (Random::seeded(number), Tally::default());
                    while goes_on(tally.decisions * IN_FLIGHT as u64 + number) {
                        let entries = entries(callers.draw(&mut random));
                        let descriptors = [Descriptor::new(&entries)];
                        let request =
                            Request { domain: None, descriptors: &descriptors, cost: 1, ..Request::default() };
                        let decision = limiter.check_request(&request).await.expect("a request that can be decided");
                        assert_eq!(decision.source(), Source::Store, "a decision that is not Redis's");
                        tally.decisions += 1;
                        tally.admitted += u64::from(decision.allowed());
                    }
                    tally
                });
            }
            let all = tasks.join_all().await;
            all.iter().fold(Tally::default(), |sum, tally| Tally {
                decisions: sum.decisions + tally.decisions,
                admitted: sum.admitted + tally.admitted,
            })
        })
    }

    /// How many units the first caller has left of the tightest limit.
    pub fn left<S: tollgate::Store>(&self, limiter: &Limiter<S>, callers: &Callers) -> u64 {
        let entries = entries(&callers.0[0]);
        let descriptors = [Descriptor::new(&entries)];
        let request = Request { domain: None, descriptors: &descriptors, cost: 0, ..Request::default() };
        let decision = self.worker.block_on(limiter.check_request(&request)).expect("a request that can be decided");
        decision.tightest().expect("a limit").reading.remaining
    }
}

impl Callers {
    pub fn new(callers: usize) -> Callers {
        Callers((0..callers).map(|n| format!("caller-{n:09}")).collect())
    }

    /// One, of another name than all others.
    pub fn one(name: &str) -> Callers {
        Callers(vec![name.to_owned()])
    }

    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// One of them, by lot.
    pub fn draw(&self, random: &mut Random) -> &str {
        &self.0[(random.next() % self.0.len() as u64) as usize]
    }
}

/// What a request of a caller says.
fn entries(caller: &str) -> [(&str, &str); 4] {
    [("customer", caller), ("user_id", caller), ("api_key", caller), ("endpoint", "GET /v1/orders")]
}

pub fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

pub fn ruleset(rules: &str) -> Ruleset {
    let source = tollgate_rules::RuleFile { name: "bench".to_owned(), text: rules.to_owned() };
    let loaded = load_sources(&[source], &LoadOptions::default()).expect("rules that load");
    Ruleset::compile(loaded.domains, 1).expect("rules that compile")
}
