//! Reports that the memory for counters is full: on the health page, and in the log when it begins.

use std::sync::Arc;
use std::time::Duration;

use tollgate::{Clock, Limiter, MemoryStats, Span, Timestamp};
use tollgate_net::Closing;
use tollgate_store::Counters;
use tollgate_telemetry::Health;

use crate::store_health::COMPONENT;

/// The time between polls.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long the memory is reported to be full after the last key for which there was no room.
const FULL_TIME: Span = Span::from_secs(60);

/// What is known of keys without room.
#[derive(Debug, Default)]
struct MemoryReport {
    seen: NoRoom,
    /// While the memory is full: what was seen before, and the last time at which there was no room.
    full: Option<(NoRoom, Timestamp)>,
}

/// What happened to keys without room, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NoRoom {
    evicted: u64,
    coarse: u64,
    refused: u64,
}

/// Polls until shutdown.
pub(crate) async fn watch(limiter: Arc<Limiter<Counters>>, health: Arc<Health>, mut closing: Closing) {
    let mut report = MemoryReport::default();
    while let Some(memory) = limiter.store().memory() {
        report.update(&memory.stats(), memory.clock().now(), &health);
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = closing.begun() => return,
        }
    }
}

impl MemoryReport {
    fn update(&mut self, stats: &MemoryStats, now: Timestamp, health: &Health) {
        let seen = NoRoom { evicted: stats.evicted, coarse: stats.coarse, refused: stats.uncounted };
        let before = std::mem::replace(&mut self.seen, seen);
        let began = self.full.map(|(began, _)| began);
        if seen != before {
            let trouble = seen.since(began.unwrap_or(before));
            if began.is_none() {
                tracing::warn!("the memory for counters is {trouble}");
            }
            health.degrade(COMPONENT, trouble);
            self.full = Some((began.unwrap_or(before), now));
        } else if self.full.is_some_and(|(_, last)| now.since(last) >= FULL_TIME) {
            tracing::info!("the memory for counters has room again");
            health.restore(COMPONENT);
            self.full = None;
        }
    }
}

impl NoRoom {
    /// The reason on the health page.
    fn since(self, before: NoRoom) -> String {
        let evicted = self.evicted - before.evicted;
        let mut reason = format!("full: {evicted} counters were evicted before they were stale");
        for (number, what) in [
            (self.coarse - before.coarse, "charges of new keys were counted together"),
            (self.refused - before.refused, "charges of new keys were refused"),
        ] {
            if number > 0 {
                reason.push_str(&format!(", {number} {what}"));
            }
        }
        reason + "; look for a rule whose keys anybody can make up, raise max_keys, or store counters in Redis"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_memory_is_reported_until_there_was_room_for_a_minute() {
        let (health, mut report) = (Health::default(), MemoryReport::default());
        let at = |seconds: u64| Timestamp::from_secs(1_767_225_600 + seconds);
        let mut stats = MemoryStats { keys: 10, swept: 5, ..MemoryStats::default() };
        report.update(&stats, at(0), &health);
        assert_eq!(health.conditions(), []);
        stats.evicted = 1;
        report.update(&stats, at(1), &health);
        let reason = |health: &Health| health.conditions()[0].1.clone();
        assert!(reason(&health).starts_with("full: 1 counters were evicted before they were stale; "));
        (stats.evicted, stats.coarse, stats.uncounted) = (3, 4, 5);
        report.update(&stats, at(50), &health);
        let expected = "full: 3 counters were evicted before they were stale, 4 charges of new keys were counted together, \
                        5 charges of new keys were refused; ";
        assert!(reason(&health).starts_with(expected), "{}", reason(&health));
        report.update(&stats, at(109), &health);
        assert_eq!(health.conditions().len(), 1, "59 s after the last one");
        report.update(&stats, at(110), &health);
        assert_eq!(health.conditions(), []);
        stats.evicted = 10;
        report.update(&stats, at(200), &health);
        assert!(reason(&health).starts_with("full: 7 counters "), "since it was full again: {}", reason(&health));
    }
}
