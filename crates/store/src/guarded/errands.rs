//! What is to be told to the store when it can be: bounded.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::Once;

use super::owned::{self, Deed, Errand};

/// The most that wait. What comes past that is dropped.
const MOST_WAITING: usize = 10_000;

/// Errands that wait.
#[derive(Debug, Default)]
pub(super) struct Errands {
    waiting: Mutex<Waiting>,
    /// How many of them are facts: most of the time there are none, and nobody has to look.
    facts: AtomicUsize,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    /// What is told at most once.
    others: VecDeque<Errand>,
    /// Facts, by their names, until they were told: who repeats himself while the store is away adds nothing.
    facts: HashMap<u128, Fact, foldhash::fast::RandomState>,
    /// The names of those that nobody is telling, each once, in the order in which they are told.
    order: VecDeque<u128>,
}

#[derive(Debug)]
struct Fact {
    errand: Errand,
    /// Somebody is telling it.
    is_out: bool,
}

/// What became of an errand that was to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// It waits, or the same did already.
    Waits,
    /// Something else waits under its name.
    Conflicts,
    /// There is no room.
    Dropped,
}

impl Errands {
    pub(super) fn push(&self, errand: Errand) -> Pushed {
        let named = match &errand.deed {
            Deed::Facts(named) => Some((named.name(), named.body, named.unsure)),
            Deed::Bare | Deed::Verdict(_) => None,
        };
        let mut waiting = self.waiting();
        if let Some((name, body, unsure)) = named
            && let Some(known) = waiting.facts.get_mut(&name)
        {
            if known.errand.body() != Some(body) {
                return Pushed::Conflicts;
            }
            known.errand.doubt(unsure);
            if std::mem::take(&mut known.is_out) {
                waiting.order.push_back(name);
            }
            return Pushed::Waits;
        }
        if waiting.len() >= MOST_WAITING {
            self.drop_one();
            return Pushed::Dropped;
        }
        match named {
            Some((name, ..)) => {
                waiting.facts.insert(name, Fact { errand, is_out: false });
                waiting.order.push_back(name);
                self.facts.store(waiting.facts.len(), Ordering::Release);
            }
            None => waiting.others.push_back(errand),
        }
        Pushed::Waits
    }

    /// Whether something else waits under this name.
    pub(super) fn holds_other(&self, once: &Once<'_>) -> bool {
        if self.facts.load(Ordering::Acquire) == 0 {
            return false;
        }
        let name = owned::name_of(once, None);
        self.waiting().facts.get(&name).is_some_and(|known| known.errand.body() != Some(once.body))
    }

    /// These facts were told: the same need not wait any longer.
    pub(super) fn forget(&self, once: &Once<'_>, part: Option<u128>) {
        if self.facts.load(Ordering::Acquire) > 0 {
            self.forget_name(owned::name_of(once, part));
        }
    }

    /// The same for those that were taken, also if they never will be told.
    pub(super) fn forget_errand(&self, errand: &Errand) {
        if let Deed::Facts(named) = &errand.deed {
            self.forget_name(named.name());
        }
    }

    fn forget_name(&self, name: u128) {
        let mut waiting = self.waiting();
        if let Some(known) = waiting.facts.remove(&name) {
            if !known.is_out {
                waiting.order.retain(|other| *other != name);
            }
            self.facts.store(waiting.facts.len(), Ordering::Release);
        }
    }

    /// The next ones, at most so many: of both kinds, so that none of them holds the other up. Facts wait on until they are forgotten;
    /// whoever could not tell them pushes them again.
    pub(super) fn take(&self, most: usize) -> Vec<Errand> {
        let mut waiting = self.waiting();
        let facts = waiting.order.len().min((most / 2).max(most.saturating_sub(waiting.others.len())));
        let others = waiting.others.len().min(most - facts);
        let names: Vec<u128> = waiting.order.drain(..facts).collect();
        let mut taken = Vec::with_capacity(facts + others);
        for name in names {
            if let Some(fact) = waiting.facts.get_mut(&name) {
                fact.is_out = true;
                taken.push(fact.errand.clone());
            }
        }
        taken.extend(waiting.others.drain(..others));
        taken
    }

    pub(super) fn len(&self) -> usize {
        self.waiting().len()
    }

    pub(super) fn drop_one(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn len(&self) -> usize {
        self.others.len() + self.facts.len()
    }
}

#[cfg(test)]
mod tests {
    use smallvec::{SmallVec, smallvec};
    use tollgate_core::key::Home;
    use tollgate_core::{Claim, ClaimId, Key, Once, Scope, Span, Timestamp, Value};

    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_000);
    const KEEP: Span = Span::from_secs(60);

    fn bare(id: u128) -> Errand {
        Errand { id: ClaimId(id), charges: Vec::new(), deed: Deed::Bare, until: Timestamp::MAX }
    }

    fn facts(name: &str, body: u64, unsure: Option<Timestamp>) -> Errand {
        let scope = Scope::of_records("d", "records", Home::Own);
        let once = Once { key: Key::new(&scope, smallvec![Value::Text(name)]), body, terms: 0, keep: KEEP };
        let claim = Claim { id: ClaimId(1), charges: SmallVec::new(), once: None, patience: None };
        let mut errand = Errand::facts(&claim, &once, None, START);
        errand.doubt(unsure);
        errand
    }

    #[test]
    fn what_comes_past_the_bound_is_dropped_and_counted() {
        let errands = Errands::default();
        for id in 0..MOST_WAITING as u128 + 3 {
            errands.push(bare(id));
        }
        assert_eq!((errands.len(), errands.dropped()), (MOST_WAITING, 3));
        assert_eq!((errands.push(facts("a", 1, None)), errands.dropped()), (Pushed::Dropped, 4));
        let first: Vec<u128> = errands.take(2).iter().map(|errand| errand.id.0).collect();
        assert_eq!((first, errands.len()), (vec![0, 1], MOST_WAITING - 2));
        assert_eq!(errands.take(usize::MAX).len(), MOST_WAITING - 2);
    }

    #[test]
    fn the_same_facts_wait_once() {
        let errands = Errands::default();
        assert_eq!(errands.push(facts("a", 1, None)), Pushed::Waits);
        assert_eq!(errands.push(facts("a", 1, Some(START.after(KEEP)))), Pushed::Waits);
        assert_eq!(errands.push(facts("a", 1, Some(START))), Pushed::Waits);
        assert_eq!(errands.push(facts("a", 2, None)), Pushed::Conflicts);
        assert_eq!(errands.push(facts("b", 2, None)), Pushed::Waits);
        assert_eq!((errands.len(), errands.dropped()), (2, 0));
        let taken = errands.take(10);
        let told: Vec<_> = taken
            .iter()
            .map(|errand| match &errand.deed {
                Deed::Facts(named) => (named.body, named.unsure),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(told, [(1, Some(START)), (2, None)], "the first doubt counts");
        // While they are told they wait on, but nobody else tells them.
        assert_eq!((errands.len(), errands.take(10).len()), (2, 0));
        assert_eq!(errands.push(facts("a", 2, None)), Pushed::Conflicts);
        assert_eq!(errands.push(facts("b", 2, None)), Pushed::Waits, "it could not be told");
        assert_eq!((errands.len(), errands.take(10).len()), (2, 1));
    }

    #[test]
    fn what_was_told_waits_no_longer() {
        let errands = Errands::default();
        let scope = Scope::of_records("d", "records", Home::Own);
        let once =
            |name, body| Once { key: Key::new(&scope, smallvec![Value::Text(name)]), body, terms: 0, keep: KEEP };
        assert!(!errands.holds_other(&once("a", 1)));
        for name in ["a", "b", "c"] {
            errands.push(facts(name, 1, None));
        }
        assert!(!errands.holds_other(&once("a", 1)) && errands.holds_other(&once("a", 2)));
        errands.forget(&once("b", 1), Some(7));
        assert_eq!(errands.len(), 3, "a part is not the whole");
        errands.forget(&once("b", 1), None);
        errands.forget(&once("d", 1), None);
        assert!(!errands.holds_other(&once("b", 2)));
        assert_eq!((errands.take(1).len(), errands.len()), (1, 2));
        errands.forget(&once("a", 1), None);
        errands.forget(&once("c", 1), None);
        assert!(!errands.holds_other(&once("a", 2)));
        assert_eq!((errands.take(10).len(), errands.len()), (0, 0));
    }

    #[test]
    fn neither_kind_holds_the_other_up() {
        let errands = Errands::default();
        for id in 0..100 {
            errands.push(bare(id));
            errands.push(facts(&id.to_string(), 1, None));
        }
        let count = |taken: &[Errand]| taken.iter().filter(|errand| matches!(errand.deed, Deed::Facts(_))).count();
        let taken = errands.take(50);
        assert_eq!((taken.len(), count(&taken)), (50, 25));
        let taken = errands.take(130);
        assert_eq!((taken.len(), count(&taken)), (130, 65));
        let taken = errands.take(130);
        assert_eq!((taken.len(), count(&taken)), (20, 10));
    }

    #[test]
    fn what_may_have_been_told_is_told_again_only_while_its_record_lasts() {
        let at = |seconds: u64| START.after(Span::from_secs(seconds));
        let sure = facts("a", 1, None);
        assert!(sure.may_be_told(at(59)) && !sure.is_over(at(59)) && sure.is_over(at(60)));
        let mut unsure = facts("a", 1, Some(START));
        unsure.until = Timestamp::MAX;
        assert!(unsure.may_be_told(at(29)) && !unsure.may_be_told(at(30)));
        assert!(!unsure.is_over(at(59)) && unsure.is_over(at(60)));
    }
}
