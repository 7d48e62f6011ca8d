//! Where this server keeps its counters: in its own memory, or with a fleet of servers in a store that they share.

#[cfg(test)]
pub(crate) mod held;
pub(crate) mod redis;
pub(crate) mod watch;

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tollgate::{MemoryStore, Source, Store, now};
use tollgate_core::{Claim, Settlement};
use tollgate_store::guarded::{GuardStatus, Level};
use tollgate_store::redis::RedisStats;

/// The store of every wire's gate.
#[derive(Debug)]
pub(crate) enum Counters {
    /// Never waits: wires poll a check once (`tollgate::now`) and do not make it part of their own futures, which are moved for
    /// every request and had better be small.
    Memory(MemoryStore),
    /// Waits for others. Its futures are boxed, so that those of checks are as small as if there were only memory.
    Shared(Arc<dyn Shared>),
}

/// A store that other servers have too.
pub(crate) trait Shared: Debug + Send + Sync {
    /// As [`Store::settle_into`].
    fn settle<'a>(&'a self, claim: &'a Claim<'_>, settlement: &'a mut Settlement) -> Settling<'a>;

    /// As [`Store::assume`].
    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement);

    /// How much of it answers, as was last looked. For every request, so it costs nothing.
    fn level(&self) -> Level;

    /// How it is, and what it did.
    fn status(&self) -> SharedStatus;

    /// The value that all servers with this store have under this name: what is proposed, unless somebody came first. In words why
    /// there is none.
    fn agree_on<'a>(&'a self, name: &'a str, proposal: &'a [u8], within: Duration) -> Agreeing<'a>;
}

pub(crate) type Settling<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
pub(crate) type Agreeing<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + Send + 'a>>;

/// What a shared store says of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedStatus {
    pub(crate) guard: GuardStatus,
    pub(crate) redis: RedisStats,
}

impl Counters {
    /// Whether a check may have to wait.
    pub(crate) fn wait(&self) -> bool {
        matches!(self, Counters::Shared(_))
    }

    /// The counters, if they are in memory.
    pub(crate) fn memory(&self) -> Option<&MemoryStore> {
        match self {
            Counters::Memory(store) => Some(store),
            Counters::Shared(_) => None,
        }
    }

    /// The store that other servers have too, if it is one.
    pub(crate) fn shared(&self) -> Option<&dyn Shared> {
        match self {
            Counters::Memory(_) => None,
            Counters::Shared(store) => Some(&**store),
        }
    }
}

impl From<MemoryStore> for Counters {
    fn from(store: MemoryStore) -> Counters {
        Counters::Memory(store)
    }
}

impl Store for Counters {
    fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) -> impl Future<Output = ()> + Send {
        let left = match self {
            Counters::Memory(store) => {
                // It never waits, so nothing is left for the future, which is the smaller for it.
                let _ = now(store.settle_into(claim, settlement));
                None
            }
            Counters::Shared(store) => Some((store, claim, settlement)),
        };
        async move {
            if let Some((store, claim, settlement)) = left {
                store.settle(claim, settlement).await;
            }
        }
    }

    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement) {
        match self {
            Counters::Memory(store) => store.assume(claim, source, settlement),
            Counters::Shared(store) => store.assume(claim, source, settlement),
        }
    }
}
