//! Everything that can happen to a Redis, while servers have it for a store.

use tollgate_testing::{Cluster, Redis, Sentinel, eventually};

use crate::alone;
use crate::fleet::{callers, callers_in};
use crate::trial::{Bound, Hits, Stage, Trial};

/// Slots that are moved around that of each caller.
const MOVED_AROUND: u16 = 100;

#[test]
fn slow_a_cluster() {
    let _alone = alone();
    let mut cluster = Cluster::start();
    let mut stage = Stage::on(&cluster.url());

    let all = callers_in(&mut cluster, "control");
    stage.run(Trial { name: "no fault", callers: all, hits: Hits::Nobody, bound: Bound::Exact }, |running| {
        running.a_while()
    });

    let all = callers_in(&mut cluster, "killed");
    let (slot, node) = all[0].home.unwrap();
    let trial = Trial { name: "kill -9 a primary", callers: all, hits: Hits::Node(node), bound: Bound::Outage };
    stage.run(trial, |_| cluster.node(node).redis.kill());
    assert_ne!(cluster.primary_of(slot), Some(node));
    cluster.node(node).redis.restart();
    cluster.until_whole();

    let all = callers_in(&mut cluster, "stopped");
    let (slot, node) = all[0].home.unwrap();
    let trial = Trial { name: "SIGSTOP a primary", callers: all, hits: Hits::Node(node), bound: Bound::Outage };
    stage.run(trial, |running| {
        cluster.node(node).redis.pause();
        let heir = || cluster.primary_of(slot).filter(|primary| *primary != node);
        assert!(eventually(heir).is_some(), "nobody took over");
        running.a_while();
        cluster.node(node).redis.resume();
    });
    cluster.until_whole();

    let all = callers_in(&mut cluster, "moved");
    let trial = Trial { name: "reshard", callers: all.clone(), hits: Hits::Nobody, bound: Bound::Exact };
    stage.run(trial, |running| {
        let primaries: Vec<usize> = all.iter().map(|caller| caller.home.unwrap().1).collect();
        for caller in &all {
            let (slot, from) = caller.home.unwrap();
            let to = *primaries.iter().find(|node| **node != from).unwrap();
            let around = slot.saturating_sub(MOVED_AROUND)..slot + MOVED_AROUND;
            for slot in around {
                if slot < tollgate_testing::cluster::SLOTS && cluster.primary_of(slot) == Some(from) {
                    cluster.reshard(slot..slot + 1, from, to);
                }
            }
        }
        running.a_while();
    });
    cluster.until_whole();

    let all = callers_in(&mut cluster, "unscripted");
    let trial = Trial { name: "SCRIPT FLUSH everywhere", callers: all, hits: Hits::Nobody, bound: Bound::Exact };
    stage.run(trial, |running| {
        cluster.nodes().iter().for_each(|node| drop(node.redis.say("SCRIPT FLUSH")));
        running.a_while();
    });

    let all = callers_in(&mut cluster, "flushed");
    let (_, node) = all[0].home.unwrap();
    let trial = Trial { name: "FLUSHALL of a primary", callers: all, hits: Hits::Node(node), bound: Bound::Loss };
    stage.run(trial, |_| drop(cluster.node(node).redis.say("FLUSHALL")));

    let all = callers_in(&mut cluster, "restarted");
    let trial = Trial { name: "restart all", callers: all, hits: Hits::Everybody, bound: Bound::OutageAndLoss };
    stage.run(trial, |_| {
        cluster.nodes().iter_mut().for_each(|node| node.redis.kill());
        cluster.nodes().iter_mut().for_each(|node| node.redis.restart());
    });
    cluster.until_whole();
}

#[test]
fn slow_a_primary_that_is_cut_off_from_its_clients() {
    let _alone = alone();
    let mut cluster = Cluster::behind_relays();
    let mut stage = Stage::on(&cluster.url());
    let all = callers_in(&mut cluster, "control");
    stage.run(Trial { name: "relays, no fault", callers: all, hits: Hits::Nobody, bound: Bound::Exact }, |running| {
        running.a_while()
    });

    let all = callers_in(&mut cluster, "cut");
    let (_, node) = all[0].home.unwrap();
    let trial = Trial { name: "a primary is cut off", callers: all, hits: Hits::Node(node), bound: Bound::Outage };
    stage.run(trial, |running| {
        cluster.node(node).relay().refuse();
        cluster.node(node).relay().cut();
        running.a_while();
        cluster.node(node).relay().pass();
    });
    cluster.until_whole();

    let all = callers_in(&mut cluster, "swallowed");
    let (_, node) = all[0].home.unwrap();
    let trial = Trial { name: "a primary's net stalls", callers: all, hits: Hits::Node(node), bound: Bound::Outage };
    stage.run(trial, |running| {
        cluster.node(node).relay().stall();
        running.a_while();
        cluster.node(node).relay().pass();
    });
}

#[test]
fn slow_one_redis() {
    let _alone = alone();
    let mut redis = Redis::start();
    let mut stage = Stage::on(&redis.url());
    let trial = |name, user, bound| Trial { name, callers: callers(user), hits: Hits::Everybody, bound };

    stage.run(Trial { hits: Hits::Nobody, ..trial("one Redis, no fault", "control", Bound::Exact) }, |running| {
        running.a_while()
    });
    stage.run(trial("kill -9, then start again", "killed", Bound::OutageAndLoss), |running| {
        redis.kill();
        running.a_while();
        redis.restart();
    });
    stage.run(trial("SIGSTOP, then SIGCONT", "stopped", Bound::Outage), |running| {
        redis.pause();
        running.a_while();
        redis.resume();
    });
    stage.run(trial("FLUSHALL", "flushed", Bound::Loss), |_| drop(redis.say("FLUSHALL")));
    stage.run(Trial { hits: Hits::Nobody, ..trial("SCRIPT FLUSH", "unscripted", Bound::Exact) }, |running| {
        redis.say("SCRIPT FLUSH");
        running.a_while();
    });
}

#[test]
fn slow_sentinels_fail_over() {
    let _alone = alone();
    let mut sentinel = Sentinel::start();
    let mut stage = Stage::on(&sentinel.url());
    let control =
        Trial { name: "sentinels, no fault", callers: callers("control"), hits: Hits::Nobody, bound: Bound::Exact };
    stage.run(control, |running| running.a_while());
    let trial =
        Trial { name: "kill -9 the primary", callers: callers("killed"), hits: Hits::Everybody, bound: Bound::Outage };
    stage.run(trial, |_| sentinel.servers[0].kill());
    assert_eq!(sentinel.primary(), Some(1));
}
