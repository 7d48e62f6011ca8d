//! Sends a claim to the node of its slot, and again if an answer proves that it did not run.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::sleep;
use tollgate_core::Claim;

use super::Shared;
use super::codec::Packet;
use super::dispatch::{AnswerPart, ClaimAnswer, Dispatcher};
use super::error_reply::{ErrorReply, Remedy, ResendReason};
use super::lane::{CallMode, PushError, QueuedClaim};
use super::topology::ShardOwner;
use tollgate_store::Clock;
use tollgate_store::sharded::{Failure, OnceRecord, ShardId};

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

    /// Settles a claim. `None` if there is no answer in time.
    pub(super) async fn settle_within(
        &mut self,
        claim: &Claim<'_>,
        record: OnceRecord<'_>,
        timeout: Duration,
    ) -> Option<Result<AnswerPart, Failure>> {
        let mut settled = pin!(self.settle(claim, record));
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

    /// Settles a claim. If this is dropped before the claim was sent, nothing is charged.
    ///
    /// A call declares every key that the script touches, so that a cluster refuses it before it runs if it has to be
    /// sent elsewhere. Most callers have few counters, all in one value. The script says when one has more, and the
    /// claim is sent again with the keys of its counters' own values.
    ///
    /// While the slot is moved, these keys may be on two nodes. A claim on one counter is then settled in two steps:
    /// in the packed value, if the counter is there, otherwise in its own value, which the packed value announces
    /// first. A claim on several is not settled ([`Failure::Moving`]).
    async fn settle(&mut self, claim: &Claim<'_>, record: OnceRecord<'_>) -> Result<AnswerPart, Failure> {
        let (shared, now) = (self.shared, self.shared.now());
        let spilled = &shared.spilled;
        let new_packet = || Box::new(Packet::new(claim, record, &shared.names(), now));
        let mut packet = new_packet();
        let hash = packet.partition();
        self.hash = hash;
        let is_moving = self.shared.is_moving(self.slot);
        if !is_moving || !packet.has_one_key() {
            let mode = if is_moving { CallMode::Alone } else { CallMode::Shared };
            if spilled.contains(hash) {
                packet.declare_own_keys();
            }
            let mut sent = self.send(packet, mode).await;
            if sent.as_ref().is_ok_and(AnswerPart::lacks_keys) {
                spilled.insert(hash);
                self.shared.counters.count_resent(ResendReason::Keys);
                packet = new_packet();
                packet.declare_own_keys();
                sent = self.send(packet, mode).await;
            }
            if sent.as_ref().err() != Some(&Failure::Moving) {
                return sent;
            }
            packet = new_packet();
        }
        if !packet.has_one_key() {
            return Err(Failure::Moving);
        }
        packet.set_apart();
        let answer = self.send(packet, CallMode::Alone).await?;
        if !answer.lacks_keys() {
            return Ok(answer);
        }
        packet = new_packet();
        packet.use_own_key();
        self.send(packet, CallMode::Alone).await
    }

    /// Sends a packet until there is an answer.
    async fn send(&mut self, mut packet: Box<Packet>, mut mode: CallMode) -> Result<AnswerPart, Failure> {
        let topology = &self.shared.topology;
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
                // A shared call is also refused because of the keys of other claims.
                Remedy::Wait(ResendReason::TryAgain) if previous == CallMode::Shared => mode = CallMode::Alone,
                Remedy::Wait(ResendReason::TryAgain) => {
                    self.shared.moving.insert(self.slot, self.shared.clock.now());
                    return Err(Failure::Moving);
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
                self.shared.moving.remove(*slot);
                topology.learn(*slot, node);
                topology.refresh();
            }
            Remedy::Wait(ResendReason::ReadOnly | ResendReason::ClusterDown | ResendReason::MasterDown) => {
                topology.refresh()
            }
            Remedy::Ask(_) => self.shared.moving.renew(self.slot, self.shared.clock.now()),
            Remedy::Wait(_) => {}
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
