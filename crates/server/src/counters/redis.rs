//! Counters in Redis: guarded, with refusals remembered, and tended on a thread of its own.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tokio::runtime;
use tokio::sync::oneshot;
use tollgate::{Source, Store};
use tollgate_core::{Claim, Settlement};
use tollgate_store::guarded::{GuardConfig, Guarded, Level};
use tollgate_store::redis::RedisStore;
use tollgate_store::remembered::Remembered;
use tollgate_store::sharded::Sharded;

use super::{Agreeing, Settling, Shared, SharedStatus};

/// Counters that all servers with this Redis share.
#[derive(Debug)]
pub(crate) struct InRedis {
    store: Remembered<Arc<Guarded<RedisStore>>>,
    /// The [`Level`], by its place in `LEVELS`.
    level: AtomicU8,
}

/// The thread that speaks to Redis, until this is dropped.
///
/// It has nothing else to do: what holds up the main thread (lists of rules, metrics) must not make Redis look slow.
#[derive(Debug)]
pub(crate) struct Tending {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

const LEVELS: [Level; 4] = [Level::Normal, Level::Degraded, Level::LocalOnly, Level::Open];

/// How long a server that starts waits for Redis.
const FIRST_ANSWER: Duration = Duration::from_secs(1);
/// How often it asks.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// How long to wait before what ended, and should not have, is begun again.
const AGAIN: Duration = Duration::from_secs(1);

impl InRedis {
    pub(crate) fn new(redis: RedisStore, config: GuardConfig) -> Arc<InRedis> {
        let store = Remembered::new(Arc::new(Guarded::new(redis, config)));
        Arc::new(InRedis { store, level: AtomicU8::new(0) })
    }

    /// Connects, and keeps connected. A Redis that is away is no error.
    pub(crate) fn tend(&self) -> io::Result<Tending> {
        let guard = self.store.inner().clone();
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = Builder::new().name("store".to_owned()).spawn(move || {
            runtime.block_on(async {
                let connections = again("connections", || {
                    let guard = guard.clone();
                    async move { guard.inner().tend().await }
                });
                let shards = again("shards", || {
                    let guard = guard.clone();
                    async move { guard.tend().await }
                });
                tokio::select! {
                    () = connections => {}
                    () = shards => {}
                    // However it comes to that.
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Tending { stop: Some(stop), thread: Some(thread) })
    }

    /// Waits until all shards answer, but not for long. Who takes requests before that would decide the first ones without Redis.
    pub(crate) async fn first_answer(&self) {
        let redis = self.store.inner().inner();
        let all_answer = async {
            loop {
                let mut well = true;
                for shard in redis.shards() {
                    well &= redis.probe(shard.id, FIRST_ANSWER).await.is_ok();
                }
                if well {
                    return;
                }
                tokio::time::sleep(ASK_AGAIN).await;
            }
        };
        // Without Redis the server starts all the same.
        let _ = tokio::time::timeout(FIRST_ANSWER, all_answer).await;
    }

    /// Looks how it is.
    pub(super) fn look(&self) -> SharedStatus {
        let status = self.status();
        let level = LEVELS.iter().position(|level| *level == status.guard.level).unwrap_or(0);
        self.level.store(level as u8, Ordering::Relaxed);
        status
    }
}

/// Does what never ends, and begins again if it ended all the same.
async fn again<F: Future<Output = ()> + Send + 'static>(what: &str, begin: impl Fn() -> F) {
    loop {
        let ended = tokio::spawn(begin()).await;
        tracing::error!(?ended, "what tends the {what} of the store ended, and is begun again");
        tokio::time::sleep(AGAIN).await;
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

impl Drop for Tending {
    fn drop(&mut self) {
        // A thread that has ended already is as good.
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
