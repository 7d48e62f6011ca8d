//! Pings to clients of which nothing is heard.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use h2::{Ping, PingPong};

/// Whether the client was heard since it was last looked at.
#[derive(Debug, Default)]
pub(super) struct Heard(AtomicBool);

/// In how many steps the interval is waited for, so that calls need not note the time: a client is silent for the
/// interval and at most one step more when it is pinged.
const STEPS: u32 = 4;

impl Heard {
    /// It is heard now.
    pub(super) fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// Pings the client when nothing was heard for the interval. Ends when no answer comes within the timeout.
pub(super) async fn silence(mut pings: PingPong, heard: &Heard, interval: Duration, timeout: Duration) {
    let mut silent = 0;
    loop {
        tokio::time::sleep(interval / STEPS).await;
        silent = if heard.take() { 0 } else { silent + 1 };
        if silent < STEPS {
            continue;
        }
        silent = 0;
        match tokio::time::timeout(timeout, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => {}
            // The connection has ended, which others notice.
            Ok(Err(_)) => std::future::pending().await,
            Err(_) => return,
        }
    }
}
