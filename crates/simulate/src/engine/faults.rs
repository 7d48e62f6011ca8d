//! What goes wrong.

use tollgate_core::Span;

use super::debits::Separation;
use super::{BEAT, Engine, Event};
use crate::scenario::{Fault, Lost};

impl Engine<'_> {
    fn pick(&mut self, servers: u32) -> Vec<u32> {
        let all = u64::from(self.scenario.servers);
        let first = self.chaos.below(all);
        (0..u64::from(servers).min(all)).map(|at| ((first + at) % all) as u32).collect()
    }

    pub(super) fn fault(&mut self, fault: Fault) {
        let end = |lasts: Span| self.now + lasts.as_micros() * 1_000;
        match fault {
            Fault::Crash { servers, restart_after } => {
                let restart = restart_after.map(end);
                for number in self.pick(servers) {
                    self.crash(number, restart);
                }
            }
            Fault::Pause { servers, lasts } => {
                let until = end(lasts);
                for number in self.pick(servers) {
                    self.servers[number as usize].paused_until = until;
                }
            }
            Fault::Partition { servers, lasts, lost } => {
                let until = end(lasts);
                for number in self.pick(servers) {
                    let server = &mut self.servers[number as usize];
                    if lost != Lost::Answers {
                        server.requests_lost_until = until;
                    }
                    if lost != Lost::Requests {
                        server.answers_lost_until = until;
                    }
                }
            }
            Fault::Separate { from, to, lasts, lost } => {
                let until = end(lasts);
                self.separations.push(Separation { from, to, until, lost });
            }
            Fault::Stall { lasts } => self.stalled_until = self.stalled_until.max(end(lasts)),
            Fault::DataLoss => self.counters.forget(),
            Fault::Failover { loses } => {
                let from = self.now.saturating_sub(loses.as_micros() * 1_000);
                while let Some((at, undo)) = self.undo.pop() {
                    if at >= from {
                        self.counters.undo(undo);
                    }
                }
            }
            Fault::ClockStep { by } => self.store_offset += by,
        }
    }

    fn crash(&mut self, number: u32, restart: Option<u64>) {
        let server = &mut self.servers[number as usize];
        if !server.is_up {
            return;
        }
        server.is_up = false;
        server.outstanding = 0;
        let tables = server.tables;
        let status = self.tables(tables).status(self.steady(number), 0);
        self.outcome.crashed += status.held;
        self.outcome.add_units(&status.counts);
        if let Some(at) = restart {
            self.schedule(at, Event::Restart(number));
        }
    }

    pub(super) fn restart(&mut self, number: u32) {
        if self.next_tables >= self.world.tables.len() {
            return;
        }
        let server = &mut self.servers[number as usize];
        (server.tables, server.is_up, server.paused_until) = (self.next_tables, true, 0);
        self.next_tables += 1;
        server.beat = server.beat.wrapping_add(1);
        let beat = server.beat;
        let tables = server.tables as u32;
        self.schedule(self.now + BEAT, Event::Beat { server: number, number: beat });
        self.schedule(self.now + BEAT, Event::DebitBeat { server: number, tables });
    }
}
