//! A store of shards in this process: exact counters, records of claims that are settled once, and faults that are switched.

use std::collections::HashMap;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate_core::key::Secret;
use tollgate_core::{
    Ask, Charge, Claim, ClaimId, Key, Once, Reading, Replay, Settlement, Source, Span, Timestamp, Verdict, Wait,
};
use tollgate_store::conformance::block_on;
use tollgate_store::sharded::{Failure, Place, Record, ShardId, ShardInfo, Sharded};
use tollgate_store::{Clock, ManualClock, MemoryConfig, MemoryStore, Store};

/// How long a record stays pending whose verdict never comes.
const PENDING: Span = Span::from_secs(1);

/// The shards, for several servers.
#[derive(Clone)]
pub(crate) struct Fleet(pub(crate) Arc<Shards>);

pub(crate) struct Shards {
    pub(crate) clock: ManualClock,
    pub(crate) nodes: Vec<Node>,
    slots: u16,
    pub(crate) replicas: AtomicU64,
}

pub(crate) struct Node {
    counters: MemoryStore<ManualClock>,
    records: Mutex<HashMap<String, Kept>>,
    fault: Mutex<Fault>,
    pub(crate) calls: AtomicU64,
    pub(crate) probes: AtomicU64,
}

struct Kept {
    body: u64,
    until: Timestamp,
    /// What is answered to the same again; none while it is pending.
    settlement: Option<Settlement>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    #[default]
    None,
    /// It can't be reached.
    Cut,
    /// It answers with an error.
    Broken,
    /// It neither settles nor answers.
    Stalled,
    /// It settles and does not answer.
    Mute,
}

impl Shards {
    /// So many shards, on which so many slots are spread.
    pub(crate) fn new(shards: usize, slots: u16, clock: ManualClock) -> Shards {
        let config = MemoryConfig { max_keys: 20_000, max_once: 1, ..MemoryConfig::default() };
        let node = |_| Node {
            counters: config.build_with(clock.clone()),
            records: Mutex::default(),
            fault: Mutex::default(),
            calls: AtomicU64::new(0),
            probes: AtomicU64::new(0),
        };
        Shards { nodes: (0..shards).map(node).collect(), clock, slots, replicas: AtomicU64::new(1) }
    }

    pub(crate) fn node(&self, key: &Key<'_>) -> &Node {
        &self.nodes[self.place(key).shard.0 as usize]
    }

    /// How the counter of a charge stands in its shard, whatever becomes of the shard's callers.
    pub(crate) fn look(&self, charge: &Charge<'_>) -> Reading {
        let look = Charge { units: 0, ask: Ask::Exactly, ..charge.clone() };
        let claim = Claim { id: ClaimId(u128::MAX), charges: [look].into_iter().collect(), once: None, patience: None };
        block_on(self.node(&charge.key).counters.settle(&claim)).readings[0]
    }
}

impl Node {
    pub(crate) fn set(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }

    pub(crate) fn fault(&self) -> Fault {
        *self.fault.lock().unwrap()
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    fn records(&self) -> MutexGuard<'_, HashMap<String, Kept>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, claim: &Claim<'_>, record: Record<'_>, now: Timestamp) -> Result<Settlement, Failure> {
        let mut records = self.records();
        let part = if let Record::Part(name) = record { Some(name) } else { None };
        let name = claim.once.as_ref().map(|once| (once, format!("{:?} {part:?}", once.key)));
        let is_verdict = matches!(record, Record::Verdict { .. });
        if let Some((once, name)) = &name
            && let Some(kept) = records.get(name).filter(|kept| kept.until > now && !is_verdict)
        {
            return match &kept.settlement {
                _ if kept.body != once.body => Ok(conflict(claim, now)),
                Some(settlement) => Ok(settlement.clone()),
                None => Err(Failure::Pending),
            };
        }
        let plain = Claim { once: None, ..claim.clone() };
        let settlement = block_on(self.counters.settle(&plain));
        let kept = name.and_then(|(once, name)| Some((name, kept(once, claim, record, &settlement, now)?)));
        records.extend(kept);
        Ok(settlement)
    }
}

fn kept(
    once: &Once<'_>,
    claim: &Claim<'_>,
    record: Record<'_>,
    settlement: &Settlement,
    now: Timestamp,
) -> Option<Kept> {
    let verdict = Verdict::reach(claim, settlement);
    let keep = match verdict.wait {
        Wait::For(wait) if !verdict.allowed => wait.min(once.keep),
        _ => once.keep,
    };
    if once.keep == Span::ZERO {
        return None;
    }
    let (settlement, passed, keep) = match record {
        Record::Pending => (None, verdict.allowed, PENDING),
        Record::Whole | Record::Part(_) => (Some(settlement), verdict.allowed, keep),
        Record::Verdict { settlement, passed, keep } => (Some(settlement), passed, keep),
    };
    let replay = Replay::Again { terms: once.terms, passed };
    let settlement = settlement.map(|settlement| Settlement { replay, ..settlement.clone() });
    Some(Kept { body: once.body, until: now.after(keep), settlement })
}

fn conflict(claim: &Claim<'_>, now: Timestamp) -> Settlement {
    let refused = Reading {
        admits: false,
        taken: 0,
        remaining: 0,
        wait: Wait::Forever,
        reset_after: Span::ZERO,
        delay: Span::ZERO,
        source: Source::Store,
    };
    Settlement { readings: claim.charges.iter().map(|_| refused).collect(), at: now, replay: Replay::Conflict }
}

impl Shards {
    pub(crate) fn place(&self, key: &Key<'_>) -> Place {
        let slot = (key.partition(Secret(1, 2)) % u128::from(self.slots)) as u16;
        Place { shard: ShardId(u32::from(slot) % self.nodes.len() as u32), slot }
    }
}

impl Sharded for Fleet {
    fn place(&self, key: &Key<'_>) -> Place {
        self.0.place(key)
    }

    async fn settle_at(
        &self,
        place: Place,
        claim: &Claim<'_>,
        record: Record<'_>,
        _within: Duration,
        settlement: &mut Settlement,
    ) -> Result<(), Failure> {
        let keys = claim.charges.iter().map(|charge| &charge.key).chain(claim.once.as_ref().map(|once| &once.key));
        for key in keys {
            assert_eq!(self.place(key), place, "a key was sent to a place that it does not live in");
        }
        let node = &self.0.nodes[place.shard.0 as usize];
        node.calls.fetch_add(1, Ordering::SeqCst);
        match node.fault() {
            Fault::Cut => return Err(Failure::Unreachable("cut off".to_owned())),
            Fault::Broken => return Err(Failure::Refused("broken".to_owned())),
            Fault::Stalled => pending().await,
            fault => {
                *settlement = node.settle(claim, record, self.0.clock.now())?;
                if fault == Fault::Mute {
                    pending().await
                }
            }
        }
        Ok(())
    }

    async fn probe(&self, shard: ShardId, _within: Duration) -> Result<(), Failure> {
        let node = &self.0.nodes[shard.0 as usize];
        node.probes.fetch_add(1, Ordering::SeqCst);
        match node.fault() {
            Fault::None => Ok(()),
            Fault::Cut => Err(Failure::Unreachable("cut off".to_owned())),
            Fault::Broken => Err(Failure::Refused("broken".to_owned())),
            Fault::Stalled | Fault::Mute => pending().await,
        }
    }

    fn shards(&self) -> Vec<ShardInfo> {
        let info = |at| ShardInfo { id: ShardId(at), name: format!("shard-{at}"), warning: None };
        (0..self.0.nodes.len() as u32).map(info).collect()
    }

    async fn heartbeat(&self, _within: Duration) -> Result<u64, Failure> {
        match self.0.nodes[0].fault() {
            Fault::None => Ok(self.0.replicas.load(Ordering::SeqCst)),
            _ => Err(Failure::Unreachable("cut off".to_owned())),
        }
    }
}
