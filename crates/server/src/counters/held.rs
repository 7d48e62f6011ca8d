//! A store that answers when a test lets it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tollgate::{Limiter, MemoryConfig, MemoryStore, Ruleset, Source, Span, Store};
use tollgate_core::{Claim, Settlement};
use tollgate_store::guarded::Level;

use super::{Agreeing, Counters, Settling, Shared, SharedStatus};

/// Counters in memory, behind a door that is shut at first.
#[derive(Debug)]
pub(crate) struct Held {
    memory: MemoryStore,
    open: watch::Sender<bool>,
    /// How patient each asker was, in the order in which they came.
    asked: watch::Sender<Vec<Option<Span>>>,
    status: Mutex<SharedStatus>,
    /// What is agreed on, whatever its name.
    agreed: Mutex<Option<Vec<u8>>>,
    mood: Mutex<Mood>,
}

/// How it answers claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    /// As they should be.
    #[default]
    Well,
    /// As one does that is not there.
    Away,
    /// As one does that does not know yet whether they were settled before.
    Undecided,
}

impl Held {
    pub(crate) fn new() -> Arc<Held> {
        Arc::new(Held {
            memory: MemoryConfig::default().build(),
            open: watch::Sender::new(false),
            asked: watch::Sender::default(),
            status: Mutex::default(),
            agreed: Mutex::default(),
            mood: Mutex::default(),
        })
    }

    /// A limiter on it.
    pub(crate) fn limiter(self: &Arc<Held>, rules: Ruleset) -> Arc<Limiter<Counters>> {
        Arc::new(Limiter::new(rules, Counters::Shared(self.clone())))
    }

    /// Answers all that was asked, and what will be.
    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }

    /// Says of itself what the test wants.
    pub(crate) fn says(&self, status: SharedStatus) {
        *self.status.lock().unwrap() = status;
    }

    pub(crate) fn is_at(&self, level: Level) {
        self.status.lock().unwrap().guard.level = level;
    }

    /// Answers claims like this from now on.
    pub(crate) fn is(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// Forgets what was agreed on, or has it be this.
    pub(crate) fn agrees_on(&self, value: Option<&[u8]>) {
        *self.agreed.lock().unwrap() = value.map(<[u8]>::to_owned);
    }

    /// Shuts the door again.
    pub(crate) fn shut(&self) {
        self.open.send_replace(false);
    }

    /// Waits until so many have asked, and gives how patient each was.
    pub(crate) async fn asked(&self, count: usize) -> Vec<Option<Span>> {
        let mut asked = self.asked.subscribe();
        asked.wait_for(|asked| asked.len() >= count).await.unwrap().clone()
    }
}

impl Shared for Held {
    fn settle<'a>(&'a self, claim: &'a Claim<'_>, settlement: &'a mut Settlement) -> Settling<'a> {
        Box::pin(async move {
            self.asked.send_modify(|asked| asked.push(claim.patience));
            let mood = *self.mood.lock().unwrap();
            if mood != Mood::Well {
                self.memory.assume(claim, Source::Assumed, settlement);
                for reading in settlement.readings.iter_mut().filter(|_| mood == Mood::Undecided) {
                    (reading.admits, reading.source) = (false, Source::Store);
                }
                return;
            }
            // In the order in which they came: only the answers wait.
            self.memory.settle_into(claim, settlement).await;
            self.open.subscribe().wait_for(|open| *open).await.unwrap();
        })
    }

    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement) {
        self.memory.assume(claim, source, settlement);
    }

    fn level(&self) -> Level {
        self.status().guard.level
    }

    fn status(&self) -> SharedStatus {
        self.status.lock().unwrap().clone()
    }

    /// Behind a door that is shut it fails.
    fn agree_on<'a>(&'a self, _: &'a str, proposal: &'a [u8], _: Duration) -> Agreeing<'a> {
        Box::pin(async move {
            if !*self.open.borrow() {
                return Err("the door is shut".to_owned());
            }
            Ok(self.agreed.lock().unwrap().get_or_insert_with(|| proposal.to_owned()).clone())
        })
    }
}
