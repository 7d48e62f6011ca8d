//! What a lane takes in, and what it lets out at once.

use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Period, Scope, Span, Timestamp, Value,
};

use super::*;
use crate::redis::names::Names;
use crate::sharded::Record;

/// A claim of a caller whose name has so many bytes, and whoever waits for it.
fn job(slot: u16, bytes: usize) -> (Job, oneshot::Receiver<Answer>) {
    let limit = Limit::new(1, Period::fixed(Span::from_secs(1)).unwrap(), Algorithm::FixedWindow).unwrap();
    let scope = Scope::new("d", "r", limit.algorithm(), limit.period(), Home::Caller(0));
    let caller = "x".repeat(bytes);
    let charge = Charge {
        key: Key::new(&scope, smallvec![Value::Text(&caller)]),
        limit: &limit,
        ask: Ask::Exactly,
        units: 1,
        mode: Mode::Enforce,
        on_failure: OnFailure::Deny,
        strict: false,
    };
    let claim = Claim { id: ClaimId(1), charges: smallvec![charge], once: None, patience: None };
    let packet = Packet::of(&claim, Record::Whole, &Names::new("tg:"), Timestamp::from_secs(1));
    let (answer, waits) = oneshot::channel();
    (Job { packet: Box::new(packet), slot, manner: Manner::Together, unscripted: 0, answer, hub: None }, waits)
}

fn lane() -> Lane {
    Lane::new(Node::tcp("localhost", 1))
}

fn take(lane: &Lane) -> Vec<Job> {
    let mut batch = Vec::new();
    lane.take(&mut batch);
    batch
}

/// Puts claims in and gives back those who wait.
fn filled(lane: &Lane, claims: usize, bytes: usize) -> Vec<oneshot::Receiver<Answer>> {
    let put = |number: usize| {
        let (job, waits) = job(number as u16, bytes);
        assert!(lane.push(job).is_ok(), "{number}");
        waits
    };
    (0..claims).map(put).collect()
}

#[test]
fn a_round_trip_has_so_many_claims_and_bytes() {
    let lane = lane();
    let _waits = filled(&lane, MOST_AT_ONCE + 10, 1);
    let first = take(&lane);
    assert_eq!((first.len(), take(&lane).len(), take(&lane).len()), (MOST_AT_ONCE, 10, 0));
    assert!(first.iter().map(|job| usize::from(job.slot)).eq(0..MOST_AT_ONCE));

    let _waits = filled(&lane, 5, MOST_BYTES_AT_ONCE / 3);
    assert_eq!((take(&lane).len(), take(&lane).len(), take(&lane).len()), (2, 2, 1));
    // One that is too long for any goes by itself.
    let _waits = filled(&lane, 2, MOST_BYTES_AT_ONCE);
    assert_eq!((take(&lane).len(), take(&lane).len(), take(&lane).len()), (1, 1, 0));
}

#[test]
fn who_no_longer_waits_is_not_sent() {
    let lane = lane();
    let mut waits = filled(&lane, 5, 1);
    waits.remove(3);
    waits.remove(0);
    assert_eq!(take(&lane).iter().map(|job| job.slot).collect::<Vec<_>>(), [1, 2, 4]);
    assert_eq!(lane.queue().bytes, 0);
}

#[test]
fn what_a_batch_has_already_counts() {
    let lane = lane();
    let _waits = filled(&lane, 3, MOST_BYTES_AT_ONCE / 3);
    let mut batch = Vec::new();
    lane.take(&mut batch);
    assert_eq!(batch.len(), 2);
    lane.take(&mut batch);
    assert_eq!(batch.len(), 2);
    batch.truncate(1);
    lane.take(&mut batch);
    assert_eq!(batch.iter().map(|job| job.slot).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(lane.queue().bytes, 0);
}

#[test]
fn only_so_many_bytes_wait() {
    const LONG: usize = 1024 * 1024;
    let lane = lane();
    let _waits = filled(&lane, MOST_BYTES_WAITING / LONG - 1, LONG);
    let (more, _waits) = job(0, 2 * LONG);
    assert!(matches!(lane.push(more), Err(Rejected::Failed(Failure::Refused(why))) if why.contains("63 claims wait")));
    take(&lane);
    let (more, _waits) = job(0, LONG);
    assert!(lane.push(more).is_ok());
}

#[test]
fn a_lane_that_is_down_or_closed_takes_nothing() {
    let lane = lane();
    let waits = filled(&lane, 2, 1);
    let away = Failure::Unreachable("away".to_owned());
    lane.down(&away);
    for mut waits in waits {
        assert!(matches!(waits.try_recv(), Ok(Answer::Failed(failure)) if failure == away));
    }
    assert!(matches!(lane.push(job(0, 1).0), Err(Rejected::Failed(failure)) if failure == away));
    lane.lost();
    assert!(lane.push(job(0, 1).0).is_ok());
    lane.close();
    assert!(matches!(lane.push(job(0, 1).0), Err(Rejected::Closed(_))));
}
