//! The thread that communicates with Redis.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tokio::runtime;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::SummedRedis;

/// Runs a store in Redis until it is dropped: connections, probes, heartbeats, the outbox, leases,
/// debits for other regions, the changes of operators on other servers, and what the servers count by themselves.
///
/// It is a thread of its own with nothing else to do, so that a busy process does not make Redis look slow.
#[derive(Debug)]
pub(crate) struct StoreDriver {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The pause before a task that ended unexpectedly is restarted.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// The interval at which leases and sums get the number of servers, which heartbeats count.
const SERVERS_INTERVAL: Duration = Duration::from_millis(500);
/// The time in which leases are given back when the store is dropped, and as much for debits for other regions. What is not
/// given back then expires in Redis.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);

impl StoreDriver {
    /// Starts the thread. Succeeds even if Redis is unavailable.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(store: Arc<SummedRedis>) -> io::Result<StoreDriver> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = Builder::new().name("store".to_owned()).spawn(move || {
            runtime.block_on(async {
                let guard = store.inner().inner().inner().inner().clone();
                // One task for each region, so that none waits for another.
                let mut connections = JoinSet::new();
                for redis in guard.inner().stores() {
                    let redis = redis.clone();
                    connections.spawn(async move {
                        restarting("connections", || {
                            let redis = redis.clone();
                            async move { redis.run().await }
                        })
                        .await;
                    });
                }
                let shards = restarting("shards", || {
                    let guard = guard.clone();
                    async move { guard.run().await }
                });
                let leases = restarting("leases", || {
                    let store = store.clone();
                    async move { store.inner().run().await }
                });
                let debits = restarting("debits", || {
                    let store = store.clone();
                    async move { store.inner().inner().run().await }
                });
                let adjustments = restarting("adjustments", || {
                    let store = store.clone();
                    async move { crate::adjustments::follow(store.inner()).await }
                });
                let sums = restarting("sums", || {
                    let store = store.clone();
                    async move { crate::summed::exchange(&store).await }
                });
                let servers = async {
                    loop {
                        store.inner().set_servers(guard.settled_replicas().unwrap_or(0));
                        store.set_servers(guard.replicas());
                        tokio::time::sleep(SERVERS_INTERVAL).await;
                    }
                };
                let stop = async {
                    // Also if the sender was dropped.
                    let _ = stopped.await;
                    let stop = async { tokio::join!(store.inner().stop(), crate::summed::withdraw(&store)) };
                    if tokio::time::timeout(STOP_TIMEOUT, stop).await.is_err() {
                        tracing::warn!("leased units were not given back in time, and expire in Redis");
                    }
                    if tokio::time::timeout(STOP_TIMEOUT, store.inner().inner().maintain()).await.is_err() {
                        tracing::warn!("debits were not sent to other regions in time, and are lost");
                    }
                };
                tokio::select! {
                    _ = connections.join_next() => {}
                    () = shards => {}
                    () = leases => {}
                    () = debits => {}
                    () = adjustments => {}
                    () = sums => {}
                    () = servers => {}
                    () = stop => {}
                }
            });
        })?;
        Ok(StoreDriver { stop: Some(stop), thread: Some(thread) })
    }
}

/// Runs a task that should never end, and restarts it if it does.
async fn restarting<F: Future<Output = ()> + Send + 'static>(what: &str, start: impl Fn() -> F) {
    loop {
        let ended = tokio::spawn(start()).await;
        tracing::error!(?ended, "the store task for {what} ended unexpectedly and is restarted");
        tokio::time::sleep(RESTART_PAUSE).await;
    }
}

impl Drop for StoreDriver {
    fn drop(&mut self) {
        // The thread may have ended already.
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
