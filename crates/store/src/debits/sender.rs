//! Sends what waits for other regions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tollgate_core::{ClaimId, RegionId};

use super::message::{DebitMessage, Delivery};
use super::tables::DebitTables;
use super::{Courier, DebitOutbox};
use crate::Store;
use crate::clock::Clock;
use crate::join::join_all;

/// A message that was sent and has no answer yet. If its sender ends before, its outcome is unknown.
struct SendGuard<'o> {
    tables: &'o DebitTables,
    region: RegionId,
    message: Option<DebitMessage>,
}

/// How long a debit may take.
const DEBIT_TIMEOUT: Duration = Duration::from_secs(1);

impl<S: Store, K: Courier, C: Clock> DebitOutbox<S, K, C> {
    /// Sends what waits for a region whenever there is something. Never returns.
    pub(super) async fn run_sender(&self, region: RegionId, send: &Notify) {
        loop {
            send.notified().await;
            self.send_waiting(region).await;
        }
    }

    /// Sends what waits for the shards of a region that can be reached.
    pub(super) async fn send_waiting(&self, region: RegionId) {
        loop {
            let messages = self.tables.take(region, self.clock.steady(), &self.courier);
            if messages.is_empty() {
                return;
            }
            let has_failed = AtomicBool::new(false);
            join_all(messages.into_iter().map(|message| self.send(region, message, &has_failed))).await;
            // What waits again is not sent before the next beat.
            if has_failed.into_inner() {
                return;
            }
        }
    }

    async fn send(&self, region: RegionId, message: DebitMessage, has_failed: &AtomicBool) {
        let mut in_flight = SendGuard { tables: &self.tables, region, message: Some(message) };
        let Some(message) = &in_flight.message else { return };
        let claim = message.claim(region, ClaimId::default());
        let sent = self.courier.deliver(region, &claim, DEBIT_TIMEOUT).await;
        drop(claim);
        has_failed.fetch_or(sent.is_err(), Ordering::Relaxed);
        let delivery = match sent {
            Ok(()) => Delivery::Done,
            Err(failure) if failure.is_unsettled() => Delivery::NotSent,
            Err(_) => Delivery::Unsure,
        };
        if let Some(message) = in_flight.message.take() {
            self.tables.end(region, message, delivery, self.clock.steady(), &self.courier);
        }
    }
}

impl Drop for SendGuard<'_> {
    fn drop(&mut self) {
        if let Some(message) = self.message.take() {
            self.tables.abandon(self.region, message);
        }
    }
}
