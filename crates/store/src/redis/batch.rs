//! The claims of one round trip: to commands, and from answers to those who wait.

use std::sync::Arc;

use redis::{Cmd, Pipeline, ServerError, Value, cmd};
use tollgate_core::Timestamp;

use super::address::Node;
use super::codec::{Call, Reply};
use super::fault::{Fault, Reason, Remedy};
use super::hub::Deliveries;
use super::lane::{Answer, Job, MOST_AT_ONCE, Manner, Part};
use super::script::SCRIPT;
use super::stats::Counters;
use crate::sharded::Failure;

/// What one connection sends at once, again and again.
pub(super) struct Batch {
    pub(super) jobs: Vec<Job>,
    steps: Vec<Step>,
    node: Node,
    /// The name that the server has for the script.
    script: String,
    /// The server has lost the script: it is loaded before the next call.
    reload: bool,
}

/// A command of a round trip.
enum Step {
    Load,
    Asking,
    /// A call for the next so many claims.
    Call(usize),
}

/// Most batches are one command, which needs no list.
pub(super) enum Commands {
    None,
    One(Cmd),
    Many(Pipeline),
}

/// How often the script is loaded for one claim.
const MOST_LOADS: u8 = 2;

impl Batch {
    pub(super) fn new(node: Node) -> Batch {
        let jobs = Vec::with_capacity(MOST_AT_ONCE);
        Batch { jobs, steps: Vec::new(), node, script: String::new(), reload: false }
    }

    /// The script was just loaded, and is called this.
    pub(super) fn loaded(&mut self, script: String) {
        self.script = script;
        self.reload = false;
    }

    /// The commands for the claims: a call for each slot, and one for each claim that goes alone.
    pub(super) fn write(&mut self, now: Option<Timestamp>, counters: &Counters) -> Commands {
        let by = |job: &Job| (job.manner, job.slot);
        if !self.jobs.is_sorted_by_key(by) {
            // Stable: claims on one key stay in their order.
            self.jobs.sort_by_key(by);
        }
        self.steps.clear();
        let mut commands = Commands::None;
        if self.reload {
            self.steps.push(Step::Load);
            commands.push(cmd("SCRIPT").arg("LOAD").arg(SCRIPT).take());
        }
        let together = |one: &Job, other: &Job| one.manner == Manner::Together && by(one) == by(other);
        for group in self.jobs.chunk_by(together) {
            if group.first().is_some_and(|job| job.manner == Manner::Asking) {
                self.steps.push(Step::Asking);
                commands.push(cmd("ASKING"));
            }
            self.steps.push(Step::Call(group.len()));
            Counters::add(&counters.calls, 1);
            commands.push(call(&self.script, &Call::of(group.iter().map(|job| &*job.packet), now)));
        }
        Counters::add(&counters.batches, 1);
        Counters::add(&counters.claims, self.jobs.len());
        commands
    }

    /// Hands the answers to those who wait for them. Claims that only lack the script stay, to be sent again.
    pub(super) fn read(&mut self, answers: Vec<Value>, counters: &Counters) {
        self.reload = false;
        let (mut unscripted, mut deliveries) = (Vec::new(), Deliveries::default());
        let mut jobs = self.jobs.drain(..);
        for (step, answer) in self.steps.iter().zip(answers) {
            let Step::Call(claims) = *step else { continue };
            let jobs = jobs.by_ref().take(claims);
            match answer {
                Value::BulkString(bytes) => settled(jobs, claims, bytes, &self.node, counters, &mut deliveries),
                Value::ServerError(error) => unscripted.extend(jobs.filter_map(|job| refused(job, &error, &self.node))),
                _ => failed(jobs, &Failure::Refused(format!("{}: an answer that is none", self.node))),
            }
        }
        drop(jobs);
        deliveries.send();
        self.reload = !unscripted.is_empty();
        unscripted.iter().for_each(|_| counters.resend(Reason::NoScript));
        self.jobs = unscripted;
    }

    /// Nobody knows what became of the claims.
    pub(super) fn fail(&mut self, failure: &Failure) {
        failed(self.jobs.drain(..), failure);
    }
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

fn call(script: &str, call: &Call<'_>) -> Cmd {
    /// The command, the script's name, the number of keys, and what stands between.
    const BESIDES: usize = 64;
    let bytes = call.body.len() + call.keys.iter().map(|key| key.len()).sum::<usize>();
    let mut command = Cmd::with_capacity(call.keys.len() + 4, bytes + BESIDES);
    command.arg("EVALSHA").arg(script).arg(call.keys.len());
    for key in &call.keys {
        command.arg(*key);
    }
    command.arg(&call.body[..]);
    command
}

/// Gives each claim its part of the script's answer.
fn settled(
    jobs: impl Iterator<Item = Job>,
    claims: usize,
    bytes: Vec<u8>,
    node: &Node,
    counters: &Counters,
    deliveries: &mut Deliveries,
) {
    let Some(Reply { at, unsound, answers }) = Reply::of(&bytes, claims) else {
        return failed(jobs, &Failure::Refused(format!("{node}: the script's answer can't be read")));
    };
    if unsound > 0 {
        Counters::add(&counters.unsound, usize::from(unsound));
    }
    let bytes = Arc::new(bytes);
    for (job, range) in jobs.zip(answers) {
        deliveries.add(job.hub, job.answer, Answer::Settled(Part { at, bytes: Arc::clone(&bytes), range }));
    }
}

/// Tells whoever asked; gives the claim back if it only needs the script.
fn refused(mut job: Job, error: &ServerError, node: &Node) -> Option<Job> {
    let fault = Fault::of(error, node);
    if fault.remedy == Remedy::Load && job.unscripted < MOST_LOADS {
        job.unscripted += 1;
        return Some(job);
    }
    let _ = job.answer.send(Answer::Refused(job.packet, fault));
    None
}

fn failed(jobs: impl Iterator<Item = Job>, failure: &Failure) {
    for job in jobs {
        let _ = job.answer.send(Answer::Failed(failure.clone()));
    }
}
