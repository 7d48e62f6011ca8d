//! Notes of operators' changes: which counters were reset or credited a moment ago. Other servers drop what they hold of
//! them, and debits of them that wait for other regions. A note has a digest of the key, no values.

use std::collections::HashMap;
use std::time::Duration;

use redis::{Cmd, Value, cmd};
use tokio::task::JoinSet;
use tollgate_core::{Ask, Claim, Key, RegionId, Settlement, Source};
use tollgate_store::leased::KeyAdjustment;
use tollgate_store::sharded::Failure;

use super::bulletin;
use super::{LeasedRedis, RedisRegions, RedisStore};

/// The interval at which servers with leased keys, or with debits that wait, read the notes.
const INTERVAL: Duration = Duration::from_millis(400);
/// How long a note is retained. A server that could not read for this long forgets everything that it holds.
const RETENTION: Duration = Duration::from_secs(10);
/// The most notes that are retained. More changes at a time are those of a bulk change: the oldest notes are dropped, and
/// their units are spent until they expire.
const MAX_NOTES: usize = 10_000;
/// How long an operator's change waits for its note to be written.
const WRITE_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a read may take.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// Adds notes, by Redis's own clock, and removes old ones.
const WRITE_SCRIPT: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for at = 3, #ARGV do redis.call('ZADD', KEYS[1], now, ARGV[at]) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[1])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1";

/// The time, and the notes since a time.
const READ_SCRIPT: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return {now, redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[1], '+inf')}";

/// The changes of other servers, by the digests of the keys.
type Adjustments = HashMap<u128, KeyAdjustment>;

/// Whether a claim is an operator's change that makes room.
pub(super) fn is_adjustment(claim: &Claim<'_>) -> bool {
    claim.charges.iter().any(|charge| adjustment(charge.ask).is_some())
}

fn adjustment(ask: Ask) -> Option<KeyAdjustment> {
    match ask {
        Ask::Reset => Some(KeyAdjustment::Reset),
        Ask::Credit => Some(KeyAdjustment::Credit),
        _ => None,
    }
}

/// Notes the changes that were made for this claim: for the servers of the region where the counter is, and for those of
/// all regions if it is in one of them alone, because servers of all may hold units of it.
pub(super) async fn note(regions: &RedisRegions, claim: &Claim<'_>, settlement: &Settlement) {
    let changed = claim.charges.iter().zip(&settlement.readings);
    let stored: Vec<(KeyAdjustment, &Key<'_>)> = changed
        .filter(|(_, reading)| reading.source == Source::Store)
        .filter_map(|(charge, _)| Some((adjustment(charge.ask)?, &charge.key)))
        .collect();
    let mut writing = JoinSet::new();
    for (region, store) in (0..).map(RegionId::new).zip(regions.stores()) {
        let is_noted = |(_, key): &(KeyAdjustment, &Key<'_>)| key.scope().is_owned() || key.region() == region;
        let noted: Vec<_> = stored.iter().copied().filter(is_noted).collect();
        if !noted.is_empty() {
            let (store, notes) = (store.clone(), store.notes(&noted));
            writing.spawn(async move { store.write_notes(notes).await });
        }
    }
    writing.join_all().await;
}

impl RedisStore {
    fn notes(&self, adjustments: &[(KeyAdjustment, &Key<'_>)]) -> Vec<String> {
        let names = self.shared.names();
        adjustments.iter().map(|(adjustment, key)| names.note(&self.shared.server_id, *adjustment, key)).collect()
    }

    async fn write_notes(&self, notes: Vec<String>) {
        let command = self.script(WRITE_SCRIPT).arg(RETENTION.as_millis() as u64).arg(MAX_NOTES).arg(notes).take();
        let written = tokio::time::timeout(WRITE_TIMEOUT, bulletin::call(&self.shared, &command)).await;
        if let Err(failure) = written.unwrap_or(Err(Failure::Timeout)) {
            tracing::warn!(error = %failure, "other servers were not notified that counters were reset or credited: they spend \
                the units that they hold of them first");
        }
    }

    /// The changes of other servers since a time, in milliseconds of Redis's clock, and the time now. Without a time there
    /// are none.
    async fn adjustments_since(&self, since: Option<u64>) -> Result<(u64, Adjustments), Failure> {
        let since = since.map_or_else(|| "+inf".to_owned(), |since| since.to_string());
        let command = self.script(READ_SCRIPT).arg(since).take();
        let invalid = || Failure::Refused("notes of adjustments: an invalid answer".to_owned());
        let Value::Array(answer) = bulletin::call(&self.shared, &command).await? else { return Err(invalid()) };
        let [Value::Int(now), Value::Array(notes)] = &answer[..] else { return Err(invalid()) };
        let own = &self.shared.server_id;
        let adjustments = notes.iter().filter_map(|note| match note {
            Value::BulkString(note) => parse(std::str::from_utf8(note).ok()?, own),
            _ => None,
        });
        Ok((u64::try_from(*now).map_err(|_| invalid())?, adjustments.collect()))
    }

    fn script(&self, text: &str) -> Cmd {
        cmd("EVAL").arg(text).arg(1).arg(self.shared.names().agreed("adjusted")).take()
    }
}

/// Applies the changes of other servers to what this one holds. Never returns.
pub(super) async fn follow(store: &LeasedRedis) {
    let redis = store.inner().inner().inner().inner().here();
    // The time of the last answer, by Redis's clock.
    let mut last = None;
    loop {
        tokio::time::sleep(INTERVAL).await;
        if !store.has_keys() && !store.inner().has_keys() {
            // What changed before there was a key does not matter to it.
            last = None;
            continue;
        }
        let read = tokio::time::timeout(READ_TIMEOUT, redis.adjustments_since(last)).await;
        match read.unwrap_or(Err(Failure::Timeout)) {
            Ok((now, _)) if last.is_some_and(|last| now > last + RETENTION.as_millis() as u64) => {
                // Debits are sent all the same: that one of them was reset is far less likely than that none was.
                let keys = store.adjust(|_| Some(KeyAdjustment::Reset));
                tracing::warn!(keys, "it is unknown which counters operators changed: leased units are dropped");
                last = Some(now);
            }
            Ok((now, adjustments)) => {
                last = Some(now);
                if !adjustments.is_empty() {
                    let names = redis.shared.names();
                    let keys = store.adjust(|key| adjustments.get(&names.digest(key)).copied());
                    let debits = store.inner().adjust(|key| adjustments.get(&names.digest(key)).copied()).await;
                    tracing::debug!(
                        keys,
                        debits,
                        "operators changed counters: what is held or to be debited of them is dropped"
                    );
                }
            }
            Err(failure) => tracing::debug!(error = %failure, "notes of adjustments were not read"),
        }
    }
}

impl super::names::Names {
    /// The note of a change by a server.
    fn note(&self, server_id: &str, adjustment: KeyAdjustment, key: &Key<'_>) -> String {
        let kind = match adjustment {
            KeyAdjustment::Reset => "reset",
            KeyAdjustment::Credit => "credit",
        };
        format!("{server_id} {kind} {:032x}", self.digest(key))
    }
}

/// A note of another server. Notes of later versions are ignored.
fn parse(note: &str, own_id: &str) -> Option<(u128, KeyAdjustment)> {
    let mut words = note.split(' ');
    let (server_id, kind, digest) = (words.next()?, words.next()?, words.next()?);
    let adjustment = match kind {
        "reset" => KeyAdjustment::Reset,
        "credit" => KeyAdjustment::Credit,
        _ => return None,
    };
    (server_id != own_id).then_some((u128::from_str_radix(digest, 16).ok()?, adjustment))
}
