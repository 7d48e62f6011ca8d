//! How maps change, without a server.

use super::*;

fn cluster() -> Topology {
    Topology::new("redis+cluster://seed:1".parse().unwrap(), 2)
}

fn node(number: u16) -> Node {
    Node::tcp("10.0.0.1", number)
}

fn found(ranges: &[(u16, u16, u16)]) -> Found {
    Found::Slots(ranges.iter().map(|(first, last, number)| (*first, *last, node(*number))).collect())
}

fn names(topology: &Topology) -> Vec<String> {
    topology.shards().into_iter().map(|shard| shard.name).collect()
}

#[test]
fn slots_are_where_they_were_last_told_to_be() {
    let topology = cluster();
    assert_eq!(topology.place(7), Place { shard: UNSERVED, slot: 7 });
    topology.apply(&found(&[(0, 99, 1), (100, 16_383, 2)]));
    assert_eq!((topology.place(99).shard, topology.place(100).shard), (ShardId(1), ShardId(2)));
    topology.learn(99, &node(2));
    assert_eq!((topology.place(98).shard, topology.place(99).shard), (ShardId(1), ShardId(2)));
    // A node that nobody knew.
    topology.learn(98, &node(3));
    assert_eq!(topology.place(98).shard, ShardId(3));
    assert_eq!(names(&topology), ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"]);
    // What is no slot changes nothing.
    topology.learn(SLOTS, &node(1));
    assert_eq!(topology.place(98).shard, ShardId(3));
    // Numbers stay with their nodes.
    topology.apply(&found(&[(0, 16_383, 2)]));
    topology.apply(&found(&[(0, 8_191, 1), (8_192, 16_383, 2)]));
    assert_eq!((topology.place(0).shard, topology.place(16_383).shard), (ShardId(1), ShardId(2)));
}

#[test]
fn slots_that_nobody_serves_are_a_shard_of_their_own() {
    let topology = cluster();
    assert!(matches!(topology.shard(UNSERVED), Shard::Unserved));
    assert_eq!(names(&topology), ["seed:1"]);
    topology.apply(&found(&[(0, 16_000, 1)]));
    assert_eq!(names(&topology), ["unserved", "10.0.0.1:1"]);
    assert_eq!(topology.place(16_001).shard, UNSERVED);
    assert!(matches!(topology.shard(UNSERVED), Shard::Unserved));
    topology.apply(&found(&[(0, 16_383, 1)]));
    assert_eq!(names(&topology), ["10.0.0.1:1"]);
    assert!(matches!(topology.shard(UNSERVED), Shard::Gone));
}

#[test]
fn a_node_that_gave_all_its_slots_away_is_gone() {
    let topology = cluster();
    topology.apply(&found(&[(0, 0, 1), (1, 16_383, 2)]));
    assert!(matches!(topology.shard(ShardId(1)), Shard::Peer(_)));
    topology.learn(0, &node(2));
    assert!(matches!(topology.shard(ShardId(1)), Shard::Gone));
    assert_eq!(names(&topology), ["10.0.0.1:2"]);
}

#[tokio::test]
async fn lanes_close_when_nobody_needs_them() {
    let topology = cluster();
    topology.apply(&found(&[(0, 8_000, 1), (8_001, 16_383, 2)]));
    let peer = topology.route(0).await.unwrap();
    // Asked for while a slot is on its way: it stays until a map is made without it being asked for.
    let asked = topology.peer_at(&node(3)).unwrap();
    assert_eq!(topology.lanes().len(), 6);
    topology.apply(&found(&[(0, 16_383, 2)]));
    assert!(peer.lanes().iter().all(|lane| lane.is_closed()));
    assert!(asked.lanes().iter().all(|lane| !lane.is_closed()));
    topology.apply(&found(&[(0, 16_383, 2)]));
    assert!(asked.lanes().iter().all(|lane| lane.is_closed()));
    assert_eq!(topology.lanes().len(), 2);
    // One that comes back has its number and lanes that are open.
    topology.apply(&found(&[(0, 16_383, 1)]));
    let again = topology.route(0).await.unwrap();
    assert_eq!(again.id, peer.id);
    assert!(again.lanes().iter().all(|lane| !lane.is_closed()));
}

#[tokio::test]
async fn nodes_and_their_numbers_are_bounded() {
    let topology = cluster();
    let most = MOST_PEERS as u16;
    for number in 1..=most {
        topology.peer_at(&node(number)).unwrap();
    }
    assert!(matches!(topology.peer_at(&node(most + 1)), Err(Failure::Refused(_))));
    topology.learn(5, &node(most + 1));
    assert_eq!(topology.place(5).shard, UNSERVED);
    // They make room once nobody needs them, and so do their numbers: no number ever means another node.
    topology.apply(&found(&[(0, 16_383, 1)]));
    topology.apply(&found(&[(0, 16_383, 1)]));
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
    topology.apply(&found(&[(7, 7, 1)]));
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
    topology.apply(&Found::Primary(node(1)));
    let first = topology.route(0).await.unwrap();
    topology.apply(&Found::Primary(node(2)));
    assert_eq!(names(&topology), ["10.0.0.1:2"]);
    assert_eq!(topology.place(0), Place { shard: ShardId(0), slot: 0 });
    assert!(first.lanes().iter().all(|lane| lane.is_closed()));
    assert!(matches!(topology.shard(ShardId(0)), Shard::Peer(peer) if peer.node == node(2)));
}
