//! Counters in Redis: guarded, with refusals remembered, and tended on a thread of their own.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tollgate::{Source, Store};
use tollgate_core::{Claim, Settlement};
use tollgate_store::Tending;
use tollgate_store::guarded::{GuardConfig, Guarded, Level};
use tollgate_store::redis::RedisStore;
use tollgate_store::remembered::Remembered;

use super::{Agreeing, Settling, Shared, SharedStatus};

/// Counters that all servers with this Redis share.
#[derive(Debug)]
pub(crate) struct InRedis {
    store: Remembered<Arc<Guarded<RedisStore>>>,
    /// The [`Level`], by its place in `LEVELS`.
    level: AtomicU8,
}

const LEVELS: [Level; 4] = [Level::Normal, Level::Degraded, Level::LocalOnly, Level::Open];

/// How long a server that starts waits for Redis.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

impl InRedis {
    pub(crate) fn new(redis: RedisStore, config: GuardConfig) -> Arc<InRedis> {
        let store = Remembered::new(Arc::new(Guarded::new(redis, config)));
        Arc::new(InRedis { store, level: AtomicU8::new(0) })
    }

    /// Connects, and keeps connected. A Redis that is away is no error.
    pub(crate) fn tend(&self) -> io::Result<Tending> {
        Tending::start(self.store.inner().clone())
    }

    /// Waits until all shards answer, but not for long. Who takes requests before that would decide the first ones without Redis.
    pub(crate) async fn first_answer(&self) {
        // Without Redis the server starts all the same.
        self.store.inner().inner().first_answer(FIRST_ANSWER).await;
    }

    /// Looks how it is.
    pub(super) fn look(&self) -> SharedStatus {
        let status = self.status();
        let level = LEVELS.iter().position(|level| *level == status.guard.level).unwrap_or(0);
        self.level.store(level as u8, Ordering::Relaxed);
        status
    }
}

impl Shared for InRedis {
    fn settle<'a>(&'a self, claim: &'a Claim<'_>, settlement: &'a mut Settlement) -> Settling<'a> {
        Box::pin(self.store.settle_into(claim, settlement))
    }

    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement) {
        self.store.assume(claim, source, settlement);
    }

    fn level(&self) -> Level {
        LEVELS.get(usize::from(self.level.load(Ordering::Relaxed))).copied().unwrap_or_default()
    }

    fn status(&self) -> SharedStatus {
        let guard = self.store.inner();
        SharedStatus { guard: guard.status(), redis: guard.inner().stats() }
    }

    fn agree_on<'a>(&'a self, name: &'a str, proposal: &'a [u8], within: Duration) -> Agreeing<'a> {
        let redis = self.store.inner().inner();
        Box::pin(async move { redis.agree_on(name, proposal, within).await.map_err(|failure| failure.to_string()) })
    }
}
