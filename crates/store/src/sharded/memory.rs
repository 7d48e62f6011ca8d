//! Shards in this process, for tests and simulations: exact counters, idempotency records, and faults that can be
//! switched on and off.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate_core::key::HashSecret;
use tollgate_core::{
    Ask, Charge, Claim, ClaimId, Key, Once, Reading, RegionId, Replay, Settlement, Span, Timestamp, Verdict, Wait,
};

use super::{Failure, Location, OnceRecord, ShardId, ShardInfo, Sharded};
use crate::clock::Clock;
use crate::memory::{MemoryConfig, MemoryStore};

/// How long a record stays pending if its verdict is never written.
const PENDING: Span = Span::from_secs(1);
/// The number of records of a shard at which expired ones are removed.
const MAX_RECORDS: usize = 100_000;
/// Constant, so that keys have the same locations in every run.
const LOCATIONS: HashSecret = HashSecret(1, 2);

/// A sharded store in memory. Clones share their shards, so that several servers can use them.
#[derive(Debug)]
pub struct MemoryShards<C>(Arc<ShardSet<C>>);

#[derive(Debug)]
struct ShardSet<C> {
    clock: C,
    nodes: Vec<ShardNode<C>>,
    slots: u16,
    replicas: AtomicU64,
}

/// One shard of [`MemoryShards`].
#[derive(Debug)]
pub struct ShardNode<C> {
    counters: MemoryStore<C>,
    /// Not in the store of the counters, because a record can be pending.
    records: Mutex<HashMap<String, ShardRecord>>,
    fault: Mutex<ShardFault>,
    calls: AtomicU64,
    probes: AtomicU64,
}

/// An idempotency record.
#[derive(Debug)]
struct ShardRecord {
    body: u64,
    until: Timestamp,
    /// The answer to a repetition. `None` while the verdict is pending.
    settlement: Option<Settlement>,
}

/// The fault of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShardFault {
    /// The shard works.
    #[default]
    None,
    /// The shard cannot be reached.
    Unreachable,
    /// The shard answers with an error.
    Error,
    /// The shard neither settles nor answers.
    Stalled,
    /// The shard settles and does not answer.
    Mute,
    /// The shard settles, and answers after this time.
    Slow(Duration),
}

impl<C: Clock + Clone> MemoryShards<C> {
    /// Shards with a number of slots between them. Each shard has room for 20,000 counters.
    pub fn new(shards: usize, slots: u16, clock: C) -> MemoryShards<C> {
        let config = MemoryConfig { max_keys: 20_000, ..MemoryConfig::default() };
        MemoryShards::with_config(shards, slots, config, clock)
    }

    /// Shards with a number of slots between them. `config` bounds the counters of each shard.
    pub fn with_config(shards: usize, slots: u16, config: MemoryConfig, clock: C) -> MemoryShards<C> {
        let node = |_| ShardNode {
            counters: config.build_with(clock.clone()),
            records: Mutex::default(),
            fault: Mutex::default(),
            calls: AtomicU64::new(0),
            probes: AtomicU64::new(0),
        };
        let nodes = (0..shards.max(1)).map(node).collect();
        MemoryShards(Arc::new(ShardSet { clock, nodes, slots: slots.max(1), replicas: AtomicU64::new(1) }))
    }
}

impl<C: Clock> MemoryShards<C> {
    /// The clock of all shards.
    pub fn clock(&self) -> &C {
        &self.0.clock
    }

    /// The shards.
    pub fn nodes(&self) -> &[ShardNode<C>] {
        &self.0.nodes
    }

    /// The shard in which a key's counter lives.
    pub fn node(&self, key: &Key<'_>) -> &ShardNode<C> {
        &self.0.nodes[self.0.locate(key).shard.0 as usize]
    }

    /// Sets the number of servers that a heartbeat returns.
    pub fn set_replicas(&self, replicas: u64) {
        self.0.replicas.store(replicas, Ordering::SeqCst);
    }

    /// The state of a charge's counter, regardless of the shard's fault.
    pub fn peek(&self, charge: &Charge<'_>) -> Reading {
        let peek = Charge { units: 0, ask: Ask::Exactly, ..charge.clone() };
        let claim = Claim { id: ClaimId(u128::MAX), charges: [peek].into_iter().collect(), once: None, timeout: None };
        let mut settlement = Settlement::default();
        self.node(&charge.key).counters.settle_now(&claim, &mut settlement);
        settlement.readings[0]
    }
}

impl<C> Clone for MemoryShards<C> {
    fn clone(&self) -> MemoryShards<C> {
        MemoryShards(Arc::clone(&self.0))
    }
}

impl<C> ShardSet<C> {
    fn locate(&self, key: &Key<'_>) -> Location {
        let slot = (key.partition(LOCATIONS) % u128::from(self.slots)) as u16;
        Location { shard: ShardId(u32::from(slot) % self.nodes.len() as u32), slot }
    }
}

impl<C: Clock> ShardNode<C> {
    /// Sets the fault of this shard.
    pub fn set_fault(&self, fault: ShardFault) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// The number of claims that were sent to this shard.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// The number of probes that were sent to this shard.
    pub fn probes(&self) -> u64 {
        self.probes.load(Ordering::SeqCst)
    }

    fn fault(&self) -> ShardFault {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn records(&self) -> MutexGuard<'_, HashMap<String, ShardRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, claim: &Claim<'_>, record: OnceRecord<'_>, now: Timestamp) -> Result<Settlement, Failure> {
        let mut records = self.records();
        let part = if let OnceRecord::Part(name) = record { Some(name) } else { None };
        // Servers of other regions number this one otherwise.
        let named = |key: &Key<'_>| format!("{:?} {part:?}", key.clone().in_region(RegionId::HERE));
        let name = claim.once.as_ref().map(|once| (once, named(&once.key)));
        let is_verdict = matches!(record, OnceRecord::Verdict { .. });
        if let Some((once, name)) = &name
            && let Some(stored) = records.get(name).filter(|stored| stored.until > now && !is_verdict)
        {
            return match &stored.settlement {
                _ if stored.body != once.body => Ok(Settlement::conflict(claim, now)),
                Some(settlement) => Ok(settlement.clone()),
                None => Err(Failure::Pending),
            };
        }
        let counted = Claim { once: None, ..claim.clone() };
        let mut settlement = Settlement::default();
        self.counters.settle_now(&counted, &mut settlement);
        if records.len() >= MAX_RECORDS {
            records.retain(|_, stored| stored.until > now);
        }
        if let Some((once, name)) = name {
            match ShardRecord::new(once, claim, record, &settlement, now) {
                Some(new) => drop(records.insert(name, new)),
                None if is_verdict => records.retain(|other, stored| *other != name || !stored.is_pending(once)),
                None => {}
            }
        }
        Ok(settlement)
    }
}

impl ShardRecord {
    fn is_pending(&self, once: &Once<'_>) -> bool {
        self.settlement.is_none() && self.body == once.body
    }

    /// The record of a claim, unless the claim leaves none.
    fn new(
        once: &Once<'_>,
        claim: &Claim<'_>,
        record: OnceRecord<'_>,
        settlement: &Settlement,
        now: Timestamp,
    ) -> Option<ShardRecord> {
        let verdict = Verdict::reach(claim, settlement);
        let keep = match verdict.wait {
            Wait::For(wait) if !verdict.allowed => wait.min(once.keep),
            _ => once.keep,
        };
        if once.keep == Span::ZERO {
            return None;
        }
        let (settlement, passed, keep) = match record {
            OnceRecord::Pending if !verdict.allowed => return None,
            OnceRecord::Pending => (None, verdict.allowed, PENDING),
            OnceRecord::Whole | OnceRecord::Part(_) if !settlement.needs_record(claim) => return None,
            OnceRecord::Whole | OnceRecord::Part(_) => (Some(settlement), verdict.allowed, keep),
            OnceRecord::Verdict { keep: Span::ZERO, .. } => return None,
            OnceRecord::Verdict { settlement, passed, keep } => (Some(settlement), passed, keep),
        };
        let replay = Replay::Again { terms: once.terms, passed };
        let settlement = settlement.map(|settlement| Settlement { replay, ..settlement.clone() });
        Some(ShardRecord { body: once.body, until: now.after(keep), settlement })
    }
}

impl<C: Clock + 'static> Sharded for MemoryShards<C> {
    fn locate(&self, key: &Key<'_>) -> Location {
        self.0.locate(key)
    }

    async fn settle_at(
        &self,
        location: Location,
        claim: &Claim<'_>,
        record: OnceRecord<'_>,
        timeout: Duration,
        settlement: &mut Settlement,
    ) -> Result<(), Failure> {
        let keys = claim.charges.iter().map(|charge| &charge.key).chain(claim.once.as_ref().map(|once| &once.key));
        for key in keys {
            debug_assert_eq!(self.locate(key), location, "a key was sent to a location that it does not live in");
        }
        let node = &self.0.nodes[location.shard.0 as usize];
        node.calls.fetch_add(1, Ordering::SeqCst);
        match node.fault() {
            ShardFault::Unreachable => return Err(unreachable()),
            ShardFault::Error => return Err(error()),
            ShardFault::Stalled => return Err(no_answer(timeout).await),
            fault => {
                *settlement = node.settle(claim, record, self.0.clock.now())?;
                match fault {
                    ShardFault::Mute => return Err(no_answer(timeout).await),
                    ShardFault::Slow(time) if time > timeout => return Err(no_answer(timeout).await),
                    ShardFault::Slow(time) => tokio::time::sleep(time).await,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    async fn probe(&self, shard: ShardId, timeout: Duration) -> Result<(), Failure> {
        let node = &self.0.nodes[shard.0 as usize];
        node.probes.fetch_add(1, Ordering::SeqCst);
        match node.fault() {
            ShardFault::None => Ok(()),
            ShardFault::Unreachable => Err(unreachable()),
            ShardFault::Error => Err(error()),
            ShardFault::Slow(time) if time <= timeout => {
                tokio::time::sleep(time).await;
                Ok(())
            }
            ShardFault::Slow(_) | ShardFault::Stalled | ShardFault::Mute => Err(no_answer(timeout).await),
        }
    }

    fn shards(&self) -> Vec<ShardInfo> {
        let info = |at| ShardInfo { id: ShardId(at), name: format!("shard-{at}"), warning: None };
        (0..self.0.nodes.len() as u32).map(info).collect()
    }

    async fn heartbeat(&self, _timeout: Duration) -> Result<u64, Failure> {
        match self.0.nodes[0].fault() {
            ShardFault::None => Ok(self.0.replicas.load(Ordering::SeqCst)),
            _ => Err(unreachable()),
        }
    }
}

async fn no_answer(timeout: Duration) -> Failure {
    tokio::time::sleep(timeout).await;
    Failure::Timeout
}

fn unreachable() -> Failure {
    Failure::Unreachable("the shard is set to be unreachable".to_owned())
}

fn error() -> Failure {
    Failure::Refused("the shard is set to answer with errors".to_owned())
}
