//! What one shard of another region is to be debited. No I/O, no clock.

use std::collections::BTreeMap;

use tollgate_core::{Span, Timestamp};

use super::message::{DebitMessage, Delivery, What};
use super::waiting::{Entry, WaitingQueue, Waitlist};
use crate::clock::Steady;
use crate::sharded::ShardId;

/// The messages for one shard of another region. That it does not answer says nothing about others.
#[derive(Debug, Default)]
pub(super) struct ShardQueue {
    pub(super) debits: Waitlist,
    /// Units to give back there, oldest first.
    pub(super) returns: WaitingQueue<DebitMessage>,
    /// When the messages without an answer were sent.
    sent: BTreeMap<u64, Steady>,
    /// Whether the last message that might have been answered was not.
    is_cautious: bool,
}

/// While a message has no answer for this long, no further ones are sent: whatever is sent into a partition is lost.
const HOLD_AFTER: Span = Span::from_micros(250_000);

impl ShardQueue {
    /// How many messages may be sent now. After a message without an answer there is one at a time, until one is answered.
    pub(super) fn ready(&self, now: Steady) -> usize {
        if self.sent.values().next().is_some_and(|sent| now.since(*sent) > HOLD_AFTER) {
            return 0;
        }
        if self.is_cautious { self.waiting().min(usize::from(self.sent.is_empty())) } else { self.waiting() }
    }

    /// The next message: a return, else the oldest debit. Returns are few, and each makes room. Returns also how many units
    /// of it no longer count. There is no message if all of what was next does not.
    pub(super) fn pop(&mut self, shard: ShardId, at: Timestamp) -> (Option<DebitMessage>, u64) {
        if let Some(message) = self.returns.pop_front() {
            // It may have been meant for another, before its counter moved.
            let message = DebitMessage { shard, ..message };
            return ((!message.is_over(at)).then_some(message), 0);
        }
        let Some(Entry { target, mut waiting, since }) = self.debits.pop_oldest() else { return (None, 0) };
        let aged = waiting.age(&target, at);
        let (units, what) = (waiting.units(), What::Debit(waiting));
        ((units > 0).then_some(DebitMessage { target, units, what, since, shard, number: 0 }), aged)
    }

    /// A message is sent.
    pub(super) fn begin(&mut self, number: u64, now: Steady) {
        self.sent.insert(number, now);
    }

    /// A message has an answer, or will have none.
    pub(super) fn end(&mut self, number: u64, delivery: Delivery) {
        self.sent.remove(&number);
        match delivery {
            Delivery::Done => self.is_cautious = false,
            Delivery::Unsure => self.is_cautious = true,
            Delivery::NotSent => {}
        }
    }

    /// Since when the oldest debit waits, if returns do not go first.
    pub(super) fn next_since(&self) -> Option<Steady> {
        self.returns.front().map(|message| message.since).or_else(|| self.debits.oldest())
    }

    /// The messages that wait.
    pub(super) fn waiting(&self) -> usize {
        self.debits.len() + self.returns.len()
    }

    /// Whether nothing waits, and no message is without an answer.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting() == 0 && self.sent.is_empty()
    }

    /// Whether a new queue is as good.
    pub(super) fn is_unused(&self) -> bool {
        self.is_idle() && !self.is_cautious
    }
}
