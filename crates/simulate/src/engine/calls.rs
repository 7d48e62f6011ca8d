//! Calls to the store: the way there, the queue, the settlement, the way back, and giving up.

use tollgate_core::{Ask, Charge, Claim, Reading, Settlement, Source, Timestamp};
use tollgate_store::Steady;
use tollgate_store::debits::LoweredLimits;
use tollgate_store::leased::{Call, Errand};

use super::{Engine, Event, START};
use crate::counters::{Arrival, claim_of, counter_of, passes, region_of};
use crate::random::mix;
use crate::scenario::Lost;

/// The time that the store works on a claim, in nanoseconds, as measured in docs/benchmarks.md …
pub(crate) const CLAIM_COST: u64 = 5_500;
/// … and on each further charge of it.
pub(crate) const CHARGE_COST: u64 = 1_100;

/// An instance of the store.
#[derive(Clone, Copy)]
pub(super) struct Shard {
    /// When it is done with all calls that have reached it.
    pub(super) free_at: u64,
}

/// A call to the store.
pub(super) struct InFlight<'w> {
    server: u32,
    tables: usize,
    sent: u64,
    sent_steady: Steady,
    arrival: Arrival,
    is_measured: bool,
    kind: CallKind<'w>,
    /// The region whose store settles it.
    to: usize,
    /// The limits on which it was settled, if others may apply.
    lowered: Option<LoweredLimits>,
    answer: Settlement,
    /// The store has settled it, or will never see it.
    is_settled: bool,
    /// The server will give up waiting, or has.
    has_timeout: bool,
    /// The server does not wait any more.
    is_abandoned: bool,
}

/// What a call is for.
pub(super) enum CallKind<'w> {
    /// A request.
    Whole,
    /// A request of which a part is decided by the server.
    Call(Box<Call<'w, 'w>>),
    /// Background work.
    Errand(Box<Errand>),
    /// A claim that nobody waits for.
    Alone(Box<Claim<'w>>),
    Over,
}

impl<'w> Engine<'w> {
    pub(super) fn one_way(&mut self) -> u64 {
        let (least, most) = self.scenario.network.round_trip;
        self.network.between(least.as_micros() * 500, most.as_micros() * 500)
    }

    pub(super) fn send(&mut self, server: u32, arrival: Arrival, kind: CallKind<'w>) {
        let call = self.free.pop().unwrap_or_else(|| {
            self.in_flight.push(None);
            (self.in_flight.len() - 1) as u32
        });
        let from = self.servers[server as usize].region;
        let to = self.region_of(&kind, arrival, from);
        let is_lost = self.network.chance(self.scenario.network.drops)
            || self.servers[server as usize].requests_lost_until > self.now
            || self.is_separated(from, to, Lost::Requests);
        let is_measured = self.is_measured();
        self.moment(self.now).calls += 1;
        self.in_flight[call as usize] = Some(InFlight {
            server,
            tables: self.servers[server as usize].tables,
            sent: self.now,
            sent_steady: self.steady(server),
            arrival,
            is_measured,
            kind,
            to,
            lowered: None,
            answer: Settlement::default(),
            is_settled: is_lost,
            has_timeout: is_lost,
            is_abandoned: false,
        });
        match is_lost {
            true => self.schedule(self.now + self.deadline(), Event::Timeout(call)),
            false => {
                let way = self.way(from, to);
                self.schedule(self.now + way, Event::Reach(call));
            }
        }
    }

    /// The region whose store settles a call of a server in this region.
    fn region_of(&self, kind: &CallKind<'w>, arrival: Arrival, from: usize) -> usize {
        let regions = self.scenario.region_count();
        if regions == 1 {
            return 0;
        }
        let limits = &self.world.limits;
        match kind {
            CallKind::Whole => region_of(limits, &claim_of(limits, arrival), from, regions),
            CallKind::Call(call) => region_of(limits, call.claim(), from, regions),
            CallKind::Errand(errand) => region_of(limits, &errand.claim(Default::default()), from, regions),
            CallKind::Alone(claim) => region_of(limits, claim, from, regions),
            CallKind::Over => from,
        }
    }

    fn deadline(&self) -> u64 {
        self.scenario.network.deadline.as_micros() * 1_000
    }

    /// Runs a function on the claim of a call.
    fn with_claim<R>(
        &mut self,
        call: u32,
        run: impl FnOnce(&mut Self, &Claim<'_>, &mut InFlight<'w>) -> R,
    ) -> Option<R> {
        let mut in_flight = self.in_flight[call as usize].take()?;
        let kind = std::mem::replace(&mut in_flight.kind, CallKind::Over);
        let result = match &kind {
            CallKind::Whole => run(self, &claim_of(&self.world.limits, in_flight.arrival), &mut in_flight),
            CallKind::Call(call) => run(self, call.claim(), &mut in_flight),
            CallKind::Errand(errand) => run(self, &errand.claim(Default::default()), &mut in_flight),
            CallKind::Alone(claim) => run(self, claim, &mut in_flight),
            CallKind::Over => return None,
        };
        in_flight.kind = kind;
        self.in_flight[call as usize] = Some(in_flight);
        Some(result)
    }

    pub(super) fn reach(&mut self, call: u32) {
        let work = self.with_claim(call, |engine, claim, in_flight| {
            let (shard, cost) = engine.work_of(claim);
            (shard + in_flight.to * engine.scenario.shards as usize, cost)
        });
        let Some((shard, cost)) = work else { return };
        let free_at = self.shards[shard].free_at.max(self.stalled_until);
        self.shards[shard].free_at = free_at.max(self.now) + cost;
        match free_at > self.now {
            true => self.wait_for_store(call, free_at),
            false => self.execute(call),
        }
    }

    /// The shard of a claim, and how long it works on it.
    fn work_of(&self, claim: &Claim<'_>) -> (usize, u64) {
        let charges = claim.charges.len() as u64;
        (self.shard_of(claim), CLAIM_COST + CHARGE_COST * charges.saturating_sub(1))
    }

    pub(super) fn shard_of(&self, claim: &Claim<'_>) -> usize {
        let shard = claim.charges.first().map_or(0, |charge| {
            let counter = counter_of(charge);
            mix(counter.limit as u64 ^ mix(u64::from(counter.key))) % u64::from(self.scenario.shards)
        });
        shard as usize
    }

    fn wait_for_store(&mut self, call: u32, until: u64) {
        let deadline = self.deadline();
        let Some(in_flight) = &mut self.in_flight[call as usize] else { return };
        let gives_up = in_flight.sent + deadline;
        if gives_up < until && !in_flight.has_timeout {
            in_flight.has_timeout = true;
            self.schedule(gives_up, Event::Timeout(call));
        }
        self.schedule(until, Event::Execute(call));
    }

    /// The store settles a call.
    pub(super) fn execute(&mut self, call: u32) {
        if self.stalled_until > self.now {
            return self.wait_for_store(call, self.stalled_until);
        }
        let at = self.store_time();
        let is_undone = self.failovers.iter().any(|(from, until)| (*from..*until).contains(&self.now));
        let now = self.now;
        let cost = self.with_claim(call, |engine, claim, in_flight| {
            let mut undo = Vec::new();
            let region = engine.servers[in_flight.server as usize].region;
            in_flight.lowered = engine.lowered(in_flight.tables, claim);
            let (undone, to, answer) = (is_undone.then_some(&mut undo), in_flight.to, &mut in_flight.answer);
            match &in_flight.lowered {
                Some(lowered) => engine.counters.settle(&lowered.claim(claim), to, at, answer, undone),
                None => engine.counters.settle(claim, to, at, answer, undone),
            }
            engine.undo.extend(undo.into_iter().map(|undo| (now, undo)));
            if passes(claim, &in_flight.answer) {
                let taken = claim.charges.iter().zip(&in_flight.answer.readings);
                for (charge, _) in taken.filter(|(charge, reading)| charge.ask == Ask::Exactly && reading.taken > 0) {
                    engine.spend(charge, region);
                }
            }
            engine.work_of(claim).1
        });
        let Some((from, to)) = self.in_flight[call as usize].as_ref().map(|sent| (sent.server, sent.to)) else {
            return;
        };
        let from = self.servers[from as usize].region;
        let (Some(cost), way, deadline) = (cost, self.way(to, from), self.deadline()) else { return };
        let is_lost = self.network.chance(self.scenario.network.drops) || self.is_separated(from, to, Lost::Answers);
        let Some(in_flight) = &mut self.in_flight[call as usize] else { return };
        in_flight.is_settled = true;
        if in_flight.is_abandoned {
            return self.release(call);
        }
        if in_flight.has_timeout {
            return;
        }
        let (answers, gives_up) = (self.now + cost + way, in_flight.sent + deadline);
        let is_lost = is_lost || self.servers[in_flight.server as usize].answers_lost_until > self.now;
        if is_lost || answers > gives_up {
            in_flight.has_timeout = true;
            self.schedule(gives_up, Event::Timeout(call));
        } else {
            self.schedule(answers, Event::Answer(call));
        }
    }

    fn release(&mut self, call: u32) {
        self.in_flight[call as usize] = None;
        self.free.push(call);
    }

    /// The server gets the answer of a call, or gives up waiting for it.
    pub(super) fn answer(&mut self, call: u32, is_answered: bool) {
        let Some(mut in_flight) = self.in_flight[call as usize].take() else { return };
        let number = in_flight.server;
        let server = &self.servers[number as usize];
        if server.is_up && server.tables == in_flight.tables && server.paused_until > self.now {
            let event = if is_answered { Event::Answer(call) } else { Event::Timeout(call) };
            let until = server.paused_until;
            self.in_flight[call as usize] = Some(in_flight);
            return self.schedule(until, event);
        }
        let is_there = server.is_up && server.tables == in_flight.tables;
        let kind = std::mem::replace(&mut in_flight.kind, CallKind::Over);
        // The store may settle the call later.
        let remaining = match &kind {
            _ if in_flight.is_settled => None,
            CallKind::Whole => Some(CallKind::Whole),
            CallKind::Call(call) => Some(CallKind::Alone(Box::new(call.claim().clone()))),
            CallKind::Errand(errand) => Some(CallKind::Errand(errand.clone())),
            CallKind::Alone(_) | CallKind::Over => None,
        };
        if is_there {
            self.end_call(&in_flight, kind, is_answered);
        }
        match remaining {
            Some(remaining) => {
                (in_flight.kind, in_flight.is_abandoned) = (remaining, true);
                self.in_flight[call as usize] = Some(in_flight);
            }
            None => self.release(call),
        }
    }

    fn end_call(&mut self, in_flight: &InFlight<'w>, kind: CallKind<'w>, is_answered: bool) {
        let InFlight { server: number, tables, arrival, is_measured, sent_steady, .. } = *in_flight;
        let random = 0.5 + self.policy.unit();
        let mut settlement = std::mem::take(&mut self.settlement);
        let claim = claim_of(&self.world.limits, arrival);
        let lowered = in_flight.lowered.as_ref().filter(|_| is_answered);
        let region = self.servers[number as usize].region;
        let has_passed = match kind {
            CallKind::Whole => {
                if is_answered {
                    self.record_debits(number, &claim, lowered, &in_flight.answer);
                }
                settlement.clone_from(&in_flight.answer);
                if !is_answered {
                    assume(&claim, &mut settlement);
                }
                self.tables(tables).end_whole(&claim, || sent_steady, &mut settlement);
                Some(passes(&claim, &settlement))
            }
            CallKind::Call(call) => {
                let mut answer = in_flight.answer.clone();
                match is_answered {
                    true => self.record_debits(number, call.claim(), lowered, &answer),
                    false => assume(call.claim(), &mut answer),
                }
                let held = held_charges(&claim, &call).cloned().collect::<Vec<_>>();
                call.end(&answer, self.steady(number), random, &mut settlement);
                let has_passed = passes(&claim, &settlement);
                if !has_passed {
                    let (sent, now) = (self.time_at(in_flight.sent), self.store_time());
                    for charge in held {
                        self.counters.unspend(&charge, region, sent, now);
                    }
                }
                Some(has_passed)
            }
            CallKind::Errand(errand) => {
                let mut answer = in_flight.answer.clone();
                match is_answered {
                    true => self.record_debits(number, &errand.claim(Default::default()), lowered, &answer),
                    false => assume(&errand.claim(Default::default()), &mut answer),
                }
                let took = self.steady(number).since(sent_steady);
                self.tables(tables).end_errand(&errand, &answer, sent_steady, took, random);
                let server = &mut self.servers[number as usize];
                server.outstanding -= 1;
                if server.outstanding == 0 {
                    self.send_errands(number);
                }
                None
            }
            CallKind::Alone(_) | CallKind::Over => None,
        };
        if let Some(has_passed) = has_passed {
            let decided = in_flight.answer.at.as_micros().saturating_add_signed(-self.store_offset);
            let decided = decided.saturating_sub(START).saturating_mul(1_000);
            if has_passed {
                self.record_admitted(number, arrival, decided, is_measured);
            }
            self.outcome.unanswered += u64::from(is_measured && !is_answered);
            if is_measured {
                self.outcome.waits.record(self.now - in_flight.sent);
            }
        }
        self.settlement = settlement;
    }

    /// The store's clock at another moment, unless it was set since.
    fn time_at(&self, nanos: u64) -> Timestamp {
        Timestamp::from_micros((START + nanos / 1_000).saturating_add_signed(self.store_offset))
    }
}

/// The charges of a claim that are paid from units that the server holds.
pub(super) fn held_charges<'c, 'a>(claim: &'c Claim<'a>, call: &Call<'_, '_>) -> impl Iterator<Item = &'c Charge<'a>> {
    let sent: Vec<_> = call.claim().charges.iter().map(counter_of).collect();
    claim.charges.iter().filter(move |charge| !sent.contains(&counter_of(charge)))
}

/// The answer when the store gives none.
fn assume(claim: &Claim<'_>, settlement: &mut Settlement) {
    settlement.readings.clear();
    settlement.readings.extend(claim.charges.iter().map(|charge| Reading::assumed(charge, Source::Assumed)));
}
