//! How the slot map changes, without a server.

use super::*;

fn cluster() -> Topology {
    Topology::new("redis+cluster://seed:1".parse().unwrap(), 2)
}

fn node(number: u16) -> Node {
    Node::tcp("10.0.0.1", number)
}

fn discovered(ranges: &[(u16, u16, u16)]) -> Discovery {
    Discovery::Slots(ranges.iter().map(|(first, last, number)| (*first, *last, node(*number))).collect())
}

fn names(topology: &Topology) -> Vec<String> {
    topology.shards().into_iter().map(|shard| shard.name).collect()
}

#[test]
fn slots_follow_the_last_redirection() {
    let topology = cluster();
    assert_eq!(topology.locate(7), Location { shard: UNSERVED, slot: 7 });
    topology.apply(&discovered(&[(0, 99, 1), (100, 16_383, 2)]));
    assert_eq!((topology.locate(99).shard, topology.locate(100).shard), (ShardId(1), ShardId(2)));
    topology.learn(99, &node(2));
    assert_eq!((topology.locate(98).shard, topology.locate(99).shard), (ShardId(1), ShardId(2)));
    // An unknown node.
    topology.learn(98, &node(3));
    assert_eq!(topology.locate(98).shard, ShardId(3));
    assert_eq!(names(&topology), ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"]);
    // An invalid slot changes nothing.
    topology.learn(SLOTS, &node(1));
    assert_eq!(topology.locate(98).shard, ShardId(3));
    // Ids stay with their nodes.
    topology.apply(&discovered(&[(0, 16_383, 2)]));
    topology.apply(&discovered(&[(0, 8_191, 1), (8_192, 16_383, 2)]));
    assert_eq!((topology.locate(0).shard, topology.locate(16_383).shard), (ShardId(1), ShardId(2)));
}

#[test]
fn slots_that_nobody_serves_are_a_shard_of_their_own() {
    let topology = cluster();
    assert!(matches!(topology.shard(UNSERVED), ShardOwner::Unserved));
    assert_eq!(names(&topology), ["seed:1"]);
    topology.apply(&discovered(&[(0, 16_000, 1)]));
    assert_eq!(names(&topology), ["unserved", "10.0.0.1:1"]);
    assert_eq!(topology.locate(16_001).shard, UNSERVED);
    assert!(matches!(topology.shard(UNSERVED), ShardOwner::Unserved));
    topology.apply(&discovered(&[(0, 16_383, 1)]));
    assert_eq!(names(&topology), ["10.0.0.1:1"]);
    assert!(matches!(topology.shard(UNSERVED), ShardOwner::Gone));
}

#[test]
fn a_node_that_gave_all_its_slots_away_is_gone() {
    let topology = cluster();
    topology.apply(&discovered(&[(0, 0, 1), (1, 16_383, 2)]));
    assert!(matches!(topology.shard(ShardId(1)), ShardOwner::Node(_)));
    topology.learn(0, &node(2));
    assert!(matches!(topology.shard(ShardId(1)), ShardOwner::Gone));
    assert_eq!(names(&topology), ["10.0.0.1:2"]);
}

#[tokio::test]
async fn lanes_close_when_nobody_needs_them() {
    let topology = cluster();
    topology.apply(&discovered(&[(0, 8_000, 1), (8_001, 16_383, 2)]));
    let peer = topology.route(0).await.unwrap();
    // Used during a migration: it stays until a discovery finds that it was not used since.
    let used = topology.peer_at(&node(3)).unwrap();
    assert_eq!(topology.lanes().len(), 6);
    topology.apply(&discovered(&[(0, 16_383, 2)]));
    assert!(peer.lanes().iter().all(|lane| lane.is_closed()));
    assert!(used.lanes().iter().all(|lane| !lane.is_closed()));
    topology.apply(&discovered(&[(0, 16_383, 2)]));
    assert!(used.lanes().iter().all(|lane| lane.is_closed()));
    assert_eq!(topology.lanes().len(), 2);
    // A node that comes back has its id and open lanes.
    topology.apply(&discovered(&[(0, 16_383, 1)]));
    let again = topology.route(0).await.unwrap();
    assert_eq!(again.id, peer.id);
    assert!(again.lanes().iter().all(|lane| !lane.is_closed()));
}

#[tokio::test]
async fn nodes_and_their_numbers_are_bounded() {
    let topology = cluster();
    let most = MAX_NODES as u16;
    for number in 1..=most {
        topology.peer_at(&node(number)).unwrap();
    }
    assert!(matches!(topology.peer_at(&node(most + 1)), Err(Failure::Refused(_))));
    topology.learn(5, &node(most + 1));
    assert_eq!(topology.locate(5).shard, UNSERVED);
    // They make room once they are unused, and so do their ids: an id never refers to another node.
    topology.apply(&discovered(&[(0, 16_383, 1)]));
    topology.apply(&discovered(&[(0, 16_383, 1)]));
    let new = topology.peer_at(&node(most + 1)).unwrap();
    assert_eq!(new.id, ShardId(u32::from(most) + 1));
    assert_eq!(topology.roster().ids.len(), 2);
}

#[tokio::test]
async fn who_asks_before_anything_is_known_waits_until_it_is() {
    let topology = Arc::new(cluster());
    let asking = {
        let topology = Arc::clone(&topology);
        tokio::spawn(async move { topology.route(7).await.map(|peer| peer.node.clone()) })
    };
    tokio::task::yield_now().await;
    assert!(!asking.is_finished());
    topology.apply(&discovered(&[(7, 7, 1)]));
    assert_eq!(asking.await.unwrap(), Ok(node(1)));
    assert!(matches!(topology.route(8).await, Err(Failure::Unreachable(why)) if why.contains("slot 8")));
    topology.fail(Failure::Unreachable("everybody is away".to_owned()));
    assert!(matches!(topology.route(8).await, Err(Failure::Unreachable(why)) if why.contains("away")));
    assert!(topology.route(7).await.is_ok());
}

#[tokio::test]
async fn there_is_one_primary_at_a_time() {
    let topology = Topology::new("redis+sentinel://s1,s2/main".parse().unwrap(), 1);
    assert_eq!(names(&topology), ["s1:26379,s2:26379/main"]);
    topology.apply(&Discovery::Primary(node(1)));
    let first = topology.route(0).await.unwrap();
    topology.apply(&Discovery::Primary(node(2)));
    assert_eq!(names(&topology), ["10.0.0.1:2"]);
    assert_eq!(topology.locate(0), Location { shard: ShardId(0), slot: 0 });
    assert!(first.lanes().iter().all(|lane| lane.is_closed()));
    assert!(matches!(topology.shard(ShardId(0)), ShardOwner::Node(peer) if peer.node == node(2)));
}
