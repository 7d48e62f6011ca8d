//! A store that counts some limits on concurrent requests by itself, and admits against the sum of what all servers count.
//!
//! A counter of all requests of a large fleet would be the busiest key of the inner store: two calls for each request. The
//! charges of such limits ([`Shortcuts::Summed`]) never go there. Each server has the holds of the requests that it admitted,
//! and publishes their number every [`INTERVAL`]; the answer has those of the other servers. So what it knows of another
//! server is at most [`BEAT`] and a round trip old, and together they exceed a limit by at most what they admit in that
//! time. Without an answer for [`STALE_AFTER`], a server enforces its share of the limit.
//!
//! [`Tables`] have the counters; they do no I/O and read no clock, so that a test can run a fleet of them. [`Summed`] passes
//! everything else on to the inner store. Who drives it sends its [reports](report::Report).

mod counter;
pub mod report;
mod split;
mod status;
mod tables;

use std::time::Duration;

use tokio::sync::Notify;
use tollgate_core::{Claim, Key, Settlement, Shortcuts, Source, Span};

use crate::clock::{Clock, Steady, SystemClock};
use crate::{Store, secret};
use report::{Note, OtherReports, Report};

pub use split::SplitClaim;
pub use status::{SummedCounter, SummedStatus};
pub use tables::Tables;

/// How old the count of another server may be when it is used, and a round trip more: half of it passes until a count is
/// published, and half until it is read.
pub const BEAT: Duration = Duration::from_millis(250);
/// The interval at which a server publishes its counts and reads those of the others. A little less than half a beat, for
/// timers that are late.
pub const INTERVAL: Duration = Duration::from_millis(100);
/// Without an answer for this time, a server enforces its share of each limit; and one that did not publish for this time is
/// forgotten by the others.
pub const STALE_AFTER: Span = Span::from_micros(3 * BEAT.as_micros() as u64);
/// The most counters of a server. The inner store has those of further keys.
pub const MAX_COUNTERS: usize = 1_024;
/// The most notes that wait to be published. Further ones are dropped: slots then end with their holds.
pub const MAX_NOTES: usize = 10_000;
/// The most notes of a report.
pub const MAX_NOTES_OF_REPORT: usize = 1_000;
/// A counter without requests for this time is no longer published.
pub const IDLE_AFTER: Span = Span::from_secs(60);

/// A store that sums the requests in flight of all servers, for the limits that say so.
#[derive(Debug)]
pub struct Summed<S, C = SystemClock> {
    inner: S,
    tables: Tables,
    clock: C,
    /// Wakes who publishes: a counter is new.
    is_new: Notify,
}

/// What becomes of a claim.
#[derive(Debug)]
pub enum SummedStep<'t, 'a> {
    /// The settlement has the answer.
    Answered,
    /// The claim has no charge for this store.
    Whole,
    /// The inner store settles a part of it.
    Split(Box<SplitClaim<'t, 'a>>),
}

impl<S: Store> Summed<S> {
    /// Counts in front of a store, using the system clock.
    pub fn new(inner: S) -> Self {
        Self::with_clock(inner, SystemClock::default())
    }
}

impl<S: Store, C: Clock> Summed<S, C> {
    /// Counts in front of a store, using the given clock.
    pub fn with_clock(inner: S, clock: C) -> Self {
        Summed { inner, tables: Tables::new(secret::random()), clock, is_new: Notify::new() }
    }

    /// The inner store.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The number of servers among which limits are divided while the sums are unknown.
    pub fn set_servers(&self, servers: u64) {
        self.tables.set_servers(servers);
    }

    /// What is counted.
    pub fn status(&self) -> SummedStatus {
        self.tables.status(self.clock.now(), self.clock.steady())
    }

    /// What is to be published now, and the moment. `None` if there is nothing to publish. Keys without a digest are left out.
    pub fn report(&self, digest: impl Fn(&Key<'_>) -> Option<u128>) -> Option<(Report, Steady)> {
        let steady = self.clock.steady();
        Some((self.tables.report(self.clock.now(), steady, digest)?, steady))
    }

    /// The answer to a report that was made at `sent`.
    pub fn receive(&self, sent: Steady, answer: &OtherReports) {
        self.tables.receive(self.clock.now(), sent, answer);
    }

    /// Publishes notes again whose report was not answered.
    pub fn put_back(&self, notes: Vec<Note>) {
        self.tables.put_back(notes);
    }

    /// Waits until there is a new counter, whose sum is not known.
    pub async fn wait_for_new(&self) {
        self.is_new.notified().await;
    }

    /// Settles a claim as far as possible without the inner store. Otherwise returns what is left to do.
    #[inline]
    pub fn begin<'a>(&self, claim: &Claim<'a>, settlement: &mut Settlement) -> SummedStep<'_, 'a> {
        if claim.charges.iter().all(|charge| charge.shortcuts != Shortcuts::Summed) {
            return SummedStep::Whole;
        }
        let (step, has_new) = split::begin(&self.tables, claim, self.clock.now(), self.clock.steady(), settlement);
        if has_new {
            self.is_new.notify_one();
        }
        step
    }
}

impl<S: Store, C: Clock> Store for Summed<S, C> {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        match self.begin(claim, settlement) {
            SummedStep::Answered => {}
            SummedStep::Whole => self.inner.settle_into(claim, settlement).await,
            SummedStep::Split(split) => {
                let answer = self.inner.settle(split.rest()).await;
                split.end(&answer, settlement);
            }
        }
    }

    fn never_waits(&self) -> bool {
        self.inner.never_waits()
    }

    fn may_be_transient(&self, key: &Key<'_>) -> bool {
        self.inner.may_be_transient(key)
    }

    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement) {
        match self.begin(claim, settlement) {
            SummedStep::Answered => {}
            SummedStep::Whole => self.inner.assume(claim, source, settlement),
            SummedStep::Split(split) => {
                let mut answer = Settlement::default();
                self.inner.assume(split.rest(), source, &mut answer);
                split.end(&answer, settlement);
            }
        }
    }
}
