//! Runs a scenario, one event after the other.

mod background;
mod calls;
mod debits;
mod faults;
mod requests;

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tollgate_core::key::HashSecret;
use tollgate_core::{Settlement, Timestamp};
use tollgate_store::debits::DebitTables;
use tollgate_store::leased::Tables;
use tollgate_store::{LeaseConfig, LeaseCounts, Steady};

use crate::counters::{Arrival, CountedLimit, CounterTable, Undo};
use crate::outcome::{Outcome, Violation};
use crate::random::{Generator, mix};
use crate::scenario::{Fault, Scenario};
use crate::traffic::{Arrivals, SECOND};

use background::BEAT;
pub(crate) use calls::{CHARGE_COST, CLAIM_COST};
use calls::{InFlight, Shard};
use debits::{Outage, SentDebit, Separation};
use requests::MOMENTS;

/// The store's time at the start, in microseconds: the beginning of an hour.
const START: u64 = 1_800_000_000_000_000;
/// The most violations that are described.
const MAX_VIOLATIONS: usize = 10;

/// What does not change during a run.
pub(crate) struct World {
    pub(crate) limits: Vec<CountedLimit>,
    /// Those of servers that start again come after those of all servers.
    tables: Vec<OnceCell<Tables>>,
}

pub(crate) struct Engine<'w> {
    scenario: &'w Scenario,
    world: &'w World,
    now: u64,
    number: u64,
    events: BinaryHeap<Reverse<Scheduled>>,
    arrivals: Arrivals<'w>,
    network: Generator,
    policy: Generator,
    chaos: Generator,
    /// By the place of the tables of leases.
    debits: Vec<Option<DebitTables>>,
    sent_debits: Vec<SentDebit>,
    outages: Vec<Outage>,
    separations: Vec<Separation>,
    counters: CounterTable,
    servers: Vec<SimulatedServer>,
    shards: Vec<Shard>,
    in_flight: Vec<Option<InFlight<'w>>>,
    free: Vec<u32>,
    /// The next of the tables for servers that start again.
    next_tables: usize,
    store_offset: i64,
    stalled_until: u64,
    undo: Vec<(u64, Undo)>,
    /// The writes from these moments on are undone by a failover.
    failovers: Vec<(u64, u64)>,
    settlement: Settlement,
    /// The length of a moment of the picture.
    moment_length: u64,
    pub(crate) outcome: Outcome,
}

/// An event, ordered by time and then by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Scheduled {
    time: u64,
    number: u64,
    event: Event,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request that waited for a paused server.
    Request { server: u32, key: u32, units: u32 },
    /// A call reaches the store.
    Reach(u32),
    /// The store settles a call.
    Execute(u32),
    /// The answer of a call reaches the server.
    Answer(u32),
    /// The server gives up waiting.
    Timeout(u32),
    /// A server's background work.
    Beat { server: u32, number: u32 },
    /// A server's beat of debits. Those of tables that it has no longer are outdated.
    DebitBeat { server: u32, tables: u32 },
    /// A debit reaches another region.
    DebitReach(u32),
    /// The answer to a debit, or the end of the wait for it.
    DebitEnd { debit: u32, is_answered: bool },
    /// A fault of the scenario.
    Fault(u32),
    /// A server starts again.
    Restart(u32),
    /// The requests of cold keys in the next interval.
    Cold,
}

struct SimulatedServer {
    region: usize,
    /// The place of its tables.
    tables: usize,
    is_up: bool,
    paused_until: u64,
    requests_lost_until: u64,
    answers_lost_until: u64,
    /// What its clock shows at the start, in microseconds, and by how many millionths it is too fast.
    clock: u64,
    drift: i64,
    /// Calls of the background work that are not answered.
    outstanding: u32,
    /// The number of the next beat. Others are outdated.
    beat: u32,
}

impl World {
    pub(crate) fn new(scenario: &Scenario) -> World {
        let restarts = scenario.faults.iter().map(|planned| match planned.fault {
            Fault::Crash { servers, restart_after: Some(_) } => servers.min(scenario.servers),
            _ => 0,
        });
        let tables = (scenario.servers + restarts.sum::<u32>()) as usize;
        World {
            limits: scenario
                .limits
                .iter()
                .enumerate()
                .map(|(at, planned)| CountedLimit::new(at, planned, scenario.region_count()))
                .collect(),
            tables: (0..tables).map(|_| OnceCell::new()).collect(),
        }
    }
}

impl<'w> Engine<'w> {
    pub(crate) fn new(scenario: &'w Scenario, world: &'w World) -> Engine<'w> {
        let arrivals = Arrivals::new(scenario);
        let mut chaos = Generator::new(scenario.seed, 4);
        let drift = i64::from(scenario.clock_drift);
        let regions = scenario.regions.as_ref().map_or_else(Vec::new, |planned| {
            let servers = planned.regions.iter().enumerate();
            servers.flat_map(|(at, region)| std::iter::repeat_n(at, region.servers as usize)).collect()
        });
        let servers = (0..scenario.servers).map(|number| SimulatedServer {
            region: regions.get(number as usize).copied().unwrap_or(0),
            tables: number as usize,
            is_up: true,
            paused_until: 0,
            requests_lost_until: 0,
            answers_lost_until: 0,
            clock: SECOND + mix(number.into()) % SECOND,
            drift: chaos.between(0, 2 * drift as u64) as i64 - drift,
            outstanding: 0,
            beat: 0,
        });
        let servers: Vec<SimulatedServer> = servers.collect();
        let failovers = scenario.faults.iter().filter_map(|planned| match planned.fault {
            Fault::Failover { loses } => {
                let at = planned.at.as_micros() * 1_000;
                Some((at.saturating_sub(loses.as_micros() * 1_000), at))
            }
            _ => None,
        });
        let counters = CounterTable::new(&world.limits, arrivals.warm_keys(), scenario.region_count());
        let mut engine = Engine {
            scenario,
            world,
            now: 0,
            number: 0,
            events: BinaryHeap::new(),
            network: Generator::new(scenario.seed, 2),
            policy: Generator::new(scenario.seed, 3),
            chaos,
            debits: Vec::new(),
            sent_debits: Vec::new(),
            outages: Vec::new(),
            separations: Vec::new(),
            counters,
            outcome: Outcome::new(scenario, servers.len(), MOMENTS as usize),
            servers,
            shards: vec![Shard { free_at: 0 }; scenario.shards as usize * scenario.region_count()],
            in_flight: Vec::new(),
            free: Vec::new(),
            next_tables: scenario.servers as usize,
            store_offset: 0,
            stalled_until: 0,
            undo: Vec::new(),
            failovers: failovers.collect(),
            settlement: Settlement::default(),
            moment_length: (scenario.duration.as_micros() * 1_000).div_ceil(MOMENTS).max(1),
            arrivals,
        };
        engine.outcome.warm_keys = engine.arrivals.warm_keys();
        for server in 0..scenario.servers {
            // Servers did not start at the same moment.
            let first = engine.policy.below(BEAT);
            engine.schedule(first, Event::Beat { server, number: 0 });
            if let Some(planned) = &scenario.regions {
                let first = engine.policy.below(planned.beat.as_micros().max(1) * 1_000);
                engine.schedule(first, Event::DebitBeat { server, tables: server });
            }
        }
        for (at, planned) in scenario.faults.iter().enumerate() {
            engine.schedule(planned.at.as_micros() * 1_000, Event::Fault(at as u32));
        }
        if engine.arrivals.has_cold_keys() {
            engine.schedule(0, Event::Cold);
        }
        engine
    }

    /// Runs the scenario. `progress` is called now and then with the share that is done.
    pub(crate) fn run(mut self, progress: &mut dyn FnMut(f64)) -> Outcome {
        let end = self.scenario.duration.as_micros() * 1_000;
        let step = (end / 200).max(1);
        let mut reported = 0;
        let mut arrives = self.arrivals.next_after(0);
        loop {
            let next = self.events.peek().map_or(u64::MAX, |scheduled| scheduled.0.time);
            if arrives.min(next) >= end {
                break;
            }
            if arrives < next {
                self.now = arrives;
                let arrival = self.arrivals.draw();
                let server = self.arrivals.route(arrival, arrives);
                self.request(server, arrival);
                arrives = self.arrivals.next_after(arrives);
            } else {
                self.step();
            }
            if self.now >= reported + step {
                reported = self.now;
                progress(self.now as f64 / end as f64);
            }
        }
        self.finish(end);
        self.outcome
    }

    /// Ends the run: all servers stop and give back what they hold.
    fn finish(&mut self, end: u64) {
        self.now = end;
        self.outcome.held = self.servers.iter().map(|server| self.held(server)).sum();
        self.settle_down();
        // That all servers stop at the same moment is checked, but not in the figures.
        for number in 0..self.servers.len() {
            let server = &self.servers[number];
            if server.is_up {
                let status = self.tables(server.tables).status(self.steady(number as u32), 0);
                self.outcome.add_units(&status.counts);
                self.outcome.pools += status.keys as u64;
                self.tables(server.tables).set_enabled(false);
                self.wake(number as u32);
            }
        }
        self.settle_down();
        for number in 0..self.servers.len() {
            let server = &self.servers[number];
            if server.is_up {
                let status = self.tables(server.tables).status(self.steady(number as u32), 0);
                self.check_units(number, &status.counts, status.held);
            }
        }
    }

    /// Runs until no call is in flight and no server is paused.
    fn settle_down(&mut self) {
        while self.in_flight.len() > self.free.len() || self.servers.iter().any(|server| server.paused_until > self.now)
        {
            if self.events.is_empty() {
                break;
            }
            self.step();
        }
    }

    fn step(&mut self) {
        let Some(Reverse(Scheduled { time, event, .. })) = self.events.pop() else { return };
        self.now = self.now.max(time);
        match event {
            Event::Request { server, key, units } => self.request(server, Arrival { key, units }),
            Event::Reach(call) => self.reach(call),
            Event::Execute(call) => self.execute(call),
            Event::Answer(call) => self.answer(call, true),
            Event::Timeout(call) => self.answer(call, false),
            Event::Beat { server, number } => {
                let SimulatedServer { beat, is_up, paused_until, .. } = self.servers[server as usize];
                if !is_up || beat != number {
                    return;
                }
                match paused_until > self.now {
                    true => self.schedule(paused_until, event),
                    false => self.wake(server),
                }
            }
            Event::DebitBeat { server, tables } => self.beat_debits(server, tables as usize),
            Event::DebitReach(debit) => self.reach_debit(debit),
            Event::DebitEnd { debit, is_answered } => self.end_debit(debit, is_answered),
            Event::Fault(fault) => self.fault(self.scenario.faults[fault as usize].fault),
            Event::Restart(server) => self.restart(server),
            Event::Cold => self.cold(),
        }
    }

    fn schedule(&mut self, time: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse(Scheduled { time: time.max(self.now), number: self.number, event }));
    }

    fn tables(&self, tables: usize) -> &'w Tables {
        let seed = self.scenario.seed;
        self.world.tables[tables].get_or_init(|| {
            let secret = HashSecret(mix(seed), tables as u64);
            let tables = Tables::with_policy(LeaseConfig::default(), self.scenario.lease_policy, secret);
            tables.set_enabled(self.scenario.leases);
            tables.set_servers(u64::from(self.scenario.servers));
            tables
        })
    }

    /// The store's clock.
    fn store_time(&self) -> Timestamp {
        Timestamp::from_micros((START + self.now / 1_000).saturating_add_signed(self.store_offset))
    }

    /// A server's clock.
    fn steady(&self, server: u32) -> Steady {
        let SimulatedServer { drift, clock, .. } = self.servers[server as usize];
        let micros = (self.now / 1_000) as i64;
        Steady::from_micros(clock.saturating_add_signed(micros + micros * drift / 1_000_000))
    }

    fn held(&self, server: &SimulatedServer) -> u64 {
        match server.is_up {
            true => self.tables(server.tables).status(Steady::from_micros(0), 0).held,
            false => 0,
        }
    }

    fn is_measured(&self) -> bool {
        let (warm_up, end) = (self.scenario.warm_up.as_micros() * 1_000, self.scenario.duration.as_micros() * 1_000);
        (warm_up..end).contains(&self.now)
    }

    fn violation(&mut self, what: String) {
        self.outcome.violated += 1;
        if self.outcome.violations.len() < MAX_VIOLATIONS {
            self.outcome.violations.push(Violation { at: self.now as f64 / SECOND as f64, what });
        }
    }

    /// All units that were taken must be accounted for.
    fn check_units(&mut self, server: usize, counts: &LeaseCounts, held: u64) {
        let LeaseCounts { taken, spent, returned, expired, lost, impossible, .. } = *counts;
        let found = spent + held + returned + expired + lost + impossible;
        if taken != found {
            self.violation(format!("server {}: {taken} units were taken, and {found} accounted for", server + 1));
        }
    }
}
