//! Whether a node is well, and how many servers there are.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value, cmd};

use super::Shared;
use super::discover::is_primary;
use super::lane::Lane;
use super::names::Names;
use super::topology::{Peer, Shard};
use crate::sharded::{Failure, HEARTBEAT, ShardId};

/// Says that we live and counts those that do, by Redis's own clock.
const BEAT: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])";

/// Writes something that nobody reads and that is gone at once.
const WRITE: &str = "return redis.call('SET', KEYS[1], '1', 'PX', 1)";

/// How many names are tried to find one in a slot that a node serves; more than enough for one that serves a single slot.
const MOST_NAMES: u32 = 250_000;

/// One that was silent for so long is gone.
fn silence() -> u64 {
    3 * HEARTBEAT.as_millis() as u64
}

/// Longer than anybody waits: the deadline is that of whoever asks.
const WHOEVER_ASKS: Duration = Duration::from_secs(3600);

pub(super) async fn beat(shared: &Shared) -> Result<u64, Failure> {
    let peer = shared.topology.route(Names::slot_of(Names::REPLICAS)).await?;
    let mut link = first(&peer)?.linked().await?;
    let command = script(BEAT, shared.names.replicas(), &[&shared.me, &silence().to_string()]);
    match link.ask(&command, WHOEVER_ASKS).await {
        Ok(Value::Int(count)) => Ok(u64::try_from(count).unwrap_or(1).max(1)),
        Ok(_) => Err(Failure::Refused(format!("{}: an answer that is none", link.node()))),
        Err(failure) => {
            // It may be elsewhere now; the next beat will know.
            shared.topology.refresh();
            Err(failure)
        }
    }
}

/// Whether a shard answers, is a primary, runs scripts and takes writes. A connection that is down is made now.
pub(super) async fn probe(shared: &Shared, id: ShardId) -> Result<(), Failure> {
    let topology = &shared.topology;
    topology.refresh();
    let peer = match topology.shard(id) {
        Shard::Peer(peer) => peer,
        Shard::Gone => return Ok(()),
        Shard::Unserved => return Err(topology.unserved()),
    };
    // One that looks alive and leads nowhere is found out, too.
    for lane in peer.lanes() {
        lane.linked_anew().await?;
    }
    let mut link = first(&peer)?.linked().await?;
    is_primary(&mut link, WHOEVER_ASKS).await?;
    let served = |tag: &String| topology.serves(&peer, Names::slot_of(tag));
    if let Some(tag) = (0..MOST_NAMES).map(|name| name.to_string()).find(served) {
        link.ask(&script(WRITE, &shared.names.probe(&tag), &[]), WHOEVER_ASKS).await?;
    }
    Ok(())
}

fn first(peer: &Peer) -> Result<&Arc<Lane>, Failure> {
    peer.lane(0).ok_or(Failure::Timeout)
}

fn script(text: &str, key: &str, arguments: &[&str]) -> Cmd {
    cmd("EVAL").arg(text).arg(1).arg(key).arg(arguments).take()
}
