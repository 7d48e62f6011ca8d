//! Faults of Redis while servers use it as their store.

use tollgate_testing::cluster::SLOTS;
use tollgate_testing::{Cluster, Redis, Sentinel, eventually, machine};

use crate::fleet::servers::{callers, callers_in};
use crate::timing::trial::{AdmissionBound, FaultScope, RunningTrial, Testbed, Trial, report_judged, run_until_sound};

/// How many slots on either side of each caller's are moved with it.
const MOVED_NEIGHBOURS: u16 = 20;

/// A cluster, and servers with it as their store.
struct ClusterTestbed {
    cluster: Cluster,
    testbed: Testbed,
}

impl ClusterTestbed {
    fn new(cluster: Cluster) -> ClusterTestbed {
        let testbed = Testbed::new(&cluster.url());
        ClusterTestbed { cluster, testbed }
    }

    /// A trial of a fault that must not affect any caller.
    fn run_unaffected(&mut self, name: &'static str, fault: impl Fn(&mut Cluster, &Trial, &RunningTrial<'_>)) {
        run_until_sound(|number| {
            let callers = callers_in(&mut self.cluster, &format!("{name} {number}"));
            let trial = Trial { name, callers, scope: FaultScope::None, bound: AdmissionBound::Exact };
            let judged = self.testbed.run(&trial, |running| fault(&mut self.cluster, &trial, running));
            self.cluster.until_whole();
            judged
        });
    }

    /// A trial of a fault of one primary. `repair` restores the cluster.
    fn run_on_primary(
        &mut self,
        name: &'static str,
        bound: AdmissionBound,
        fault: impl Fn(&mut Cluster, FailedPrimary, &RunningTrial<'_>),
        repair: impl Fn(&mut Cluster, FailedPrimary),
    ) {
        run_until_sound(|number| {
            let callers = callers_in(&mut self.cluster, &format!("{name} {number}"));
            let (slot, node) = callers[0].home.unwrap();
            let failed = FailedPrimary { slot, node };
            let trial = Trial { name, callers, scope: FaultScope::Node(node), bound };
            let judged = self.testbed.run(&trial, |running| fault(&mut self.cluster, failed, running));
            repair(&mut self.cluster, failed);
            self.cluster.until_whole();
            judged
        });
    }
}

/// The primary that fails, and one of its slots.
#[derive(Clone, Copy)]
struct FailedPrimary {
    slot: u16,
    node: usize,
}

#[test]
#[ignore = "takes more than a minute alone: make test-long"]
fn slow_servers_tolerate_faults_of_a_cluster() {
    machine::alone();
    let mut cluster_testbed = ClusterTestbed::new(Cluster::start());
    cluster_testbed.run_unaffected("no fault", |cluster, trial, running| {
        running.continue_load();
        for caller in &trial.callers {
            let (_, node) = caller.home.unwrap();
            let keys = cluster.node(node).redis.inline(&format!("KEYS *{{fleet/{}}}*", caller.check.user));
            assert!(keys.starts_with("*1\r\n"), "{caller:?} is not on the expected node: {keys}");
        }
    });
    cluster_testbed.run_on_primary(
        "kill -9 a primary",
        AdmissionBound::Outage,
        |cluster, failed, _| cluster.node(failed.node).redis.kill(),
        |cluster, failed| {
            assert_ne!(cluster.primary_of(failed.slot), Some(failed.node));
            cluster.node(failed.node).redis.restart();
        },
    );
    cluster_testbed.run_on_primary(
        "SIGSTOP a primary",
        AdmissionBound::Outage,
        |cluster, failed, running| {
            cluster.node(failed.node).redis.pause();
            let successor = || cluster.primary_of(failed.slot).filter(|primary| *primary != failed.node);
            assert!(eventually(successor).is_some(), "no replica took over");
            running.continue_load();
            cluster.node(failed.node).redis.resume();
        },
        |_, _| {},
    );
    cluster_testbed.run_on_primary(
        "FLUSHALL of a primary",
        AdmissionBound::Loss,
        |cluster, failed, _| drop(cluster.node(failed.node).redis.inline("FLUSHALL")),
        |_, _| {},
    );
    cluster_testbed.run_unaffected("SCRIPT FLUSH everywhere", |cluster, _, running| {
        cluster.nodes().iter().for_each(|node| drop(node.redis.inline("SCRIPT FLUSH")));
        running.continue_load();
    });
    cluster_testbed.run_unaffected("slots move", |cluster, trial, running| {
        move_slots(cluster, trial);
        running.continue_load();
    });
    run_until_sound(|number| {
        let callers = callers_in(&mut cluster_testbed.cluster, &format!("all {number}"));
        let trial =
            Trial { name: "restart all", callers, scope: FaultScope::All, bound: AdmissionBound::OutageAndLoss };
        let judged = cluster_testbed.testbed.run(&trial, |_| {
            cluster_testbed.cluster.nodes().iter_mut().for_each(|node| node.redis.kill());
            cluster_testbed.cluster.nodes().iter_mut().for_each(|node| node.redis.restart());
        });
        cluster_testbed.cluster.until_whole();
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
        let around = slot.saturating_sub(MOVED_NEIGHBOURS)..(slot + MOVED_NEIGHBOURS).min(SLOTS);
        let own = cluster.slots_of(from);
        for slot in around.filter(|slot| own.iter().any(|slots| slots.contains(slot))) {
            cluster.reshard(slot..slot + 1, from, to);
        }
        assert_eq!(cluster.primary_of(slot), Some(to));
    }
}

#[test]
#[ignore = "takes a minute alone: make test-long"]
fn slow_servers_tolerate_a_primary_that_is_unreachable() {
    machine::alone();
    let mut cluster_testbed = ClusterTestbed::new(Cluster::behind_relays());
    cluster_testbed.run_unaffected("relays, no fault", |_, _, running| running.continue_load());
    cluster_testbed.run_on_primary(
        "a primary is unreachable",
        AdmissionBound::Outage,
        |cluster, failed, running| {
            cluster.node(failed.node).relay().refuse();
            cluster.node(failed.node).relay().cut();
            running.continue_load();
            cluster.node(failed.node).relay().pass();
        },
        |_, _| {},
    );
    cluster_testbed.run_on_primary(
        "connections to a primary stall",
        AdmissionBound::Outage,
        |cluster, failed, running| {
            cluster.node(failed.node).relay().stall();
            running.continue_load();
            cluster.node(failed.node).relay().pass();
        },
        |_, _| {},
    );
    report_judged("an unreachable primary");
}

/// A trial of a fault without a cluster.
fn run_without_cluster(
    testbed: &mut Testbed,
    name: &'static str,
    scope: FaultScope,
    bound: AdmissionBound,
    mut fault: impl FnMut(&RunningTrial<'_>),
) {
    run_until_sound(|number| {
        let trial = Trial { name, callers: callers(&format!("{name} {number}")), scope, bound };
        testbed.run(&trial, |running| fault(running))
    });
}

#[test]
#[ignore = "takes more than a minute alone: make test-long"]
fn slow_servers_tolerate_faults_of_one_redis() {
    machine::alone();
    let mut redis = Redis::start();
    let mut testbed = Testbed::new(&redis.url());
    let testbed = &mut testbed;
    run_without_cluster(testbed, "one Redis, no fault", FaultScope::None, AdmissionBound::Exact, |running| {
        running.continue_load()
    });
    run_without_cluster(
        testbed,
        "kill -9, then start again",
        FaultScope::All,
        AdmissionBound::OutageAndLoss,
        |running| {
            redis.kill();
            running.continue_load();
            redis.restart();
        },
    );
    run_without_cluster(testbed, "SIGSTOP, then SIGCONT", FaultScope::All, AdmissionBound::Outage, |running| {
        redis.pause();
        running.continue_load();
        redis.resume();
    });
    run_without_cluster(testbed, "FLUSHALL", FaultScope::All, AdmissionBound::Loss, |_| drop(redis.inline("FLUSHALL")));
    run_without_cluster(testbed, "SCRIPT FLUSH", FaultScope::None, AdmissionBound::Exact, |running| {
        redis.inline("SCRIPT FLUSH");
        running.continue_load();
    });
    report_judged("one Redis");
}

#[test]
fn slow_servers_tolerate_a_failover_by_sentinels() {
    machine::alone();
    let mut sentinel = Sentinel::start();
    let mut testbed = Testbed::new(&sentinel.url());
    let testbed = &mut testbed;
    run_without_cluster(testbed, "sentinels, no fault", FaultScope::None, AdmissionBound::Exact, |running| {
        running.continue_load()
    });
    run_until_sound(|number| {
        let callers = callers(&format!("killed {number}"));
        let trial =
            Trial { name: "kill -9 the primary", callers, scope: FaultScope::All, bound: AdmissionBound::Outage };
        let primary = sentinel.primary().unwrap();
        let judged = testbed.run(&trial, |_| sentinel.servers[primary].kill());
        assert_eq!(sentinel.primary(), Some(1 - primary));
        sentinel.servers[primary].restart();
        // It becomes a replica, for the next attempt.
        let has_replica = |primary: &Redis| primary.inline("INFO replication").contains("state=online").then_some(());
        assert!(eventually(|| has_replica(&sentinel.servers[1 - primary])).is_some());
        judged
    });
    report_judged("sentinels");
}
