//! Fleets of simulated servers: together they exceed an amount by no more than what they admitted within a beat and a
//! round trip.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use proptest::prelude::*;
use tollgate_core::{ClaimId, Source, Span};
use tollgate_store::summed::report::{KeyCount, OtherReports, Report};
use tollgate_store::summed::{BEAT, INTERVAL, STALE_AFTER};
use tollgate_store::{ManualClock, Steady};

use crate::summed::world::{Rule, START, Server, claim, digest, exchange, new_id, one, passes, server};

/// A fleet and its load. Times in microseconds.
#[derive(Clone, Debug)]
struct Plan {
    servers: usize,
    amounts: [u64; 2],
    /// The mean gap between requests.
    gap: u64,
    /// The mean length of a request.
    length: u64,
    /// The share of requests that the first server gets, in percent.
    skew: u64,
    /// The share of critical requests, in percent.
    critical: u64,
    /// The longest round trip.
    round_trip: u64,
    /// The most by which a timer is late.
    late: u64,
    /// Bursts: every so often, this many requests at once.
    burst: u64,
    seed: u64,
}

/// What happens, at a server.
#[derive(Debug)]
enum Event {
    Arrives {
        count: u64,
    },
    Ends {
        id: ClaimId,
    },
    Publishes,
    /// The report is written, and the others are read, at once.
    Arrived {
        report: Report,
        sent: Steady,
        notes_read: u64,
    },
    Answered {
        answer: OtherReports,
        sent: Steady,
        next: u64,
    },
}

struct Fleet {
    plan: Plan,
    clock: ManualClock,
    rule: Rule,
    servers: Vec<Server>,
    /// When each server got its first request.
    began: Vec<Option<u64>>,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    payloads: HashMap<u64, (usize, Event)>,
    next_event: u64,
    random: fastrand::Rng,
    /// The counts that are published, and since when.
    published: HashMap<usize, (u64, Vec<KeyCount>)>,
    in_flight: u64,
    /// When requests were admitted, within the last seconds.
    admitted: VecDeque<u64>,
    admissions: u64,
    refusals: u64,
    most_over: [i64; 2],
}

const END: u64 = 6_000_000;

impl Fleet {
    fn new(plan: Plan) -> Fleet {
        let clock = ManualClock::at(START);
        let servers: Vec<Server> = (0..plan.servers).map(|_| server(&clock)).collect();
        servers.iter().for_each(|server| server.set_servers(plan.servers as u64));
        Fleet {
            rule: Rule::new("fleet", plan.amounts),
            began: vec![None; plan.servers],
            servers,
            clock,
            events: BinaryHeap::new(),
            payloads: HashMap::new(),
            next_event: 0,
            random: fastrand::Rng::with_seed(plan.seed),
            published: HashMap::new(),
            in_flight: 0,
            admitted: VecDeque::new(),
            admissions: 0,
            refusals: 0,
            most_over: [i64::MIN; 2],
            plan,
        }
    }

    fn at(&mut self, time: u64, server: usize, event: Event) {
        self.events.push(Reverse((time, self.next_event)));
        self.payloads.insert(self.next_event, (server, event));
        self.next_event += 1;
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.u64(0..=end)
    }

    fn run(&mut self) {
        self.at(0, 0, Event::Arrives { count: 1 });
        if self.plan.burst > 0 {
            self.at(2_500_000, 0, Event::Arrives { count: self.plan.burst });
        }
        while let Some(Reverse((time, number))) = self.events.pop() {
            if time > END {
                return;
            }
            self.clock.set(START.after(Span::from_micros(time)));
            let (server, event) = self.payloads.remove(&number).unwrap();
            self.step(time, server, event);
        }
    }

    fn step(&mut self, time: u64, at: usize, event: Event) {
        match event {
            Event::Arrives { count } => {
                (0..count).for_each(|_| self.arrive(time));
                if count == 1 {
                    let gap = self.below(2 * self.plan.gap);
                    self.at(time + 1 + gap, 0, Event::Arrives { count: 1 });
                }
            }
            Event::Ends { id } => {
                assert_eq!(one(&self.servers[at], id, self.rule.back()).taken, 1);
                self.in_flight -= 1;
            }
            Event::Publishes => {
                let (report, sent) = self.servers[at].report(digest).unwrap();
                let there = self.below(self.plan.round_trip / 2);
                self.at(time + there, at, Event::Arrived { report, sent, notes_read: time });
            }
            Event::Arrived { report, sent, notes_read } => {
                self.published.retain(|_, (since, _)| time - *since < STALE_AFTER.as_micros());
                self.published.insert(at, (time, report.counts));
                let others = self.published.iter().filter(|(other, _)| **other != at);
                let answer = OtherReports {
                    reports: others.map(|(_, (_, counts))| counts.clone()).collect(),
                    notes: Vec::new(),
                };
                let back = self.below(self.plan.round_trip / 2);
                let late = self.below(self.plan.late);
                let next = (notes_read + INTERVAL.as_micros() as u64 + late).max(time + back);
                self.at(time + back, at, Event::Answered { answer, sent, next });
            }
            Event::Answered { answer, sent, next } => {
                self.servers[at].receive(sent, &answer);
                self.at(next, at, Event::Publishes);
            }
        }
    }

    fn arrive(&mut self, time: u64) {
        let is_first = self.below(99) < self.plan.skew;
        let at = if is_first { 0 } else { self.random.usize(0..self.plan.servers) };
        let class = usize::from(self.below(99) >= self.plan.critical);
        let id = new_id();
        let began = *self.began[at].get_or_insert(time);
        if began == time {
            self.at(time, at, Event::Publishes);
        }
        let reading = one(&self.servers[at], id, self.rule.take(class));
        // Until its first answer a server knows nothing of the others, and has its share.
        let is_alone = reading.source == Source::Local;
        assert!(!is_alone || time - began <= self.plan.round_trip, "{:?}", self.plan);
        if !reading.admits {
            self.refusals += 1;
            return;
        }
        let window = BEAT.as_micros() as u64 + self.plan.round_trip;
        while self.admitted.front().is_some_and(|admitted| *admitted + window < time) {
            self.admitted.pop_front();
        }
        self.admitted.push_back(time);
        (self.in_flight, self.admissions) = (self.in_flight + 1, self.admissions + 1);
        let over = self.in_flight as i64 - self.rule.amount(class) as i64;
        self.most_over[class] = self.most_over[class].max(over);
        assert!(
            is_alone || over <= self.admitted.len() as i64,
            "{over} over, {} admitted lately: {:?}",
            self.admitted.len(),
            self.plan
        );
        let length = 1 + self.below(2 * self.plan.length);
        self.at(time + length, at, Event::Ends { id });
    }
}

fn plan() -> impl Strategy<Value = Plan> {
    let sizes = (2..12usize, 20..400u64, 50..100u64, 200..8_000u64, 5_000..2_000_000u64);
    let mix = (0..100u64, 0..50u64, 0..40_000u64, 0..400u64, any::<u64>());
    (sizes, mix).prop_map(|((servers, amount, share, gap, length), (skew, critical, round_trip, burst, seed))| {
        // A timer that is late and a long round trip together must not exceed what the interval leaves of half a beat.
        let late = 25_000 - round_trip / 4;
        let amounts = [amount, amount * share / 100];
        Plan { servers, amounts, gap, length, skew, critical, round_trip, late, burst, seed }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_more_is_exceeded_than_was_admitted_in_a_beat_and_a_round_trip(plan in plan()) {
        Fleet::new(plan).run();
    }
}

/// Under a steady overload the amounts are used up and hardly exceeded, and critical requests have their reserve.
#[test]
fn an_overloaded_fleet_rests_at_its_amounts() {
    let plan = Plan {
        servers: 8,
        amounts: [500, 400],
        gap: 500,
        length: 400_000,
        skew: 30,
        critical: 10,
        round_trip: 2_000,
        late: 5_000,
        burst: 0,
        seed: 1,
    };
    let mut fleet = Fleet::new(plan);
    fleet.run();
    assert!(fleet.refusals > fleet.admissions / 4, "{} of {}", fleet.refusals, fleet.admissions);
    assert!((380..=520).contains(&fleet.in_flight), "{}", fleet.in_flight);
    // 2,000 requests a second, of which about 500 come within a beat; many fewer pass.
    assert!(fleet.most_over[1] > 0 && fleet.most_over[1] < 150, "{:?}", fleet.most_over);
}

/// A burst on idle servers at the worst moment: each admits what it does not know of the others.
#[test]
fn a_burst_within_a_beat_exceeds_the_amount_and_the_next_beat_stops_it() {
    let clock = ManualClock::at(START);
    let (servers, rule) = ([server(&clock), server(&clock), server(&clock)], Rule::new("fleet", [10, 10]));
    for server in &servers {
        assert!(passes(server, &claim(new_id(), [rule.take(0)])));
    }
    exchange(&servers, &[]);
    let admitted = |server| (0..20).filter(|_| passes(server, &claim(new_id(), [rule.take(0)]))).count();
    assert_eq!(servers.iter().map(admitted).sum::<usize>(), 3 * 7);
    exchange(&servers, &[]);
    assert_eq!(servers.iter().map(admitted).sum::<usize>(), 0);
}
