//! The task behind a lane: connects, sends what waits, hands out the answers, and begins again.
//!
//! One round trip is under way at a time. What arrives meanwhile is the next batch; nothing waits for a timer.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::Shared;
use super::batch::{Batch, Commands};
use super::connect::Link;
use super::lane::Lane;
use super::script::SCRIPT;
use super::stats::Counters;
use super::topology::Peer;
use crate::sharded::Failure;

/// A lane and all that its task needs.
pub(super) struct Driver {
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    lane: Arc<Lane>,
    batch: Batch,
}

/// Why a connection is not used any more.
enum Ended {
    /// The lane has closed and is empty.
    Closed,
    /// It broke, after it had been of use or not.
    Lost { served: bool },
}

/// When something is tried again.
pub(super) struct Backoff(Duration);

/// A connection on which nothing was answered for so long is dead.
const STALLED: Duration = Duration::from_secs(1);
/// How often a connection is looked at: whether it lives, and how the server is set.
const LOOKED_AT: Duration = Duration::from_secs(30);
/// The first and the longest pause before a connection is tried again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

impl Driver {
    pub(super) fn new(shared: Arc<Shared>, peer: Arc<Peer>, lane: Arc<Lane>) -> Driver {
        let batch = Batch::new(lane.node().clone());
        Driver { shared, peer, lane, batch }
    }

    /// Drives the lane until it closes.
    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::default();
        while !self.lane.is_closed() {
            match self.connect().await {
                Ok(link) => {
                    self.lane.up(link.clone());
                    let ended = self.serve(link).await;
                    self.lane.lost();
                    match ended {
                        Ended::Closed => break,
                        Ended::Lost { served } => {
                            Counters::add(&self.shared.counters.lost, 1);
                            self.shared.topology.refresh();
                            if served {
                                backoff = Backoff::default();
                                continue;
                            }
                        }
                    }
                }
                Err(failure) => {
                    tracing::debug!(node = %self.lane.node(), %failure, "no connection");
                    self.lane.down(&failure);
                    self.shared.topology.refresh();
                }
            }
            self.pause(backoff.next()).await;
        }
        self.lane.down(&Failure::Unreachable(format!("{}: no longer part of the cluster", self.lane.node())));
    }

    async fn connect(&mut self) -> Result<Link, Failure> {
        let mut link = self.shared.connector.link(self.lane.node()).await?;
        let (script, warning) = link.prepare(SCRIPT).await?;
        self.batch.loaded(script);
        self.peer.warn(warning);
        Ok(link)
    }

    /// Waits before the next try, unless somebody wants it now.
    async fn pause(&self, pause: Duration) {
        let pause = sleep(pause);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => return,
                () = self.lane.woken() => {
                    if self.lane.was_nudged() || self.lane.is_closed() {
                        return;
                    }
                }
            }
        }
    }

    async fn serve(&mut self, mut link: Link) -> Ended {
        let mut served = false;
        let mut looks = interval(LOOKED_AT);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first comes at once, and was just had.
        looks.tick().await;
        loop {
            // Those that only lacked the script are still there.
            self.lane.take(&mut self.batch.jobs);
            if !self.batch.jobs.is_empty() {
                if !self.round_trip(&mut link).await {
                    return Ended::Lost { served };
                }
                served = true;
                continue;
            }
            if self.lane.is_closed() {
                return Ended::Closed;
            }
            let look = tokio::select! {
                biased;
                () = self.lane.woken() => self.lane.was_nudged(),
                () = link.gone() => return Ended::Lost { served },
                _ = looks.tick() => true,
            };
            if look {
                match link.warning(STALLED).await {
                    Ok(warning) => self.peer.warn(warning),
                    Err(_) => return Ended::Lost { served },
                }
            }
        }
    }

    /// Sends the batch and hands out the answers. Whether the connection is still of use.
    async fn round_trip(&mut self, link: &mut Link) -> bool {
        let commands = self.batch.write(self.shared.script_now(), &self.shared.counters);
        let sent = async {
            match commands {
                Commands::None => Ok(Vec::new()),
                Commands::One(command) => Ok(vec![link.send(&command).await?]),
                Commands::Many(commands) => link.send_all(&commands).await,
            }
        };
        match timeout(STALLED, sent).await.unwrap_or(Err(Failure::Timeout)) {
            Ok(answers) => {
                self.batch.read(answers, &self.shared.counters);
                true
            }
            Err(failure) => {
                self.batch.fail(&failure);
                false
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.lane.leave();
    }
}

impl Backoff {
    /// How long to wait now: twice as long as before, more or less, so that a fleet does not come back as one.
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(PAUSES.1);
        jitter(pause)
    }
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff(PAUSES.0)
    }
}

/// Between three quarters and five quarters of it.
pub(super) fn jitter(span: Duration) -> Duration {
    let quarter = span.as_micros() as u64 / 4;
    span - Duration::from_micros(quarter) + Duration::from_micros(fastrand::u64(0..=2 * quarter))
}
