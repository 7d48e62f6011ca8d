//! Plans from reports, and a fleet whose servers learn of them late, not at all, or start with an old copy.

use proptest::prelude::*;
use tollgate::{KnownRegions, Layer, LoadOptions, RegionNames, RuleFiles};
use tollgate_rules::{LayerShares, MovingShare, RuleFile};

use super::*;

const REGIONS: [&str; 3] = ["eu-west", "us-east", "us-west"];
const NOW: Timestamp = Timestamp::from_secs(2_000);

/// The rules of a server in a region, with these shares above them.
fn rules(here: &str, written: Option<&(u64, MovingShares)>, are_shares_unknown: bool) -> Ruleset {
    let names = RegionNames::new(here, REGIONS.into_iter().filter(|name| *name != here)).unwrap();
    let options = LoadOptions { regions: KnownRegions::All(names), ..LoadOptions::default() };
    let text = "domain: d\nentity: user\nrules:\n- {name: r, key: [user], limit: 10000/minute, algorithm: fixed_window, region: {split: moving}}\n\
                - {name: other, key: [user], limit: 100/day}\n";
    let files = RuleFiles::from_files(vec![RuleFile { name: "f".to_owned(), text: text.to_owned() }]);
    let shares = written.map(|(generation, shares)| LayerShares {
        domain: "d".to_owned(),
        rule: "r".to_owned(),
        generation: *generation,
        shares: shares.clone(),
    });
    let layer = Layer { shares: shares.into_iter().collect(), are_shares_unknown, ..Layer::default() };
    Ruleset::load_with_layer(files, &options, &layer, 1).unwrap().0
}

fn share(rules: &Ruleset) -> u64 {
    // Of 10,000 units, in basis points.
    rules.domains()[0].rules()[0].limit(0).unwrap().amount()
}

fn line(in_force: SharesInForce, demand: u64) -> ShareLine {
    ShareLine { domain: "d".to_owned(), rule: "r".to_owned(), in_force, demand }
}

/// The report of a server that runs for a minute.
fn report<'r>(region: &'r str, counting: u64, lines: &'r [ShareLine]) -> RegionReport<'r> {
    let (at, uptime) = (Timestamp::from_secs(1_000), Span::from_secs(60));
    RegionReport { region, at, uptime, counting: Some(counting), lines }
}

fn document(change: &Change) -> SharesDocument {
    serde_json::from_str(change.document.as_deref().unwrap()).unwrap()
}

#[test]
fn a_plan_is_a_change_of_the_record_that_it_was_made_from() {
    let rules = rules("us-east", None, false);
    let lines: Vec<[ShareLine; 1]> = [10, 80, 10].map(|demand| [line(SharesInForce::Equal, demand)]).into();
    let reports = |counting: [u64; 3]| -> Vec<RegionReport<'_>> {
        let one = |at: usize| report(REGIONS[at], counting[at], &lines[at]);
        (0..3).map(one).collect()
    };
    let changes = plan(&rules, &reports([1, 1, 1]), NOW, |_, _| None);
    assert_eq!(changes.len(), 1, "other rules have no shares");
    assert_eq!(changes[0].name, RecordName::new(RecordKind::Shares, "d", "r"));
    assert_eq!(
        (changes[0].expect, &*changes[0].reason),
        (Precondition::Absent, "units a minute: eu-west 10, us-east 80, us-west 10")
    );
    let first = document(&changes[0]);
    assert_eq!(
        first.shares,
        [("eu-west".to_owned(), 2_084), ("us-east".to_owned(), 3_333), ("us-west".to_owned(), 2_084)].into()
    );
    assert_eq!(first.held.len(), 2, "what was given up is held");

    // When all of it was given up, and nobody has confirmed it.
    let share = |share, held| MovingShare { share, held };
    let given_up = [share(1_000, 3_333), share(3_333, 3_333), share(1_000, 3_333)];
    let of = REGIONS.into_iter().map(str::to_owned).zip(given_up).collect();
    let stored = (7, MovingShares { of, given_at: None });
    let in_force = SharesInForce::Written(7);
    let lines: Vec<[ShareLine; 1]> = [10, 80, 10].map(|demand| [line(in_force, demand)]).into();
    let plan_for = |counting: [u64; 3], lines: &[[ShareLine; 1]]| {
        let one = |at: usize| report(REGIONS[at], counting[at], &lines[at]);
        let reports: Vec<RegionReport<'_>> = (0..lines.len()).map(one).collect();
        plan(&rules, &reports, NOW, |_, _| Some(stored.clone()))
    };
    let grown = plan_for([1, 1, 1], &lines);
    assert_eq!((grown[0].expect, document(&grown[0]).shares["us-east"]), (Precondition::Generation(7), 5_833));
    // Another server counts in one region; it gives up nothing until that one reports.
    let some = plan_for([2, 1, 1], &lines);
    assert!(document(&some[0]).shares["us-east"] < 5_833 && document(&some[0]).held["eu-west"] == 3_333, "{some:?}");
    assert!(plan_for([2, 1, 2], &lines).is_empty());
    // Nothing is reported of a region, or nothing of its shares.
    assert!(document(&plan_for([1, 1, 1], &lines[..2])[0]).shares["us-east"] < 5_833);
    let unknown = [lines[0].clone(), lines[1].clone(), [line(SharesInForce::Unknown, 10)]];
    assert!(document(&plan_for([1, 1, 1], &unknown)[0]).shares["us-east"] < 5_833);
}

#[test]
fn no_server_stands_in_for_one_that_is_silent() {
    // When each was written, how long its server ran, and how many counted, as it knows.
    let complete = |reports: &[(u64, u64, Option<u64>)]| {
        let report = |&(at, uptime, counting): &(u64, u64, Option<u64>)| {
            let (at, uptime) = (Timestamp::from_secs(at), Span::from_secs(uptime));
            RegionReport { region: "us-east", at, uptime, counting, lines: &[] }
        };
        let reports: Vec<RegionReport<'_>> = reports.iter().map(report).collect();
        is_complete(|| reports.iter())
    };
    assert!(!complete(&[]));
    assert!(complete(&[(1_000, 60, Some(1))]));
    assert!(!complete(&[(1_000, 60, Some(2))]));
    assert!(complete(&[(1_000, 60, Some(2)), (1_005, 60, Some(2))]));
    // One of them has ended: the other one counted a third, and another has begun since.
    assert!(!complete(&[(990, 60, Some(2)), (1_000, 60, Some(2)), (1_001, 7, Some(2))][1..]));
    assert!(!complete(&[(990, 60, Some(2)), (1_001, 7, Some(2))]));
    assert!(!complete(&[(990, 60, Some(2)), (1_001, 60, Some(2)), (1_002, 3, Some(3))][..1]));
    // What does not count in the store is no help.
    assert!(!complete(&[(1_000, 60, Some(2)), (1_005, 60, None)]));
}

#[test]
fn reports_of_shares_are_short_and_those_of_other_versions_can_be_read() {
    let text = serde_json::to_string(&[line(SharesInForce::Written(7), 3), line(SharesInForce::Unknown, 0)]).unwrap();
    let expected = r#"[{"domain":"d","rule":"r","in_force":{"written":7},"demand":3},{"domain":"d","rule":"r","in_force":"unknown","demand":0}]"#;
    assert_eq!(text, expected);
    let origin = |written: Option<(u64, MovingShares)>, unknown| {
        let meter = DemandMeter::default();
        meter.report(&rules("us-east", written.as_ref(), unknown))
    };
    assert_eq!(origin(None, false), [line(SharesInForce::Equal, 0)]);
    assert_eq!(origin(Some((9, MovingShares::default())), false), [line(SharesInForce::Written(9), 0)]);
    assert_eq!(origin(None, true), [line(SharesInForce::Unknown, 0)]);
}

/// A server of the fleet.
#[derive(Clone, Debug)]
struct FleetServer {
    id: u32,
    region: usize,
    /// When it began, in microseconds.
    began: u64,
    /// What it knows of the record: the copy that it started with, or what it read last.
    known: Option<(u64, MovingShares)>,
    is_unknown: bool,
    /// Whether it reaches the store of record.
    is_connected: bool,
}

/// The last report of a server that may have ended since.
#[derive(Clone, Debug)]
struct Row {
    id: u32,
    at: u64,
    region: usize,
    uptime: u64,
    counting: u64,
    lines: [ShareLine; 1],
}

/// A fleet, its store of record, and a clock in microseconds.
struct World {
    now: u64,
    servers: Vec<FleetServer>,
    /// All writes of the record.
    writes: Vec<(u64, MovingShares)>,
    rows: Vec<Row>,
    demand: [u64; 3],
    next_id: u32,
}

impl World {
    fn new() -> World {
        let mut world = World {
            now: 1_000_000_000,
            servers: Vec::new(),
            writes: Vec::new(),
            rows: Vec::new(),
            demand: [1; 3],
            next_id: 0,
        };
        for region in [0, 0, 1, 1, 2] {
            world.start(region, None);
        }
        world
    }

    fn start(&mut self, region: usize, known: Option<(u64, MovingShares)>) {
        self.next_id += 1;
        let (id, began) = (self.next_id, self.now);
        self.servers.push(FleetServer { id, region, began, known, is_unknown: true, is_connected: true });
    }

    /// The servers that count in the store of a region.
    fn counting(&self, region: usize) -> u64 {
        self.servers.iter().filter(|server| server.region == region).count() as u64
    }

    fn in_force(server: &FleetServer) -> SharesInForce {
        match &server.known {
            _ if server.is_unknown => SharesInForce::Unknown,
            Some((generation, _)) => SharesInForce::Written(*generation),
            None => SharesInForce::Equal,
        }
    }

    fn read(&mut self, at: usize) {
        if self.servers[at].is_connected {
            self.servers[at].known = self.writes.last().cloned();
        }
    }

    /// A server reports, and then knows that the others know of it.
    fn report(&mut self, at: usize) {
        let server = self.servers[at].clone();
        if !server.is_connected {
            return;
        }
        let lines = [line(World::in_force(&server), self.demand[server.region])];
        self.rows.retain(|row| row.id != server.id);
        let counting = self.counting(server.region);
        self.now += 1;
        let (written_at, uptime) = (self.now, self.now - server.began);
        self.rows.push(Row { id: server.id, at: written_at, region: server.region, uptime, counting, lines });
        if server.is_unknown {
            self.read(at);
            self.servers[at].is_unknown = false;
        }
    }

    /// Any server plans from what it has read.
    fn plan(&mut self, at: usize) {
        let server = &self.servers[at];
        if !server.is_connected {
            return;
        }
        let fresh = self.rows.iter().filter(|row| self.now < row.at + 60_000_000);
        let report = |row: &'_ Row| (row.region, row.at, row.uptime, row.counting, row.lines.clone());
        let rows: Vec<_> = fresh.map(report).collect();
        let reports: Vec<RegionReport<'_>> = rows
            .iter()
            .map(|(region, at, uptime, counting, lines)| RegionReport {
                region: REGIONS[*region],
                at: Timestamp::from_micros(*at),
                uptime: Span::from_micros(*uptime),
                counting: Some(*counting),
                lines,
            })
            .collect();
        let rules = rules(REGIONS[server.region], None, false);
        let changes = plan(&rules, &reports, Timestamp::from_micros(self.now), |_, _| server.known.clone());
        for change in &changes {
            let is_current = match change.expect {
                Precondition::Generation(generation) => self.writes.last().is_some_and(|(last, _)| *last == generation),
                _ => self.writes.is_empty(),
            };
            if is_current {
                self.writes.push((self.writes.len() as u64 + 1, document(change).to_shares()));
            }
        }
    }

    /// The most that a server of each region uses, together.
    fn in_use(&self) -> u64 {
        self.in_use_by_region().iter().sum()
    }

    fn in_use_by_region(&self) -> [u64; 3] {
        let share =
            |server: &FleetServer| share(&rules(REGIONS[server.region], server.known.as_ref(), server.is_unknown));
        let most = |region: usize| self.servers.iter().filter(|server| server.region == region).map(share).max();
        [0, 1, 2].map(|region| most(region).unwrap_or(0))
    }
}

/// The counters of the regions for one caller, who sends as much as is admitted in all of them at every moment. Units of a
/// limit of 10,000 a minute.
#[derive(Debug, Default)]
struct Counters {
    /// Of a fixed window: when it began, and the units by region.
    window: (u64, [u64; 3]),
    /// Of a bucket, in microseconds of the refill rate: when they were drained, and the levels.
    bucket: (u64, [u64; 3]),
    /// What the buckets admitted in all, and when.
    admitted: Vec<(u64, u64)>,
}

impl Counters {
    /// In microseconds.
    const PERIOD: u64 = 60_000_000;
    /// Basis points in a whole.
    const WHOLE: u64 = 10_000;

    /// Every region admits what the largest share of its servers permits. Returns what all admitted in this window.
    fn spend(&mut self, now: u64, shares: [u64; 3]) -> u64 {
        let start = now - now % Self::PERIOD;
        if self.window.0 != start {
            self.window = (start, [0; 3]);
        }
        let mut admitted = 0;
        for (region, share) in shares.into_iter().enumerate() {
            let used = &mut self.window.1[region];
            *used = (*used).max(share);
            let level = &mut self.bucket.1[region];
            let room = (share * Self::PERIOD).saturating_sub(*level);
            *level += room;
            admitted += room;
        }
        self.admitted.push((now, admitted));
        self.window.1.iter().sum()
    }

    /// Buckets drain by the share that their region had since the last time.
    fn drain(&mut self, now: u64, shares: [u64; 3]) {
        for (level, share) in self.bucket.1.iter_mut().zip(shares) {
            *level = level.saturating_sub((now - self.bucket.0) * share);
        }
        self.bucket.0 = now;
    }

    /// The most that the buckets admitted in any time that ends now, in relation to the burst and what is replenished in
    /// that time; in basis points.
    fn most_of_buckets(&self) -> u64 {
        let Some((now, _)) = self.admitted.last() else { return 0 };
        let mut sum = 0;
        let parts = self.admitted.iter().rev().map(|(at, admitted)| {
            sum += admitted;
            sum.div_ceil(Self::PERIOD + now - at)
        });
        parts.max().unwrap_or(0)
    }
}

/// What happens in the fleet, to the server of this number.
#[derive(Clone, Copy, Debug)]
enum Event {
    Read(usize),
    Report(usize),
    Plan(usize),
    Connect(usize),
    CutOff(usize),
    Stop(usize),
    /// In a region, with the copy of an earlier write.
    Start(usize, usize),
    Demand([u64; 3]),
    Pass(u64),
    /// All that are connected read and report, and one plans.
    Round(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let server = 0_usize..8;
    prop_oneof![
        4 => server.clone().prop_map(Event::Read),
        3 => server.clone().prop_map(Event::Report),
        4 => server.clone().prop_map(Event::Plan),
        2 => server.clone().prop_map(Event::Connect),
        1 => server.clone().prop_map(Event::CutOff),
        1 => server.clone().prop_map(Event::Stop),
        1 => (0_usize..3, 0_usize..40).prop_map(|(region, copy)| Event::Start(region, copy)),
        2 => [0_u64..100, 0_u64..100, 0_u64..100].prop_map(Event::Demand),
        2 => (1_u64..70).prop_map(Event::Pass),
        4 => server.prop_map(Event::Round),
    ]
}

fn apply(world: &mut World, event: Event) {
    let servers = world.servers.len();
    let number = |at: usize| (servers > 0).then(|| at % servers);
    match event {
        Event::Read(at) => number(at).into_iter().for_each(|at| world.read(at)),
        Event::Report(at) => number(at).into_iter().for_each(|at| world.report(at)),
        Event::Plan(at) => number(at).into_iter().for_each(|at| world.plan(at)),
        Event::Connect(at) => number(at).into_iter().for_each(|at| world.servers[at].is_connected = true),
        Event::CutOff(at) => number(at).into_iter().for_each(|at| world.servers[at].is_connected = false),
        Event::Stop(at) => number(at).into_iter().for_each(|at| drop(world.servers.remove(at))),
        Event::Start(region, copy) if servers < 8 => {
            let copy = world.writes.get(copy).cloned();
            world.start(region, copy);
        }
        Event::Start(..) => {}
        Event::Demand(demand) => world.demand = demand,
        Event::Pass(seconds) => world.now += seconds * 1_000_000,
        Event::Round(at) => {
            world.now += 10_000_000;
            for at in 0..servers {
                world.read(at);
                world.report(at);
            }
            number(at).into_iter().for_each(|at| world.plan(at));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_more_than_the_whole_is_in_use_at_any_moment(events in prop::collection::vec(event(), 1..80)) {
        let mut world = World::new();
        for event in events {
            apply(&mut world, event);
            prop_assert!(world.in_use() <= 10_000, "{} after {event:?}: {:?} {:?}", world.in_use(), world.servers, world.writes);
        }
    }

    /// Counters keep what they have used, whatever becomes of their shares: units that are admitted, not shares, make the bound.
    #[test]
    fn no_more_than_a_quarter_is_admitted_beyond_the_limit(events in prop::collection::vec(event(), 1..80)) {
        let (mut world, mut counters) = (World::new(), Counters::default());
        counters.bucket.0 = world.now;
        for event in events {
            let before = world.in_use_by_region();
            apply(&mut world, event);
            counters.drain(world.now, before);
            let admitted = counters.spend(world.now, world.in_use_by_region());
            prop_assert!(admitted <= Counters::WHOLE * 5 / 4, "{admitted} after {event:?}: {:?}", world.writes);
            let most = counters.most_of_buckets();
            prop_assert!(most <= Counters::WHOLE * 5 / 4, "{most} after {event:?}: {:?}", world.writes);
        }
    }
}

/// The bound is true, and nearly met: by traffic that moves from region to region, and is as much as each admits.
#[test]
fn traffic_that_moves_gets_up_to_a_quarter_more() {
    let (mut world, mut counters) = (World::new(), Counters::default());
    counters.bucket.0 = world.now;
    let (mut most, mut most_of_buckets) = (0, 0);
    for round in 0..360 {
        // Shares begin to move with a window.
        world.demand = [[90, 5, 5], [5, 90, 5], [5, 5, 90]][(round + 5) / 60 % 3];
        let before = world.in_use_by_region();
        apply(&mut world, Event::Round(round));
        counters.drain(world.now, before);
        most = most.max(counters.spend(world.now, world.in_use_by_region()));
        most_of_buckets = most_of_buckets.max(counters.most_of_buckets());
    }
    assert!((12_400..=12_500).contains(&most), "{most}");
    assert!((10_100..=12_500).contains(&most_of_buckets), "{most_of_buckets}");
}

#[test]
fn shares_follow_demand_in_a_few_rounds() {
    let mut world = World::new();
    // By server: there are two in each of the first two regions.
    let rounds = |world: &mut World, demand| {
        world.demand = demand;
        (0..40).for_each(|round| apply(world, Event::Round(round)));
        let shares = world.writes.last().unwrap().1.of.values().map(|at| at.share);
        (shares.collect::<Vec<_>>(), world.in_use())
    };
    let is_near = |(shares, in_use): (Vec<u16>, u64), expected: [u16; 3]| {
        let is_near =
            shares.iter().zip(expected).all(|(share, expected)| share.abs_diff(expected) < MovingShares::MIN_STEP);
        assert!(is_near && (9_500..=10_000).contains(&in_use), "{shares:?}: {in_use}, not {expected:?}");
    };
    is_near(rounds(&mut world, [45, 2, 5]), [9_000, 500, 500]);
    is_near(rounds(&mut world, [5, 5, 80]), [1_000, 1_000, 8_000]);
    // A server that is cut off keeps what it had, and the others get nothing of it.
    world.servers[4].is_connected = false;
    let (_, in_use) = rounds(&mut world, [40, 5, 10]);
    assert!(in_use <= 10_000, "{in_use}");
    let left = share(&rules(REGIONS[2], world.servers[4].known.as_ref(), false));
    assert!(left > 7_500, "{left}");
    world.servers[4].is_connected = true;
    is_near(rounds(&mut world, [40, 5, 10]), [8_000, 1_000, 1_000]);
}
