//! Sends a claim to the node of its slot, and again if an answer proves that it did not run.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::Shared;
use super::codec::Packet;
use super::dispatch::{AnswerPart, ClaimAnswer, Dispatcher};
use super::error_reply::{ErrorReply, Remedy, ResendReason};
use super::lane::{CallMode, PushError, QueuedClaim};
use super::topology::ShardOwner;
use tollgate_store::sharded::{Failure, ShardId};

/// The maximum number of times that a claim is sent.
const MAX_ATTEMPTS: u32 = 8;
/// The pause before a claim is sent again to a node that is not ready. It doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// A claim that is being sent.
pub(super) struct ClaimSender<'s> {
    shared: &'s Shared,
    slot: u16,
    /// The hash of the claim's partition, which determines its lane.
    hash: u64,
    /// The last error reply of a node that is not ready. More informative than a timeout.
    last_refusal: Option<String>,
}

impl<'s> ClaimSender<'s> {
    pub(super) fn new(shared: &'s Shared, slot: u16) -> ClaimSender<'s> {
        ClaimSender { shared, slot, hash: 0, last_refusal: None }
    }

    /// The failure to report when the time is over.
    pub(super) fn timeout_failure(self, shard: ShardId) -> Failure {
        if let Some(refusal) = self.last_refusal {
            return Failure::Refused(refusal);
        }
        match self.shared.topology.shard(shard) {
            ShardOwner::Node(peer) if peer.lane(self.hash).is_some_and(|lane| !lane.waits_for_server()) => {
                Failure::Late
            }
            _ => Failure::Timeout,
        }
    }

    /// Sends a claim until there is an answer. `None` if there is none in time.
    pub(super) async fn settle_within(
        &mut self,
        packet: Box<Packet>,
        timeout: Duration,
    ) -> Option<Result<AnswerPart, Failure>> {
        let mut settled = pin!(self.settle(packet));
        if let Ok(answer) = tokio::time::timeout(timeout, &mut settled).await {
            return Some(answer);
        }
        // After a pause of this process, the answer may have arrived together with the timer. The task that distributes
        // answers runs before this one continues.
        yield_now().await;
        poll_fn(|context| {
            Poll::Ready(match settled.as_mut().poll(context) {
                Poll::Ready(answer) => Some(answer),
                Poll::Pending => None,
            })
        })
        .await
    }

    /// Sends a claim until there is an answer. If this is dropped before the claim was sent, nothing is charged.
    pub(super) async fn settle(&mut self, mut packet: Box<Packet>) -> Result<AnswerPart, Failure> {
        let topology = &self.shared.topology;
        self.hash = packet.partition();
        let mut mode = CallMode::Shared;
        let mut redirect = None;
        let mut pause = FIRST_PAUSE;
        for _ in 0..MAX_ATTEMPTS {
            let peer = match redirect.take() {
                Some(node) => topology.peer_at(&node)?,
                None => topology.route(self.slot).await?,
            };
            let Some(lane) = peer.lane(self.hash) else { break };
            let (answer, answered) = oneshot::channel();
            match lane.push(QueuedClaim {
                packet,
                slot: self.slot,
                mode,
                script_misses: 0,
                answer,
                dispatcher: Dispatcher::current(),
            }) {
                Ok(()) => {}
                Err(PushError::Failed(failure)) => return Err(failure),
                Err(PushError::Closed(back)) => {
                    // The map that says so is about to be applied, or already is.
                    packet = back;
                    sleep(pause).await;
                    continue;
                }
            }
            let error = match answered.await {
                Ok(ClaimAnswer::Settled(part)) => return Ok(part),
                Ok(ClaimAnswer::Failed(failure)) => return Err(failure),
                Ok(ClaimAnswer::Refused(back, error)) => {
                    packet = back;
                    error
                }
                Err(_) => return Err(Failure::Interrupted(format!("{}: the connection was closed", lane.node()))),
            };
            self.apply_error(&error)?;
            let previous = std::mem::replace(&mut mode, CallMode::Shared);
            match error.remedy {
                Remedy::Ask(node) => (redirect, mode) = (Some(node), CallMode::Asking),
                // In a shared call it is also refused because of the keys of other claims.
                Remedy::Wait(ResendReason::TryAgain) => {
                    mode = CallMode::Alone;
                    if previous != CallMode::Shared {
                        sleep(pause).await;
                        pause *= 2;
                    }
                }
                Remedy::Wait(_) => {
                    sleep(pause).await;
                    pause *= 2;
                }
                Remedy::Moved { .. } | Remedy::Load | Remedy::None => {}
            }
        }
        let last = self.last_refusal.take();
        Err(last.map_or_else(|| Failure::Unreachable(format!("no node serves slot {}", self.slot)), Failure::Refused))
    }

    /// Applies an error reply. Fails if it is final.
    fn apply_error(&mut self, error: &ErrorReply) -> Result<(), Failure> {
        let topology = &self.shared.topology;
        let refused = || Err(Failure::Refused(error.text.clone()));
        match &error.remedy {
            Remedy::Moved { .. } | Remedy::Ask(_) if !topology.is_cluster() => {
                return Err(Failure::Refused(format!(
                    "{}: this is a Redis Cluster, write redis+cluster://…",
                    error.text
                )));
            }
            Remedy::Moved { slot, node } => {
                topology.learn(*slot, node);
                topology.refresh();
            }
            Remedy::Wait(ResendReason::ReadOnly | ResendReason::ClusterDown | ResendReason::MasterDown) => {
                topology.refresh()
            }
            Remedy::Wait(_) | Remedy::Ask(_) => {}
            // The lane has already loaded the script the maximum number of times.
            Remedy::Load | Remedy::None => return refused(),
        }
        if let Some(reason) = error.remedy.reason() {
            self.shared.counters.count_resent(reason);
        }
        self.last_refusal = matches!(error.remedy, Remedy::Wait(_)).then(|| error.text.clone());
        Ok(())
    }
}
