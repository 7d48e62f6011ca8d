//! Everything that can happen to a Redis, while servers have it for a store.

use tollgate_testing::cluster::SLOTS;
use tollgate_testing::{Cluster, Redis, Sentinel, eventually, machine};

use crate::fleet::servers::{callers, callers_in};
use crate::timing::trial::{Bound, Hits, Running, Stage, Trial, report_judged, tried};

/// Slots that are moved around that of each caller.
const MOVED_AROUND: u16 = 20;

/// A cluster and servers that have it for a store.
struct World {
    cluster: Cluster,
    stage: Stage,
}

impl World {
    fn of(cluster: Cluster) -> World {
        let stage = Stage::on(&cluster.url());
        World { cluster, stage }
    }

    /// A trial that no caller may notice.
    fn unnoticed(&mut self, name: &'static str, fault: impl Fn(&mut Cluster, &Trial, &Running<'_>)) {
        tried(|number| {
            let callers = callers_in(&mut self.cluster, &format!("{name} {number}"));
            let trial = Trial { name, callers, hits: Hits::Nobody, bound: Bound::Exact };
            let judged = self.stage.run(&trial, |running| fault(&mut self.cluster, &trial, running));
            self.cluster.until_whole();
            judged
        });
    }

    /// A trial that hits a primary, which the fault is told with one of its slots; and what brings the cluster in order after it.
    fn hit(
        &mut self,
        name: &'static str,
        bound: Bound,
        fault: impl Fn(&mut Cluster, Victim, &Running<'_>),
        repair: impl Fn(&mut Cluster, Victim),
    ) {
        tried(|number| {
            let callers = callers_in(&mut self.cluster, &format!("{name} {number}"));
            let (slot, node) = callers[0].home.unwrap();
            let victim = Victim { slot, node };
            let trial = Trial { name, callers, hits: Hits::Node(node), bound };
            let judged = self.stage.run(&trial, |running| fault(&mut self.cluster, victim, running));
            repair(&mut self.cluster, victim);
            self.cluster.until_whole();
            judged
        });
    }
}

/// The primary that a fault hits, and a slot of it.
#[derive(Clone, Copy)]
struct Victim {
    slot: u16,
    node: usize,
}

#[test]
fn slow_a_cluster() {
    machine::alone();
    let mut world = World::of(Cluster::start());
    world.unnoticed("no fault", |cluster, trial, running| {
        running.a_while();
        for caller in &trial.callers {
            let (_, node) = caller.home.unwrap();
            let keys = cluster.node(node).redis.inline(&format!("KEYS *{{fleet/{}}}*", caller.ask.user));
            assert!(keys.starts_with("*1\r\n"), "{caller:?} is not where it should be: {keys}");
        }
    });
    world.hit(
        "kill -9 a primary",
        Bound::Outage,
        |cluster, victim, _| cluster.node(victim.node).redis.kill(),
        |cluster, victim| {
            assert_ne!(cluster.primary_of(victim.slot), Some(victim.node));
            cluster.node(victim.node).redis.restart();
        },
    );
    world.hit(
        "SIGSTOP a primary",
        Bound::Outage,
        |cluster, victim, running| {
            cluster.node(victim.node).redis.pause();
            let heir = || cluster.primary_of(victim.slot).filter(|primary| *primary != victim.node);
            assert!(eventually(heir).is_some(), "nobody took over");
            running.a_while();
            cluster.node(victim.node).redis.resume();
        },
        |_, _| {},
    );
    world.hit(
        "FLUSHALL of a primary",
        Bound::Loss,
        |cluster, victim, _| drop(cluster.node(victim.node).redis.inline("FLUSHALL")),
        |_, _| {},
    );
    world.unnoticed("SCRIPT FLUSH everywhere", |cluster, _, running| {
        cluster.nodes().iter().for_each(|node| drop(node.redis.inline("SCRIPT FLUSH")));
        running.a_while();
    });
    world.unnoticed("slots move", |cluster, trial, running| {
        move_slots(cluster, trial);
        running.a_while();
    });
    tried(|number| {
        let callers = callers_in(&mut world.cluster, &format!("all {number}"));
        let trial = Trial { name: "restart all", callers, hits: Hits::Everybody, bound: Bound::OutageAndLoss };
        let judged = world.stage.run(&trial, |_| {
            world.cluster.nodes().iter_mut().for_each(|node| node.redis.kill());
            world.cluster.nodes().iter_mut().for_each(|node| node.redis.restart());
        });
        world.cluster.until_whole();
        judged
    });
    report_judged("a cluster");
}

/// Moves the slots of all callers, and those around them, each to the next primary.
fn move_slots(cluster: &mut Cluster, trial: &Trial) {
    let mut primaries: Vec<usize> = trial.callers.iter().map(|caller| caller.home.unwrap().1).collect();
    primaries.sort_unstable();
    primaries.dedup();
    for caller in &trial.callers {
        let (slot, from) = caller.home.unwrap();
        let to = *primaries.iter().find(|node| **node > from).unwrap_or(&primaries[0]);
        let around = slot.saturating_sub(MOVED_AROUND)..(slot + MOVED_AROUND).min(SLOTS);
        let own = cluster.slots_of(from);
        for slot in around.filter(|slot| own.iter().any(|slots| slots.contains(slot))) {
            cluster.reshard(slot..slot + 1, from, to);
        }
        assert_eq!(cluster.primary_of(slot), Some(to));
    }
}

#[test]
fn slow_a_primary_that_is_cut_off_from_its_clients() {
    machine::alone();
    let mut world = World::of(Cluster::behind_relays());
    world.unnoticed("relays, no fault", |_, _, running| running.a_while());
    world.hit(
        "a primary is cut off",
        Bound::Outage,
        |cluster, victim, running| {
            cluster.node(victim.node).relay().refuse();
            cluster.node(victim.node).relay().cut();
            running.a_while();
            cluster.node(victim.node).relay().pass();
        },
        |_, _| {},
    );
    world.hit(
        "the way to it stalls",
        Bound::Outage,
        |cluster, victim, running| {
            cluster.node(victim.node).relay().stall();
            running.a_while();
            cluster.node(victim.node).relay().pass();
        },
        |_, _| {},
    );
    report_judged("a primary that is cut off");
}

/// A trial where there is no cluster.
fn without_cluster(
    stage: &mut Stage,
    name: &'static str,
    hits: Hits,
    bound: Bound,
    mut fault: impl FnMut(&Running<'_>),
) {
    tried(|number| {
        let trial = Trial { name, callers: callers(&format!("{name} {number}")), hits, bound };
        stage.run(&trial, |running| fault(running))
    });
}

#[test]
fn slow_one_redis() {
    machine::alone();
    let mut redis = Redis::start();
    let mut stage = Stage::on(&redis.url());
    let stage = &mut stage;
    without_cluster(stage, "one Redis, no fault", Hits::Nobody, Bound::Exact, |running| running.a_while());
    without_cluster(stage, "kill -9, then start again", Hits::Everybody, Bound::OutageAndLoss, |running| {
        redis.kill();
        running.a_while();
        redis.restart();
    });
    without_cluster(stage, "SIGSTOP, then SIGCONT", Hits::Everybody, Bound::Outage, |running| {
        redis.pause();
        running.a_while();
        redis.resume();
    });
    without_cluster(stage, "FLUSHALL", Hits::Everybody, Bound::Loss, |_| drop(redis.inline("FLUSHALL")));
    without_cluster(stage, "SCRIPT FLUSH", Hits::Nobody, Bound::Exact, |running| {
        redis.inline("SCRIPT FLUSH");
        running.a_while();
    });
    report_judged("one Redis");
}

#[test]
fn slow_sentinels_fail_over() {
    machine::alone();
    let mut sentinel = Sentinel::start();
    let mut stage = Stage::on(&sentinel.url());
    let stage = &mut stage;
    without_cluster(stage, "sentinels, no fault", Hits::Nobody, Bound::Exact, |running| running.a_while());
    tried(|number| {
        let callers = callers(&format!("killed {number}"));
        let trial = Trial { name: "kill -9 the primary", callers, hits: Hits::Everybody, bound: Bound::Outage };
        let primary = sentinel.primary().unwrap();
        let judged = stage.run(&trial, |_| sentinel.servers[primary].kill());
        assert_eq!(sentinel.primary(), Some(1 - primary));
        sentinel.servers[primary].restart();
        // It becomes a replica, for the next time.
        let follows = |heir: &Redis| heir.inline("INFO replication").contains("state=online").then_some(());
        assert!(eventually(|| follows(&sentinel.servers[1 - primary])).is_some());
        judged
    });
    report_judged("sentinels");
}
