//! The thread that speaks to Redis.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tokio::runtime;
use tokio::sync::oneshot;

use crate::guarded::Guarded;
use crate::redis::RedisStore;

/// What tends a guarded store in Redis, until this is dropped: connections, probes, heartbeats, and what is told later.
///
/// It is a thread of its own with nothing else to do: what holds up its process must not make Redis look slow.
#[derive(Debug)]
pub struct Tending {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// How long to wait before what ended, and should not have, is begun again.
const AGAIN: Duration = Duration::from_secs(1);

impl Tending {
    /// Connects, and keeps connected. A Redis that is away is no error.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub fn start(guard: Arc<Guarded<RedisStore>>) -> io::Result<Tending> {
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
}

/// Does what never ends, and begins again if it ended all the same.
async fn again<F: Future<Output = ()> + Send + 'static>(what: &str, begin: impl Fn() -> F) {
    loop {
        let ended = tokio::spawn(begin()).await;
        tracing::error!(?ended, "what tends the {what} of the store ended, and is begun again");
        tokio::time::sleep(AGAIN).await;
    }
}

impl Drop for Tending {
    fn drop(&mut self) {
        // A thread that has ended already is as good.
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
