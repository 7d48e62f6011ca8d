//! The order in which recorded requests are replayed.

use std::collections::HashMap;

use tollgate_core::Timestamp;

use crate::TrafficRecord;

/// A request to replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReplayEvent {
    pub(crate) at: Timestamp,
    /// The place of its record.
    pub(crate) record: u32,
    /// How many requests of the same caller it stands for. More than one only if there would be too many events.
    pub(crate) copies: u32,
}

/// The maximum number of requests that are replayed one by one. Beyond it, a request stands for several.
pub const MAX_EVENTS: u64 = 4_000_000;

/// The requests in the order of their times. The copies of a request are spread evenly over the time since its caller's last
/// one: they are a caller's requests of which one in so many was recorded.
pub(crate) fn events<'r>(
    records: &'r [TrafficRecord],
    caller: impl Fn(&'r TrafficRecord) -> Option<(&'r str, &'r str)>,
) -> Vec<ReplayEvent> {
    let all: u64 = records.iter().map(|record| u64::from(record.copies.max(1))).sum();
    let lump = u32::try_from(all.div_ceil(MAX_EVENTS).max(1)).unwrap_or(u32::MAX);
    let mut events = Vec::with_capacity(usize::try_from(all / u64::from(lump)).unwrap_or(0).max(records.len()));
    let mut order: Vec<u32> = (0..u32::try_from(records.len()).unwrap_or(u32::MAX)).collect();
    order.sort_by_key(|at| records[*at as usize].at);
    let mut last: HashMap<(&str, &str), Timestamp, foldhash::fast::RandomState> = HashMap::default();
    for number in order {
        let record = &records[number as usize];
        let copies = record.copies.max(1);
        if copies == 1 {
            events.push(ReplayEvent { at: record.at, record: number, copies });
            continue;
        }
        let before = caller(record).and_then(|name| last.insert(name, record.at)).unwrap_or(record.at);
        let (gap, parts) = (record.at.since(before).as_micros(), copies.div_ceil(lump));
        for part in 1..=parts {
            let back = gap * u64::from(parts - part) / u64::from(parts);
            let at = Timestamp::from_micros(record.at.as_micros() - back);
            let copies = lump.min(copies - (part - 1) * lump);
            events.push(ReplayEvent { at, record: number, copies });
        }
    }
    events.sort();
    events
}
