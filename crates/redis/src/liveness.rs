//! Probes of nodes, and heartbeats of servers.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value, cmd};

use super::Shared;
use super::discover::is_primary;
use super::lane::Lane;
use super::names::Names;
use super::topology::{PeerNode, ShardOwner};
use tollgate_store::sharded::{Failure, HEARTBEAT, ShardId};

/// Records this server's heartbeat and counts the running servers, by Redis's own clock.
const HEARTBEAT_SCRIPT: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])";

/// Counts the running servers of earlier versions, whose heartbeats are under the first key only.
const OLDER_SCRIPT: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, key in ipairs(KEYS) do
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now - ARGV[1])
end
return redis.call('ZCARD', KEYS[1]) - redis.call('ZCARD', KEYS[2])";

/// Writes a value that nobody reads and that expires immediately.
const WRITE_SCRIPT: &str = "return redis.call('SET', KEYS[1], '1', 'PX', 1)";

/// The maximum number of hash tags that are tried to find one in a slot that a node serves. More than enough for a
/// node with a single slot.
const MAX_TAGS: u32 = 250_000;

/// A server without a heartbeat for this time, in milliseconds, is considered gone.
fn expiry_millis() -> u64 {
    3 * HEARTBEAT.as_millis() as u64
}

/// Longer than any caller waits: the caller's deadline applies.
const NO_TIMEOUT: Duration = Duration::from_secs(3600);

pub(super) async fn heartbeat(shared: &Shared) -> Result<u64, Failure> {
    let peer = shared.topology.route(Names::slot_of(Names::REPLICAS)).await?;
    let mut link = first(&peer)?.wait_for_link().await?;
    let (names, arguments) = (shared.names(), [&*shared.server_id, &expiry_millis().to_string()]);
    // First, so that nobody takes this server for one of an earlier version.
    let current = script(HEARTBEAT_SCRIPT, names.current_replicas(), &arguments);
    let command = script(HEARTBEAT_SCRIPT, names.replicas(), &arguments);
    link.call(&current, NO_TIMEOUT).await?;
    match link.call(&command, NO_TIMEOUT).await {
        Ok(Value::Int(count)) => Ok(u64::try_from(count).unwrap_or(1).max(1)),
        Ok(_) => Err(Failure::Refused(format!("{}: an invalid answer", link.node()))),
        Err(failure) => {
            // The key may have moved; the next heartbeat uses the new map.
            shared.topology.refresh();
            Err(failure)
        }
    }
}

/// Whether servers of an earlier version are running.
pub(super) async fn has_older_servers(shared: &Shared) -> Result<bool, Failure> {
    let peer = shared.topology.route(Names::slot_of(Names::REPLICAS)).await?;
    let mut link = first(&peer)?.wait_for_link().await?;
    let (names, expiry) = (shared.names(), expiry_millis().to_string());
    let keys = [names.replicas(), names.current_replicas()];
    let command = cmd("EVAL").arg(OLDER_SCRIPT).arg(keys.len()).arg(&keys).arg(&expiry).take();
    match link.call(&command, NO_TIMEOUT).await {
        Ok(Value::Int(count)) => Ok(count > 0),
        Ok(_) => Err(Failure::Refused(format!("{}: an invalid answer", link.node()))),
        Err(failure) => {
            shared.topology.refresh();
            Err(failure)
        }
    }
}

/// Checks that a shard answers, is a primary, runs scripts and accepts writes. Reconnects if necessary.
pub(super) async fn probe(shared: &Shared, id: ShardId) -> Result<(), Failure> {
    let topology = &shared.topology;
    topology.refresh();
    let peer = match topology.shard(id) {
        ShardOwner::Node(peer) => peer,
        ShardOwner::Gone => return Ok(()),
        ShardOwner::Unserved => return Err(topology.unserved()),
    };
    // This also detects a connection that looks alive and is not.
    for lane in peer.lanes() {
        lane.reconnect().await?;
    }
    let mut link = first(&peer)?.wait_for_link().await?;
    is_primary(&mut link, NO_TIMEOUT).await?;
    let served = |tag: &String| topology.serves(&peer, Names::slot_of(tag));
    if let Some(tag) = (0..MAX_TAGS).map(|name| name.to_string()).find(served) {
        link.call(&script(WRITE_SCRIPT, &shared.names().probe(&tag), &[]), NO_TIMEOUT).await?;
    }
    Ok(())
}

pub(super) fn first(peer: &PeerNode) -> Result<&Arc<Lane>, Failure> {
    peer.lane(0).ok_or(Failure::Timeout)
}

fn script(text: &str, key: &str, arguments: &[&str]) -> Cmd {
    cmd("EVAL").arg(text).arg(1).arg(key).arg(arguments).take()
}
