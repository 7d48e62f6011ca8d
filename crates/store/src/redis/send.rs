//! A claim's way to the node of its slot; and again, if an answer proves that it did not run.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::sleep;

use super::Shared;
use super::codec::Packet;
use super::fault::{Fault, Reason, Remedy};
use super::hub::Hub;
use super::lane::{Answer, Job, Manner, Part, Rejected};
use crate::sharded::Failure;

/// How often a claim is sent, at most.
const MOST_TIMES: u32 = 8;
/// How long to wait before a claim is sent again to a node that is not ready; twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// A claim on its way.
pub(super) struct Sending<'s> {
    shared: &'s Shared,
    slot: u16,
    /// What the node said that it was last asked of, if it is not ready: more to tell than that time ran out.
    refused: Option<String>,
}

impl<'s> Sending<'s> {
    pub(super) fn new(shared: &'s Shared, slot: u16) -> Sending<'s> {
        Sending { shared, slot, refused: None }
    }

    /// What to tell whoever waits no longer.
    pub(super) fn gave_up(self) -> Failure {
        self.refused.map_or(Failure::Timeout, Failure::Refused)
    }

    /// Sends a claim until there is an answer. Who drops this before it was sent is not charged.
    pub(super) async fn settle(&mut self, mut packet: Box<Packet>) -> Result<Part, Failure> {
        let topology = &self.shared.topology;
        let hash = packet.partition();
        let mut manner = Manner::Together;
        let mut elsewhere = None;
        let mut pause = FIRST_PAUSE;
        for _ in 0..MOST_TIMES {
            let peer = match elsewhere.take() {
                Some(node) => topology.peer_at(&node)?,
                None => topology.route(self.slot).await?,
            };
            let Some(lane) = peer.lane(hash) else { break };
            let (answer, answered) = oneshot::channel();
            match lane.push(Job { packet, slot: self.slot, manner, unscripted: 0, answer, hub: Hub::here() }) {
                Ok(()) => {}
                Err(Rejected::Failed(failure)) => return Err(failure),
                Err(Rejected::Closed(back)) => {
                    // The map that says so is about to be there, or is already.
                    packet = back;
                    sleep(pause).await;
                    continue;
                }
            }
            let fault = match answered.await {
                Ok(Answer::Settled(part)) => return Ok(part),
                Ok(Answer::Failed(failure)) => return Err(failure),
                Ok(Answer::Refused(back, fault)) => {
                    packet = back;
                    fault
                }
                Err(_) => return Err(Failure::Unreachable(format!("{}: the connection was closed", lane.node()))),
            };
            self.heed(&fault)?;
            let was = std::mem::replace(&mut manner, Manner::Together);
            match fault.remedy {
                Remedy::Ask(node) => (elsewhere, manner) = (Some(node), Manner::Asking),
                // Together with others it is refused for their keys, too.
                Remedy::Wait(Reason::TryAgain) => {
                    manner = Manner::Alone;
                    if was != Manner::Together {
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
        let last = self.refused.take();
        Err(last.map_or_else(|| Failure::Unreachable(format!("no node keeps slot {}", self.slot)), Failure::Refused))
    }

    /// Learns from an error; fails if it is final.
    fn heed(&mut self, fault: &Fault) -> Result<(), Failure> {
        let topology = &self.shared.topology;
        let refused = || Err(Failure::Refused(fault.text.clone()));
        match &fault.remedy {
            Remedy::Moved { .. } | Remedy::Ask(_) if !topology.is_cluster() => {
                return Err(Failure::Refused(format!(
                    "{}: this is a Redis Cluster, write redis+cluster://…",
                    fault.text
                )));
            }
            Remedy::Moved { slot, node } => {
                topology.learn(*slot, node);
                topology.refresh();
            }
            Remedy::Wait(Reason::ReadOnly | Reason::ClusterDown | Reason::MasterDown) => topology.refresh(),
            Remedy::Wait(_) | Remedy::Ask(_) => {}
            // The lane has loaded the script as often as is sensible.
            Remedy::Load | Remedy::None => return refused(),
        }
        if let Some(reason) = fault.remedy.reason() {
            self.shared.counters.resend(reason);
        }
        self.refused = matches!(fault.remedy, Remedy::Wait(_)).then(|| fault.text.clone());
        Ok(())
    }
}
