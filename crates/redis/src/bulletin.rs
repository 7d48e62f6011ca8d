//! Entries that servers tell each other through Redis: a small hash, in which an entry stays until it is replaced or the hash
//! expires.

use std::time::Duration;

use redis::{Value, cmd};

use super::liveness::first;
use super::names::Names;
use super::{RedisStore, Shared};
use tollgate_store::sharded::Failure;

/// Adds an entry. An entry that exists stays as it is, unless it is to be replaced. One that an empty text replaces is removed.
const PUBLISH_SCRIPT: &str = "\
if ARGV[2] == '' and ARGV[3] == '1' then redis.call('HDEL', KEYS[1], ARGV[1]) return 1 end
local exists = redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1
if exists and ARGV[3] == '0' then return 1 end
if not exists and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[4]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return 1";

impl RedisStore {
    /// The maximum number of entries of a bulletin.
    pub const MAX_BULLETIN_ENTRIES: usize = 1_024;
    /// The maximum length of an entry, in bytes.
    pub const MAX_BULLETIN_BYTES: usize = 64 << 10;
    /// How long a bulletin is retained after its last change.
    pub const BULLETIN_RETENTION: Duration = Duration::from_secs(24 * 3_600);

    /// Adds an entry to a bulletin that all servers with this Redis and this prefix read.
    pub async fn publish(&self, bulletin: &str, id: &str, entry: &[u8], is_replaced: bool) -> Result<(), Failure> {
        if entry.len() > Self::MAX_BULLETIN_BYTES {
            return Err(Failure::Refused(format!(
                "{bulletin}: an entry has at most {} bytes",
                Self::MAX_BULLETIN_BYTES
            )));
        }
        let command = cmd("EVAL")
            .arg(PUBLISH_SCRIPT)
            .arg(1)
            .arg(self.shared.names().agreed(bulletin))
            .arg(id)
            .arg(entry)
            .arg(u8::from(is_replaced))
            .arg(Self::MAX_BULLETIN_ENTRIES)
            .arg(Self::BULLETIN_RETENTION.as_millis() as u64)
            .take();
        match call(&self.shared, &command).await? {
            Value::Int(1) => Ok(()),
            _ => Err(Failure::Refused(format!("{bulletin}: there are too many entries"))),
        }
    }

    /// The entries of a bulletin: their ids and texts.
    pub async fn published(&self, bulletin: &str) -> Result<Vec<(String, Vec<u8>)>, Failure> {
        let command = cmd("HGETALL").arg(self.shared.names().agreed(bulletin)).take();
        let pairs: Vec<(Value, Value)> = match call(&self.shared, &command).await? {
            Value::Map(pairs) => pairs,
            Value::Array(flat) => {
                let (pairs, _) = flat.as_chunks::<2>();
                pairs.iter().map(|[id, entry]| (id.clone(), entry.clone())).collect()
            }
            _ => return Err(Failure::Refused(format!("{bulletin}: an invalid answer"))),
        };
        let entry = |(id, entry): (Value, Value)| match (id, entry) {
            (Value::BulkString(id), Value::BulkString(entry)) => Some((String::from_utf8(id).ok()?, entry)),
            _ => None,
        };
        Ok(pairs.into_iter().filter_map(entry).collect())
    }
}

/// Calls the node of what all servers agree on.
pub(super) async fn call(shared: &Shared, command: &redis::Cmd) -> Result<Value, Failure> {
    let peer = shared.topology.route(Names::slot_of(Names::AGREED)).await?;
    let mut link = first(&peer)?.wait_for_link().await?;
    link.call(command, CALL_TIMEOUT).await.inspect_err(|_| {
        // The key may have moved; the next call uses the new map.
        shared.topology.refresh();
    })
}

/// The caller waits less for all of it.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
