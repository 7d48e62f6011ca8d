//! The background work of servers, as the store that leases does it: units are taken ahead of requests, and given back.

use super::calls::CallKind;
use super::{Engine, Event};
use crate::counters::Arrival;
use crate::traffic::SECOND;

/// The interval of a server's background work, and the calls that it makes at the same time.
pub(super) const BEAT: u64 = SECOND / 20;
const MAX_SENDS: usize = 256;

impl Engine<'_> {
    /// A server has errands. Those of a server that waits for others go after them.
    pub(super) fn notify(&mut self, server: u32) {
        if self.servers[server as usize].outstanding == 0 {
            self.send_errands(server);
        }
    }

    /// One round of a server's background work.
    pub(super) fn wake(&mut self, number: u32) {
        // The next beat is another one.
        let beat = &mut self.servers[number as usize].beat;
        *beat = beat.wrapping_add(1);
        let event = Event::Beat { server: number, number: *beat };
        self.tables(self.servers[number as usize].tables).beat(self.steady(number));
        self.schedule(self.now + BEAT, event);
        self.notify(number);
    }

    pub(super) fn send_errands(&mut self, number: u32) {
        let tables = self.servers[number as usize].tables;
        let errands = self.tables(tables).take_errands(MAX_SENDS);
        self.servers[number as usize].outstanding = errands.len() as u32;
        if errands.is_empty() {
            return;
        }
        let is_measured = self.is_measured();
        let mut debited = vec![false; self.shards.len()];
        for errand in errands {
            if errand.is_debit() {
                let shard = self.shard_of(&errand.claim(Default::default()));
                let is_shared = std::mem::replace(&mut debited[shard], true);
                self.outcome.calls.debits += u64::from(is_measured && !is_shared);
            } else if errand.is_refill() {
                self.outcome.calls.ahead += u64::from(is_measured);
            } else {
                self.outcome.calls.back += u64::from(is_measured);
            }
            self.send(number, Arrival { key: 0, units: 0 }, CallKind::Errand(Box::new(errand)));
        }
    }
}
