//! The bounds of a lane's queue and of its batches.

use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Period, Scope, Shortcuts, Span, Timestamp,
    Value,
};

use super::*;
use crate::names::Names;
use tollgate_store::sharded::OnceRecord;

/// A claim of a caller whose name has this many bytes, and the receiver of its answer.
fn claim(slot: u16, bytes: usize) -> (QueuedClaim, oneshot::Receiver<ClaimAnswer>) {
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
        shortcuts: Shortcuts::Refusals,
    };
    let claim = Claim { id: ClaimId(1), charges: smallvec![charge], once: None, timeout: None };
    let packet = Packet::new(&claim, OnceRecord::Whole, &Names::new("tg:"), Timestamp::from_secs(1));
    let (answer, waits) = oneshot::channel();
    (
        QueuedClaim {
            packet: Box::new(packet),
            slot,
            mode: CallMode::Shared,
            script_misses: 0,
            answer,
            dispatcher: None,
        },
        waits,
    )
}

fn lane() -> Lane {
    Lane::new(Node::tcp("localhost", 1))
}

fn take(lane: &Lane) -> Vec<QueuedClaim> {
    let mut batch = Vec::new();
    lane.take(&mut batch);
    batch
}

/// Queues claims and returns the receivers.
fn filled(lane: &Lane, claims: usize, bytes: usize) -> Vec<oneshot::Receiver<ClaimAnswer>> {
    let put = |number: usize| {
        let (claim, waits) = claim(number as u16, bytes);
        assert!(lane.push(claim).is_ok(), "{number}");
        waits
    };
    (0..claims).map(put).collect()
}

#[test]
fn a_round_trip_has_so_many_claims_and_bytes() {
    let lane = lane();
    let _waits = filled(&lane, MAX_BATCH + 10, 1);
    let first = take(&lane);
    assert_eq!((first.len(), take(&lane).len(), take(&lane).len()), (MAX_BATCH, 10, 0));
    assert!(first.iter().map(|claim| usize::from(claim.slot)).eq(0..MAX_BATCH));

    let _waits = filled(&lane, 5, MAX_BATCH_BYTES / 3);
    assert_eq!((take(&lane).len(), take(&lane).len(), take(&lane).len()), (2, 2, 1));
    // A claim that is too long for a batch is sent by itself.
    let _waits = filled(&lane, 2, MAX_BATCH_BYTES);
    assert_eq!((take(&lane).len(), take(&lane).len(), take(&lane).len()), (1, 1, 0));
}

#[test]
fn who_no_longer_waits_is_not_sent() {
    let lane = lane();
    let mut waits = filled(&lane, 5, 1);
    waits.remove(3);
    waits.remove(0);
    assert_eq!(take(&lane).iter().map(|claim| claim.slot).collect::<Vec<_>>(), [1, 2, 4]);
    assert_eq!(lane.queue().bytes, 0);
}

#[test]
fn what_a_batch_has_already_counts() {
    let lane = lane();
    let _waits = filled(&lane, 3, MAX_BATCH_BYTES / 3);
    let mut batch = Vec::new();
    lane.take(&mut batch);
    assert_eq!(batch.len(), 2);
    lane.take(&mut batch);
    assert_eq!(batch.len(), 2);
    batch.truncate(1);
    lane.take(&mut batch);
    assert_eq!(batch.iter().map(|claim| claim.slot).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(lane.queue().bytes, 0);
}

#[test]
fn only_so_many_bytes_wait() {
    const LONG: usize = 1024 * 1024;
    let lane = lane();
    let _waits = filled(&lane, MAX_QUEUED_BYTES / LONG - 1, LONG);
    let (more, _waits) = claim(0, 2 * LONG);
    assert!(matches!(lane.push(more), Err(PushError::Failed(Failure::Refused(why))) if why.contains("63 claims wait")));
    take(&lane);
    let (more, _waits) = claim(0, LONG);
    assert!(lane.push(more).is_ok());
}

#[test]
fn a_lane_that_is_down_or_closed_takes_nothing() {
    let lane = lane();
    let waits = filled(&lane, 2, 1);
    let away = Failure::Unreachable("away".to_owned());
    lane.link_failed(&away);
    for mut waits in waits {
        assert!(matches!(waits.try_recv(), Ok(ClaimAnswer::Failed(failure)) if failure == away));
    }
    assert!(matches!(lane.push(claim(0, 1).0), Err(PushError::Failed(failure)) if failure == away));
    lane.link_lost();
    assert!(lane.push(claim(0, 1).0).is_ok());
    lane.close();
    assert!(matches!(lane.push(claim(0, 1).0), Err(PushError::Closed(_))));
}

#[tokio::test]
async fn who_asks_for_a_connection_does_not_get_the_failure_of_an_earlier_attempt() {
    let lane = lane();
    let failure = |number: u64| Failure::Unreachable(format!("attempt {number}"));
    lane.link_begins();
    let (failed, ()) = tokio::join!(lane.reconnect(), async {
        // The attempt that was in progress ends first.
        lane.link_failed(&failure(1));
        tokio::task::yield_now().await;
        assert!(lane.take_check_request());
        lane.link_begins();
        lane.link_failed(&failure(2));
    });
    assert_eq!(failed.map(|_| ()), Err(failure(2)));
    // Without a request the last failure is the answer.
    assert_eq!(lane.wait_for_link().await.map(|_| ()), Err(failure(2)));
}
