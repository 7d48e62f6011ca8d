//! The task of a lane: connects, sends queued claims, distributes the answers, and reconnects.
//!
//! One round trip is in progress at a time. Claims that arrive meanwhile are the next batch; nothing waits for a
//! timer. To a server in another region there are several at a time, because one takes longer than a claim may wait for
//! the next.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::Shared;
use super::batch::{Batch, BatchCommands};
use super::connect::Link;
use super::lane::Lane;
use super::script::SCRIPT;
use super::stats::TransportCounters;
use super::topology::PeerNode;
use tollgate_store::sharded::Failure;

/// A lane and its task's state.
pub(super) struct LaneTask {
    shared: Arc<Shared>,
    peer: Arc<PeerNode>,
    lane: Arc<Lane>,
    batch: Batch,
    /// The digest of the script, for further batches.
    script: String,
}

/// Why a connection is no longer used.
enum ServeEnd {
    /// The lane is closed and empty.
    Closed,
    /// The connection broke. `served` says whether it had completed a round trip.
    Lost { served: bool },
}

/// An exponential backoff.
pub(super) struct Backoff(Duration);

/// An answer that was not there after this time is overdue. Shorter than the deadlines of claims, and longer than a
/// healthy server takes.
const OVERDUE_AFTER: Duration = Duration::from_millis(2);
/// A connection without an answer for this time is considered dead.
const STALL_TIMEOUT: Duration = Duration::from_secs(1);
/// The interval at which a connection and the server's settings are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// The first and the maximum pause before a reconnect.
const PAUSE_BOUNDS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

impl LaneTask {
    pub(super) fn new(shared: Arc<Shared>, peer: Arc<PeerNode>, lane: Arc<Lane>) -> LaneTask {
        let batch = Batch::new(lane.node().clone());
        LaneTask { shared, peer, lane, batch, script: String::new() }
    }

    /// Drives the lane until it closes.
    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::default();
        while !self.lane.is_closed() {
            self.lane.link_begins();
            match self.connect().await {
                Ok(link) => {
                    self.lane.link_up(link.clone());
                    let ended = self.serve(link).await;
                    self.lane.link_lost();
                    match ended {
                        ServeEnd::Closed => break,
                        ServeEnd::Lost { served } => {
                            TransportCounters::add(&self.shared.counters.lost, 1);
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
                    self.lane.link_failed(&failure);
                    self.shared.topology.refresh();
                }
            }
            self.pause(backoff.next()).await;
        }
        // No attempt follows: who waits for one gets this failure.
        self.lane.link_begins();
        self.lane.link_failed(&Failure::Unreachable(format!("{}: no longer part of the cluster", self.lane.node())));
    }

    async fn connect(&mut self) -> Result<Link, Failure> {
        let mut link = self.shared.connector.link(self.lane.node()).await?;
        let (script, warning) = link.prepare(SCRIPT).await?;
        self.script.clone_from(&script);
        self.batch.loaded(script);
        self.peer.warn(warning);
        Ok(link)
    }

    /// Waits before the next attempt, unless an attempt is requested.
    async fn pause(&self, pause: Duration) {
        let pause = sleep(pause);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => return,
                () = self.lane.wait_for_work() => {
                    if self.lane.take_check_request() || self.lane.is_closed() {
                        return;
                    }
                }
            }
        }
    }

    async fn serve(&mut self, link: Link) -> ServeEnd {
        match self.shared.round_trips {
            ..=1 => self.serve_in_turn(link).await,
            max => self.serve_at_once(link, max).await,
        }
    }

    /// One round trip after the other.
    async fn serve_in_turn(&mut self, mut link: Link) -> ServeEnd {
        let mut served = false;
        let mut checks = interval(CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is immediate, and the connection was just checked.
        checks.tick().await;
        loop {
            // Claims that only lacked the script are still in the batch.
            self.lane.take(&mut self.batch.claims);
            if !self.batch.claims.is_empty() {
                if !round_trip(&self.shared, &self.lane, &mut self.batch, &mut link).await {
                    return ServeEnd::Lost { served };
                }
                served = true;
                continue;
            }
            if self.lane.is_closed() {
                return ServeEnd::Closed;
            }
            let check = tokio::select! {
                biased;
                () = self.lane.wait_for_work() => self.lane.take_check_request(),
                () = link.disconnected() => return ServeEnd::Lost { served },
                _ = checks.tick() => true,
            };
            if check {
                match link.warning(STALL_TIMEOUT).await {
                    Ok(warning) => self.peer.warn(warning),
                    Err(_) => return ServeEnd::Lost { served },
                }
            }
        }
    }

    /// Up to `max` round trips at a time, for a server that is far away: a claim that arrives leaves at once.
    async fn serve_at_once(&mut self, link: Link, max: usize) -> ServeEnd {
        let mut served = false;
        let mut trips: JoinSet<TripEnd> = JoinSet::new();
        let mut checks = interval(CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        checks.tick().await;
        loop {
            while trips.len() < max {
                let mut batch = self.new_batch();
                self.lane.take(&mut batch.claims);
                if batch.claims.is_empty() {
                    break;
                }
                self.begin(&mut trips, batch, link.clone());
            }
            if self.lane.is_closed() && trips.is_empty() {
                return ServeEnd::Closed;
            }
            let check = tokio::select! {
                biased;
                Some(trip) = trips.join_next() => match trip {
                    // Claims that only lacked the script are still in the batch.
                    Ok(TripEnd::Answered(batch)) if !batch.claims.is_empty() => {
                        self.begin(&mut trips, *batch, link.clone());
                        false
                    }
                    Ok(TripEnd::Answered(_)) => {
                        served = true;
                        false
                    }
                    Ok(TripEnd::Checked(warning)) => {
                        self.peer.warn(warning);
                        false
                    }
                    Ok(TripEnd::Failed) | Err(_) => break,
                },
                () = self.lane.wait_for_work(), if trips.len() < max => self.lane.take_check_request(),
                () = link.disconnected() => break,
                _ = checks.tick() => true,
            };
            if check {
                let mut link = link.clone();
                trips.spawn(async move { link.warning(STALL_TIMEOUT).await.map_or(TripEnd::Failed, TripEnd::Checked) });
            }
        }
        // The others fail too, and answer their claims.
        while trips.join_next().await.is_some() {}
        ServeEnd::Lost { served }
    }

    fn new_batch(&self) -> Batch {
        let mut batch = Batch::new(self.lane.node().clone());
        batch.loaded(self.script.clone());
        batch
    }

    fn begin(&self, trips: &mut JoinSet<TripEnd>, mut batch: Batch, mut link: Link) {
        let (shared, lane) = (self.shared.clone(), self.lane.clone());
        trips.spawn(async move {
            match round_trip(&shared, &lane, &mut batch, &mut link).await {
                true => TripEnd::Answered(Box::new(batch)),
                false => TripEnd::Failed,
            }
        });
    }
}

/// The end of one of several round trips.
enum TripEnd {
    /// With the claims that are to be sent again.
    Answered(Box<Batch>),
    /// The connection was checked; with the warning about its server.
    Checked(Option<String>),
    /// The connection is no longer usable. The claims have been answered.
    Failed,
}

/// Sends the batch and distributes the answers. Returns whether the connection is still usable.
async fn round_trip(shared: &Shared, lane: &Lane, batch: &mut Batch, link: &mut Link) -> bool {
    let commands = batch.write(shared.script_now(), &shared.counters);
    let sent = async {
        match commands {
            BatchCommands::None => Ok(Vec::new()),
            BatchCommands::One(command) => Ok(vec![link.send(&command).await?]),
            BatchCommands::Many(commands) => link.send_all(&commands).await,
        }
    };
    tokio::pin!(sent);
    let answers = match timeout(OVERDUE_AFTER, &mut sent).await {
        Ok(answers) => answers,
        Err(_) => wait_longer(lane, sent).await,
    };
    match answers {
        Ok(answers) => {
            batch.read(answers, &shared.counters);
            true
        }
        Err(failure) => {
            batch.fail(failure);
            false
        }
    }
}

/// Waits for the answers of a round trip that takes long.
async fn wait_longer<T>(lane: &Lane, sent: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::pin!(sent);
    // After a pause of this process, the answers may have arrived together with the timer. Other tasks, such as the
    // one that reads them, run before this one continues.
    tokio::task::yield_now().await;
    let mut is_late = false;
    let answers = timeout(
        STALL_TIMEOUT,
        poll_fn(|context| {
            let polled = sent.as_mut().poll(context);
            if polled.is_pending() && !std::mem::replace(&mut is_late, true) {
                lane.set_overdue(true);
            }
            polled
        }),
    )
    .await;
    lane.set_overdue(false);
    answers.unwrap_or(Err(Failure::Timeout))
}

impl Drop for LaneTask {
    fn drop(&mut self) {
        self.lane.stop_driving();
    }
}

impl Backoff {
    /// The next pause: twice as long as the previous one, with jitter, so that a fleet does not reconnect at the same
    /// time.
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(PAUSE_BOUNDS.1);
        jitter(pause)
    }
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff(PAUSE_BOUNDS.0)
    }
}

/// Between three quarters and five quarters of the span.
pub(super) fn jitter(span: Duration) -> Duration {
    let quarter = span.as_micros() as u64 / 4;
    span - Duration::from_micros(quarter) + Duration::from_micros(fastrand::u64(0..=2 * quarter))
}
