//! Once a second somebody looks at what is counted, and at the store. What pages and streams show is as of then: however many ask,
//! nothing is read for them that decisions write.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tollgate::Timestamp;
use tollgate_observe::{History, Observer};
use tollgate_store::guarded::{Circuit, Level};

use crate::control::Control;
use crate::counters::Counters;
use crate::net::Closing;
use crate::observe::Sight;

/// What was seen at the last look.
#[derive(Debug)]
pub(crate) struct Pulse {
    history: Mutex<History>,
    store: Mutex<Arc<StoreSeen>>,
    /// How many looks there were.
    looks: watch::Sender<u64>,
}

/// How the store was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreSeen {
    pub(crate) level: Level,
    /// When it was first seen to be other than normal; `None` if it is normal.
    pub(crate) since: Option<Timestamp>,
    pub(crate) circuits: Vec<(String, Circuit)>,
    /// Counters in this server's memory.
    pub(crate) keys: u64,
    /// Live ones that had to make room.
    pub(crate) evicted: u64,
}

/// How often is looked.
const EVERY: Duration = Duration::from_secs(1);
/// What a store in memory is called beside shards.
const MEMORY: &str = "memory";

impl Pulse {
    pub(crate) fn new(begin: Timestamp) -> Pulse {
        Pulse {
            history: Mutex::new(History::new(begin)),
            store: Mutex::new(Arc::new(StoreSeen { circuits: closed(), ..StoreSeen::default() })),
            looks: watch::Sender::new(0),
        }
    }

    /// Looks.
    pub(crate) fn look(&self, observer: &Observer, control: &Control) {
        let (limiter, now) = (control.limiter(), control.now());
        // So that rules which nobody has met yet have their rows too.
        observer.tally().expect(&limiter.rules());
        self.history().sample(observer, now);
        let before = self.store();
        let seen = StoreSeen::of(limiter.store(), &before, now);
        *self.store.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(seen);
        self.looks.send_modify(|looks| *looks += 1);
    }

    /// What decisions came to. No decision waits for it.
    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn store(&self) -> Arc<StoreSeen> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells when was looked.
    pub(crate) fn looks(&self) -> watch::Receiver<u64> {
        self.looks.subscribe()
    }
}

impl StoreSeen {
    fn of(counters: &Counters, before: &StoreSeen, now: Timestamp) -> StoreSeen {
        let Some(shared) = counters.shared() else {
            let stats = counters.memory().map(|store| store.stats()).unwrap_or_default();
            return StoreSeen {
                circuits: closed(),
                keys: stats.keys as u64,
                evicted: stats.evicted,
                ..StoreSeen::default()
            };
        };
        let guard = shared.status().guard;
        // One of which nothing is heard is not normal, though nobody asked it anything.
        let level = if guard.unheard.is_some() { guard.level.max(Level::Degraded) } else { guard.level };
        StoreSeen {
            level,
            since: (level != Level::Normal).then(|| before.since.unwrap_or(now)),
            circuits: guard.shards.into_iter().map(|shard| (shard.name, shard.circuit)).collect(),
            keys: guard.local as u64,
            evicted: 0,
        }
    }
}

fn closed() -> Vec<(String, Circuit)> {
    vec![(MEMORY.to_owned(), Circuit::Closed)]
}

/// Looks until the server is about to stop.
pub(crate) async fn watch(sight: Arc<Sight>, control: Arc<Control>, mut closing: Closing) {
    let mut looks = tokio::time::interval(EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            () = closing.begun() => return,
        }
        let (sight, control) = (sight.clone(), control.clone());
        // There may be ten thousand rows, and this thread has others to serve.
        let looked = tokio::task::spawn_blocking(move || sight.pulse.look(&sight.observer, &control)).await;
        if let Err(error) = looked {
            tracing::warn!(%error, "what is counted could not be looked at");
        }
    }
}
