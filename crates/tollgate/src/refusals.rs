//! Counting refusals towards bans, in the store that all servers share.

use smallvec::SmallVec;
use tollgate_core::{Ask, Charge, Claim, Mode, OnFailure, Settlement, Shortcuts, Source, Span};
use tollgate_rules::Ban;
use tollgate_store::Store;

use crate::ids;
use crate::limiter::Limiter;

/// Refusals of one subject that the store has not counted yet.
#[derive(Clone, Copy, Debug)]
pub struct RefusalCount<'a> {
    /// The ban of the rule that refused.
    pub ban: &'a Ban,
    /// Who was refused, by the name that all servers use.
    pub name: &'a str,
    /// How many times.
    pub count: u64,
}

/// What the store has counted in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalSum {
    /// Fewer than the ban needs.
    Below,
    /// As many as the ban needs, or more.
    Reached,
    /// The store did not count them.
    Unknown,
}

/// Counters of one claim.
const MAX_COUNTED: usize = 64;

impl<S: Store> Limiter<S> {
    /// Counts refusals. Each answer is for the count at the same index.
    pub async fn count_refusals(&self, counts: &[RefusalCount<'_>], timeout: Span) -> Vec<RefusalSum> {
        let mut sums = Vec::with_capacity(counts.len());
        for chunk in counts.chunks(MAX_COUNTED) {
            if sums.last() == Some(&RefusalSum::Unknown) {
                // A store that does not answer is not waited for again.
                sums.resize(counts.len(), RefusalSum::Unknown);
                break;
            }
            let charges = chunk.iter().map(|one| charge(one, Ask::Regardless)).collect();
            let settlement = self.settle_refusals(charges, timeout).await;
            let read = (0..chunk.len()).map(|at| match settlement.readings.get(at) {
                Some(reading) if reading.source != Source::Store => RefusalSum::Unknown,
                Some(reading) if reading.remaining == 0 => RefusalSum::Reached,
                Some(_) => RefusalSum::Below,
                None => RefusalSum::Unknown,
            });
            sums.extend(read);
        }
        sums
    }

    /// Forgets the refusals of someone, so that they count anew.
    pub async fn forget_refusals(&self, ban: &Ban, name: &str, timeout: Span) {
        let one = RefusalCount { ban, name, count: 0 };
        self.settle_refusals(SmallVec::from_iter([charge(&one, Ask::Reset)]), timeout).await;
    }

    async fn settle_refusals(&self, charges: SmallVec<[Charge<'_>; 4]>, timeout: Span) -> Settlement {
        let claim = Claim { id: ids::next(), charges, once: None, timeout: Some(timeout) };
        let mut settlement = Settlement::default();
        self.settle(&claim, &mut settlement).await;
        settlement
    }
}

fn charge<'a>(one: &RefusalCount<'a>, ask: Ask) -> Charge<'a> {
    Charge {
        key: one.ban.counter(one.name),
        limit: one.ban.limit(),
        ask,
        units: one.count,
        mode: Mode::Enforce,
        // What is not counted is counted later, where it was refused.
        on_failure: OnFailure::Allow,
        shortcuts: Shortcuts::None,
    }
}
