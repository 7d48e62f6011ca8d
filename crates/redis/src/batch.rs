//! The claims of one round trip: encodes commands and distributes answers.

use std::sync::Arc;

use redis::{Cmd, Pipeline, ServerError, Value, cmd};
use tollgate_core::Timestamp;

use super::codec::{ScriptCall, ScriptReply};
use super::dispatch::{AnswerBatch, AnswerPart, ClaimAnswer};
use super::error_reply::{ErrorReply, Remedy, ResendReason};
use super::lane::{CallMode, MAX_BATCH, QueuedClaim};
use super::script::SCRIPT;
use super::stats::TransportCounters;
use tollgate_redis_address::Node;
use tollgate_store::sharded::Failure;

/// The batch of one connection, reused for each round trip.
pub(super) struct Batch {
    pub(super) claims: Vec<QueuedClaim>,
    steps: Vec<BatchStep>,
    node: Node,
    /// The server's name (SHA) for the script.
    script: String,
    /// The server has lost the script: it is loaded before the next call.
    reload: bool,
}

/// A command of a round trip.
enum BatchStep {
    Load,
    Asking,
    /// A call for this number of claims.
    Call(usize),
}

/// Most batches are one command, which needs no list.
pub(super) enum BatchCommands {
    None,
    One(Cmd),
    Many(Pipeline),
}

/// How often the script is loaded for one claim.
const MAX_LOADS: u8 = 2;

impl Batch {
    pub(super) fn new(node: Node) -> Batch {
        let claims = Vec::with_capacity(MAX_BATCH);
        Batch { claims, steps: Vec::new(), node, script: String::new(), reload: false }
    }

    /// The script was just loaded under this name.
    pub(super) fn loaded(&mut self, script: String) {
        self.script = script;
        self.reload = false;
    }

    /// The commands for the claims: a call for each slot, and one for each claim that is sent alone.
    pub(super) fn write(&mut self, now: Option<Timestamp>, counters: &TransportCounters) -> BatchCommands {
        let by = |claim: &QueuedClaim| (claim.mode, claim.slot);
        if !self.claims.is_sorted_by_key(by) {
            // Stable: claims on one key stay in order.
            self.claims.sort_by_key(by);
        }
        self.steps.clear();
        let mut commands = BatchCommands::None;
        if self.reload {
            self.steps.push(BatchStep::Load);
            commands.push(cmd("SCRIPT").arg("LOAD").arg(SCRIPT).take());
        }
        let share_call = |one: &QueuedClaim, other: &QueuedClaim| one.mode == CallMode::Shared && by(one) == by(other);
        for group in self.claims.chunk_by(share_call) {
            if group.first().is_some_and(|claim| claim.mode == CallMode::Asking) {
                self.steps.push(BatchStep::Asking);
                commands.push(cmd("ASKING"));
            }
            self.steps.push(BatchStep::Call(group.len()));
            TransportCounters::add(&counters.calls, 1);
            commands.push(call(&self.script, &ScriptCall::new(group.iter().map(|claim| &*claim.packet), now)));
        }
        TransportCounters::add(&counters.batches, 1);
        TransportCounters::add(&counters.claims, self.claims.len());
        commands
    }

    /// Distributes the answers. Claims that only lack the script stay in the batch, to be sent again.
    pub(super) fn read(&mut self, answers: Vec<Value>, counters: &TransportCounters) {
        self.reload = false;
        let (mut script_misses, mut batch) = (Vec::new(), AnswerBatch::default());
        let mut claims = self.claims.drain(..);
        for (step, answer) in self.steps.iter().zip(answers) {
            let BatchStep::Call(count) = *step else { continue };
            let claims = claims.by_ref().take(count);
            match answer {
                Value::BulkString(bytes) => settled(claims, count, bytes, &self.node, counters, &mut batch),
                Value::ServerError(error) => {
                    script_misses.extend(claims.filter_map(|claim| refused(claim, &error, &self.node)))
                }
                _ => failed(claims, &Failure::Interrupted(format!("{}: an invalid answer", self.node))),
            }
        }
        drop(claims);
        batch.send();
        self.reload = !script_misses.is_empty();
        script_misses.iter().for_each(|_| counters.count_resent(ResendReason::NoScript));
        self.claims = script_misses;
    }

    /// The round trip failed: the outcome of the claims is unknown.
    pub(super) fn fail(&mut self, failure: Failure) {
        let failure = match failure {
            Failure::Unreachable(reason) => Failure::Interrupted(reason),
            other => other,
        };
        failed(self.claims.drain(..), &failure);
    }
}

impl BatchCommands {
    fn push(&mut self, command: Cmd) {
        *self = match std::mem::replace(self, BatchCommands::None) {
            BatchCommands::None => BatchCommands::One(command),
            BatchCommands::One(first) => {
                let mut all = Pipeline::new();
                all.add_command(first).add_command(command);
                BatchCommands::Many(all)
            }
            BatchCommands::Many(mut all) => {
                all.add_command(command);
                BatchCommands::Many(all)
            }
        };
    }
}

fn call(script: &str, call: &ScriptCall<'_>) -> Cmd {
    /// The bytes of the command, the script's name, the number of keys, and separators.
    const OVERHEAD: usize = 64;
    let bytes = call.body.len() + call.keys.iter().map(|key| key.len()).sum::<usize>();
    let mut command = Cmd::with_capacity(call.keys.len() + 4, bytes + OVERHEAD);
    command.arg("EVALSHA").arg(script).arg(call.keys.len());
    for key in &call.keys {
        command.arg(*key);
    }
    command.arg(&call.body[..]);
    command
}

/// Gives each claim its part of the script's answer.
fn settled(
    claims: impl Iterator<Item = QueuedClaim>,
    count: usize,
    bytes: Vec<u8>,
    node: &Node,
    counters: &TransportCounters,
    batch: &mut AnswerBatch,
) {
    let Some(ScriptReply { at, unsound, answers }) = ScriptReply::parse(&bytes, count) else {
        return failed(claims, &Failure::Interrupted(format!("{node}: the script's answer cannot be read")));
    };
    if unsound > 0 {
        TransportCounters::add(&counters.unsound, usize::from(unsound));
    }
    let bytes = Arc::new(bytes);
    for (claim, range) in claims.zip(answers) {
        batch.add(
            claim.dispatcher,
            claim.answer,
            ClaimAnswer::Settled(AnswerPart { at, bytes: Arc::clone(&bytes), range }),
        );
    }
}

/// Answers a claim with an error. Returns the claim if it only needs the script.
fn refused(mut claim: QueuedClaim, error: &ServerError, node: &Node) -> Option<QueuedClaim> {
    let reply = ErrorReply::new(error, node);
    if reply.remedy == Remedy::Load && claim.script_misses < MAX_LOADS {
        claim.script_misses += 1;
        return Some(claim);
    }
    let _ = claim.answer.send(ClaimAnswer::Refused(claim.packet, reply));
    None
}

fn failed(claims: impl Iterator<Item = QueuedClaim>, failure: &Failure) {
    for claim in claims {
        let _ = claim.answer.send(ClaimAnswer::Failed(failure.clone()));
    }
}
