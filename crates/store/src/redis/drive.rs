//! The task behind a lane: connects, sends what waits, hands out the answers, and begins again.
//!
//! One round trip is under way at a time. What arrives meanwhile is the next batch; nothing waits for a timer.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Pipeline, ServerError, Value, cmd};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::Shared;
use super::codec::{Call, Reply, SCRIPT};
use super::connect::Link;
use super::fault::{Fault, Reason, Remedy};
use super::lane::{Answer, Job, Lane, MOST_AT_ONCE, Manner, Part};
use super::stats::Counters;
use super::topology::Peer;
use crate::sharded::Failure;

/// A lane and all that its task needs.
pub(super) struct Driver {
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    lane: Arc<Lane>,
    /// The name that the server has for the script.
    script: String,
    /// The server has lost the script: it is loaded before the next call.
    reload: bool,
    batch: Vec<Job>,
    steps: Vec<Step>,
}

/// A command of a round trip.
enum Step {
    Load,
    Asking,
    /// A call for the next so many claims.
    Call(usize),
}

/// Why a connection is not used any more.
enum Ended {
    /// The lane has closed and is empty.
    Closed,
    /// It broke, after it had been of use or not.
    Lost { served: bool },
}

/// When a connection is tried again.
pub(super) struct Backoff(Duration);

/// A connection on which nothing was answered for so long is dead.
const STALLED: Duration = Duration::from_secs(1);
/// How often a connection is looked at: whether it lives, and how the server is set.
const LOOKED_AT: Duration = Duration::from_secs(30);
/// The first and the longest pause before a connection is tried again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// How often the script is loaded for one claim.
const MOST_LOADS: u8 = 2;

impl Driver {
    pub(super) fn new(shared: Arc<Shared>, peer: Arc<Peer>, lane: Arc<Lane>) -> Driver {
        let batch = Vec::with_capacity(MOST_AT_ONCE);
        Driver { shared, peer, lane, script: String::new(), reload: false, batch, steps: Vec::new() }
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
        self.script = script;
        self.reload = false;
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
            self.lane.take(&mut self.batch);
            if !self.batch.is_empty() {
                if self.round_trip(&mut link).await.is_err() {
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

    /// Sends the batch and hands out the answers.
    async fn round_trip(&mut self, link: &mut Link) -> Result<(), Failure> {
        let commands = self.write();
        let counters = &self.shared.counters;
        Counters::add(&counters.batches, 1);
        Counters::add(&counters.claims, self.batch.len());
        let sent = async {
            match commands {
                Commands::None => Ok(Vec::new()),
                Commands::One(command) => Ok(vec![link.send(&command).await?]),
                Commands::Many(commands) => link.send_all(&commands).await,
            }
        };
        let failure = match timeout(STALLED, sent).await {
            Ok(Ok(answers)) => {
                self.read(answers);
                return Ok(());
            }
            Ok(Err(failure)) => failure,
            Err(_) => Failure::Timeout,
        };
        for job in self.batch.drain(..) {
            let _ = job.answer.send(Answer::Failed(failure.clone()));
        }
        Err(failure)
    }

    /// The commands for the batch: a call for each slot, and one for each claim that goes alone.
    fn write(&mut self) -> Commands {
        let by = |job: &Job| (job.manner, job.slot);
        if !self.batch.is_sorted_by_key(by) {
            // Stable: claims on one key stay in their order.
            self.batch.sort_by_key(by);
        }
        let now = self.shared.script_now();
        self.steps.clear();
        let mut commands = Commands::None;
        if self.reload {
            self.steps.push(Step::Load);
            commands.push(cmd("SCRIPT").arg("LOAD").arg(SCRIPT).take());
        }
        let together = |one: &Job, other: &Job| one.manner == Manner::Together && by(one) == by(other);
        for group in self.batch.chunk_by(together) {
            if group.first().is_some_and(|job| job.manner == Manner::Asking) {
                self.steps.push(Step::Asking);
                commands.push(cmd("ASKING"));
            }
            self.steps.push(Step::Call(group.len()));
            Counters::add(&self.shared.counters.calls, 1);
            commands.push(call(&self.script, &Call::of(group.iter().map(|job| &job.packet), now)));
        }
        commands
    }

    /// Hands the answers to those who wait for them.
    fn read(&mut self, answers: Vec<Value>) {
        self.reload = false;
        let mut missing = Vec::new();
        let mut batch = self.batch.drain(..);
        for (step, answer) in self.steps.iter().zip(answers) {
            match (step, answer) {
                (Step::Load | Step::Asking, _) => {}
                (Step::Call(claims), Value::BulkString(bytes)) => {
                    settled(batch.by_ref().take(*claims), *claims, bytes, (&self.lane, &self.shared.counters));
                }
                (Step::Call(claims), Value::ServerError(error)) => {
                    for job in batch.by_ref().take(*claims) {
                        missing.extend(refused(job, &error, &self.lane));
                    }
                }
                (Step::Call(claims), _) => {
                    let failure = Failure::Refused(format!("{}: an answer that is none", self.lane.node()));
                    for job in batch.by_ref().take(*claims) {
                        let _ = job.answer.send(Answer::Failed(failure.clone()));
                    }
                }
            }
        }
        drop(batch);
        if !missing.is_empty() {
            self.reload = true;
            missing.iter().for_each(|_| self.shared.counters.resend(Reason::NoScript));
            self.lane.put_back(missing.into_iter());
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

/// Most batches are one command, which needs no list.
enum Commands {
    None,
    One(Cmd),
    Many(Pipeline),
}

impl Commands {
    fn push(&mut self, command: Cmd) {
        *self = match std::mem::replace(self, Commands::None) {
            Commands::None => Commands::One(command),
            Commands::One(first) => {
                let mut all = Pipeline::new();
                all.add_command(first).add_command(command);
                Commands::Many(all)
            }
            Commands::Many(mut all) => {
                all.add_command(command);
                Commands::Many(all)
            }
        };
    }
}

fn call(script: &str, call: &Call) -> Cmd {
    let bytes = call.body.len() + call.keys.iter().map(|key| key.len()).sum::<usize>();
    let mut command = Cmd::with_capacity(call.keys.len() + 4, bytes + 64);
    command.arg("EVALSHA").arg(script).arg(call.keys.len());
    for key in &call.keys {
        command.arg(*key);
    }
    command.arg(&call.body[..]);
    command
}

/// Gives each claim its part of the script's answer.
fn settled(jobs: impl Iterator<Item = Job>, claims: usize, bytes: Vec<u8>, driver: (&Lane, &Counters)) {
    let (lane, counters) = driver;
    let Some(Reply { at, unsound, answers }) = Reply::of(&bytes, claims) else {
        let failure = Failure::Refused(format!("{}: the script's answer can't be read", lane.node()));
        jobs.for_each(|job| drop(job.answer.send(Answer::Failed(failure.clone()))));
        return;
    };
    if unsound > 0 {
        Counters::add(&counters.unsound, usize::from(unsound));
    }
    let bytes = Arc::new(bytes);
    for (job, range) in jobs.zip(answers) {
        let _ = job.answer.send(Answer::Settled(Part { at, bytes: Arc::clone(&bytes), range }));
    }
}

/// Tells whoever asked; gives the claim back if it only needs the script.
fn refused(mut job: Job, error: &ServerError, lane: &Lane) -> Option<Job> {
    let fault = Fault::of(error, lane.node());
    if fault.remedy == Remedy::Load && job.unscripted < MOST_LOADS {
        job.unscripted += 1;
        return Some(job);
    }
    let _ = job.answer.send(Answer::Refused(job.packet, fault));
    None
}
