//! The exchange of what servers count by themselves: each publishes its counts, with notes for the others, and reads theirs.

use std::time::Duration;

use redis::{Cmd, Value, cmd};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tollgate_core::Key;
use tollgate_store::sharded::Failure;
use tollgate_store::summed::report::{Note, OtherReports, Report, decode_counts, encode_counts};
use tollgate_store::summed::{BEAT, INTERVAL, STALE_AFTER};

use super::bulletin;
use super::{RedisStore, SummedRedis};

/// How long a note is retained. A server that does not read for so long has lost its holds, or they end by themselves.
const NOTE_RETENTION: Duration = Duration::from_secs(10);
/// The most notes that are retained: the oldest are dropped.
const MAX_RETAINED_NOTES: usize = 100_000;
/// The most servers that publish.
const MAX_SERVERS: usize = 4_096;
/// The wait for an answer. The next report has newer counts.
const CALL_TIMEOUT: Duration = BEAT;

/// Forgets the servers that are silent, by Redis's own clock; publishes the counts of this one, and its notes; and returns the
/// time, all counts, and the notes since a time.
const EXCHANGE_SCRIPT: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local silent = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[3])
for _, id in ipairs(silent) do redis.call('HDEL', KEYS[1], id) end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[3])
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[7]) then
    return redis.error_reply('ERR too many servers publish what they count')
  end
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  redis.call('ZADD', KEYS[2], now, ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
end
if #ARGV > 7 then
  for at = 8, #ARGV do redis.call('ZADD', KEYS[3], now, ARGV[at]) end
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now - ARGV[5])
  redis.call('ZREMRANGEBYRANK', KEYS[3], 0, -1 - ARGV[6])
  redis.call('PEXPIRE', KEYS[3], ARGV[5])
end
return {now, redis.call('HGETALL', KEYS[1]), redis.call('ZRANGEBYSCORE', KEYS[3], ARGV[4], '+inf')}";

/// Publishes and reads. Never returns.
pub(super) async fn exchange(store: &SummedRedis) {
    let redis = store.inner().inner().inner().inner().inner().here();
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The time of the last answer, by Redis's clock.
    let mut last = None;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            // The sum of a new counter is needed at once.
            () = store.wait_for_new() => {}
        }
        let Some((report, sent)) = store.report(|key| redis.digest(key)) else {
            last = None;
            continue;
        };
        match timeout(CALL_TIMEOUT, redis.exchange(&report, last)).await.unwrap_or(Err(Failure::Timeout)) {
            Ok((now, answer)) => {
                last = Some(now);
                store.receive(sent, &answer);
            }
            Err(failure) => {
                tracing::debug!(error = %failure, "the requests in flight of the servers were not exchanged");
                store.put_back(report.notes);
            }
        }
    }
}

/// Publishes that this server counts nothing any more.
pub(super) async fn withdraw(store: &SummedRedis) {
    let redis = store.inner().inner().inner().inner().inner().here();
    if store.status().counters.is_empty() {
        return;
    }
    if let Err(failure) = redis.exchange(&Report::default(), None).await {
        tracing::debug!(error = %failure, "the requests in flight of this server were not withdrawn");
    }
}

impl RedisStore {
    /// That of a key on all servers. `None` while it is not known how private values are named.
    fn digest(&self, key: &Key<'_>) -> Option<u128> {
        let names = self.shared.names();
        (key.scope().private().is_empty() || names.form().is_some()).then(|| names.digest(key))
    }

    /// Publishes a report. Returns the time in milliseconds of Redis's clock, and what the others published, with their notes
    /// since a time. Without a time there are none.
    async fn exchange(&self, report: &Report, since: Option<u64>) -> Result<(u64, OtherReports), Failure> {
        let own = self.shared.server_id.as_bytes();
        let invalid = || Failure::Refused("requests in flight: an invalid answer".to_owned());
        let Value::Array(answer) = bulletin::call(&self.shared, &self.command(report, since)).await? else {
            return Err(invalid());
        };
        let [Value::Int(now), reports, Value::Array(notes)] = &answer[..] else { return Err(invalid()) };
        let other = |(id, counts): (&Value, &Value)| match (id, counts) {
            (Value::BulkString(id), Value::BulkString(counts)) if id != own => Some(decode_counts(counts)),
            _ => None,
        };
        let reports = match reports {
            Value::Map(pairs) => pairs.iter().filter_map(|(id, counts)| other((id, counts))).collect(),
            Value::Array(flat) => flat.as_chunks().0.iter().filter_map(|[id, counts]| other((id, counts))).collect(),
            _ => return Err(invalid()),
        };
        let notes = notes.iter().filter_map(|note| match note {
            Value::BulkString(note) => {
                let (id, note) = note.split_at_checked(own.len())?;
                if id == own { None } else { Note::decode(note) }
            }
            _ => None,
        });
        Ok((u64::try_from(*now).map_err(|_| invalid())?, OtherReports { reports, notes: notes.collect() }))
    }

    fn command(&self, report: &Report, since: Option<u64>) -> Cmd {
        let (names, own) = (self.shared.names(), &self.shared.server_id);
        let mut command = cmd("EVAL");
        command.arg(EXCHANGE_SCRIPT).arg(3);
        command.arg(["summed", "summed-at", "summed-notes"].map(|name| names.agreed(name)).as_slice());
        command.arg(own).arg(encode_counts(&report.counts)).arg(STALE_AFTER.as_micros() / 1_000);
        command.arg(since.map_or_else(|| "+inf".to_owned(), |since| since.to_string()));
        command.arg(NOTE_RETENTION.as_millis() as u64).arg(MAX_RETAINED_NOTES).arg(MAX_SERVERS);
        for note in &report.notes {
            command.arg([own.as_bytes(), &note.encode()].concat());
        }
        command.take()
    }
}
