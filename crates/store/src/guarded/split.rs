//! A claim whose keys live in several places: settled in parts, at the same time, all or nothing.
//!
//! Each part takes what it has room for. If the claim as a whole does not pass, what was taken is given back: for an instant less
//! is admitted than could be, never more. What can't be given back in time waits among the errands, also if the caller goes away
//! meanwhile; a give-back whose outcome is not known is not repeated.

use std::time::Duration;

use smallvec::{SmallVec, smallvec};
use tollgate_core::{Ask, Claim, Key, Mode, Once, Reading, Replay, Settlement, Span, Timestamp, Verdict, Wait};

use super::Guarded;
use super::owned::{Errand, Pronounced};
use super::policy::{self, Absent, Charges, Silence};
use super::status::Why;
use super::together::together;
use crate::clock::Clock;
use crate::sharded::{Failure, Place, Record, Sharded};

/// Where the keys of a claim live.
pub(super) enum Places {
    None,
    One(Place),
    /// The home of the record comes first, if the claim is settled once.
    Several(SmallVec<[(Place, Charges); 2]>),
}

/// What is asked of one place.
struct Part<'a> {
    place: Place,
    /// Which charges of the claim live there.
    charges: Charges,
    claim: Claim<'a>,
    settlement: Settlement,
    outcome: Outcome,
}

#[derive(PartialEq, Eq)]
enum Outcome {
    /// Not known yet.
    Unknown,
    /// Its shard is away: it is not asked.
    Away,
    Settled,
    Failed(Failure),
}

/// What a part took, on its way back.
struct GiveBack<'p, 'a> {
    part: &'p Part<'a>,
    /// Which charges of the claim took something.
    took: Charges,
    claim: Claim<'a>,
    settlement: Settlement,
}

/// A claim that is being settled in parts.
struct Split<'g, 'a, S: Sharded, C: Clock> {
    guard: &'g Guarded<S, C>,
    claim: &'g Claim<'a>,
    parts: SmallVec<[Part<'a>; 2]>,
    absent: Absent,
    readings: SmallVec<[Reading; 4]>,
    /// What was taken must be given back, unless the claim passes.
    unsettled: bool,
}

impl Places {
    pub(super) fn of<S: Sharded>(store: &S, claim: &Claim<'_>) -> Places {
        let mut one: Option<(Place, &Key<'_>)> = None;
        let keys = claim.once.iter().map(|once| &once.key).chain(claim.charges.iter().map(|charge| &charge.key));
        for key in keys {
            match one {
                None => one = Some((store.place(key), key)),
                Some((_, first)) if key.is_beside(first) => {}
                Some((place, _)) if store.place(key) == place => {}
                Some(_) => return Places::several(store, claim),
            }
        }
        one.map_or(Places::None, |(place, _)| Places::One(place))
    }

    #[cold]
    fn several<S: Sharded>(store: &S, claim: &Claim<'_>) -> Places {
        let home = claim.once.as_ref().map(|once| (store.place(&once.key), Charges::new()));
        let mut places: SmallVec<[(Place, Charges); 2]> = home.into_iter().collect();
        for (at, charge) in claim.charges.iter().enumerate() {
            let place = store.place(&charge.key);
            match places.iter_mut().find(|(known, _)| *known == place) {
                Some((_, charges)) => charges.push(at),
                None => places.push((place, smallvec![at])),
            }
        }
        Places::Several(places)
    }
}

impl<S: Sharded, C: Clock> Guarded<S, C> {
    pub(super) async fn settle_split(
        &self,
        claim: &Claim<'_>,
        places: SmallVec<[(Place, Charges); 2]>,
        within: Duration,
        settlement: &mut Settlement,
    ) {
        let began = self.clock.now();
        policy::prepare(claim, began, settlement);
        let mut split = Split::new(self, claim, places, std::mem::take(&mut settlement.readings));
        split.stand_in_for_open(began);
        if let Some(once) = &claim.once
            && split.settle_home(once, within, settlement).await
        {
            return;
        }
        split.settle_rest(self.left(within, began)).await;
        settlement.at = split.settled_at().unwrap_or(began);
        if !split.decide() {
            split.give_back(self.left(within, began)).await;
        }
        settlement.readings = std::mem::take(&mut split.readings);
        if let (Some(once), Some(place)) =
            (claim.once.as_ref().filter(|once| once.keep > Span::ZERO), split.recorded_at())
        {
            self.pronounce(place, claim, once, settlement, self.left(within, began)).await;
        }
    }

    async fn settle_part(&self, part: &mut Part<'_>, left: Duration) {
        part.outcome = match self.ask(part.place, &part.claim, Record::Whole, left, &mut part.settlement).await {
            Ok(()) => Outcome::Settled,
            Err(failure) => Outcome::Failed(failure),
        };
    }

    async fn give_back(&self, it: &mut GiveBack<'_, '_>, left: Duration) {
        if self.ask(it.part.place, &it.claim, Record::Whole, left, &mut it.settlement).await.is_err() {
            self.errands.drop_one();
        }
    }

    /// Writes the verdict on a claim that is settled once: a refusal for no longer than its wait.
    async fn pronounce<'a>(
        &self,
        place: Place,
        claim: &Claim<'a>,
        once: &Once<'a>,
        settlement: &Settlement,
        left: Option<Duration>,
    ) {
        let verdict = Verdict::reach(claim, settlement);
        let keep = match verdict.wait {
            Wait::For(wait) if !verdict.allowed => wait.min(once.keep),
            _ => once.keep,
        };
        let Some(left) = left else {
            let pronounced = Pronounced::of(once, settlement, verdict.allowed, keep);
            self.errands.push(Errand::pronounce(claim.id, pronounced, self.clock.now()));
            return;
        };
        let written = Claim { once: Some(once.clone()), ..policy::part_of(claim, &[]) };
        let record = Record::Verdict { settlement, passed: verdict.allowed, keep };
        // Whether it failed is known to the breaker; a record that stays pending is asked for again.
        let _ = self.ask(place, &written, record, left, &mut Settlement::default()).await;
    }
}

impl<'g, 'a, S: Sharded, C: Clock> Split<'g, 'a, S, C> {
    fn new(
        guard: &'g Guarded<S, C>,
        claim: &'g Claim<'a>,
        places: SmallVec<[(Place, Charges); 2]>,
        readings: SmallVec<[Reading; 4]>,
    ) -> Self {
        let part = |(place, charges): (Place, Charges)| {
            let claim = policy::part_of(claim, &charges);
            Part { place, charges, claim, settlement: Settlement::default(), outcome: Outcome::Unknown }
        };
        let parts = places.into_iter().map(part).collect();
        Split { guard, claim, parts, absent: Absent::default(), readings, unsettled: true }
    }

    /// Answers for the shards that are known to be away. If the claim can't pass for their sake, the others are only looked at,
    /// so that nothing has to be given back.
    fn stand_in_for_open(&mut self, now: Timestamp) {
        let mut is_lost = false;
        for part in &mut self.parts {
            let shard = part.place.shard;
            if self.guard.breakers.of(shard).is_closed() {
                continue;
            }
            part.outcome = Outcome::Away;
            let silence = Silence { why: Why::Open, source: None, wait: self.guard.next_try(Some(shard), now) };
            self.guard.stand_in(self.claim, &part.charges, silence, now, &mut self.absent, &mut self.readings);
            is_lost |= refuses(self.claim, &part.charges, &self.readings);
        }
        if is_lost {
            self.only_look();
        }
    }

    /// Settles the part in the place of the record. Whether that answered the whole claim, because it was settled before.
    async fn settle_home(&mut self, once: &Once<'a>, within: Duration, settlement: &mut Settlement) -> bool {
        let Some(home) = self.parts.first_mut().filter(|home| home.outcome == Outcome::Unknown) else { return false };
        home.claim.once = Some(once.clone());
        let pending = Record::Pending;
        let answer = self.guard.ask_patiently(home.place, &home.claim, pending, within, &mut home.settlement).await;
        match answer {
            Ok(()) if home.settlement.replay != Replay::First => {
                settlement.clone_from(&home.settlement);
                if settlement.replay == Replay::Conflict {
                    policy::conflict(self.claim, settlement);
                }
                return true;
            }
            Ok(()) => home.outcome = Outcome::Settled,
            Err(Failure::Pending) => {
                policy::refuse_for_now(self.claim, self.guard.clock.now(), settlement);
                return true;
            }
            Err(failure) => home.outcome = Outcome::Failed(failure),
        }
        if !policy::vote(&home.claim, &home.settlement.readings) {
            self.only_look();
        }
        false
    }

    /// Settles the other parts, if there is time.
    async fn settle_rest(&mut self, left: Option<Duration>) {
        let guard = self.guard;
        let rest = self.parts.iter_mut().filter(|part| part.outcome == Outcome::Unknown);
        let Some(left) = left else {
            return rest.for_each(|part| part.outcome = Outcome::Failed(Failure::Timeout));
        };
        together(rest.map(|part| guard.settle_part(part, left))).await;
    }

    /// Gathers the readings, stands in for what failed, and counts the votes.
    fn decide(&mut self) -> bool {
        let now = self.guard.clock.now();
        for part in &self.parts {
            match &part.outcome {
                Outcome::Settled => {
                    for (at, reading) in part.charges.iter().zip(&part.settlement.readings) {
                        self.readings[*at] = *reading;
                    }
                }
                Outcome::Failed(failure) => {
                    let wait = self.guard.next_try(Some(part.place.shard), now);
                    let silence = Silence { why: Why::of(failure), source: None, wait };
                    self.guard.stand_in(self.claim, &part.charges, silence, now, &mut self.absent, &mut self.readings);
                }
                Outcome::Unknown | Outcome::Away => {}
            }
        }
        let passes = self.guard.decide(self.claim, &mut self.absent, &mut self.readings);
        if !passes {
            // A part that had room did not know that.
            self.readings.iter_mut().for_each(|reading| reading.delay = Span::ZERO);
        }
        self.unsettled = !passes;
        passes
    }

    /// Gives back what was taken, now or, if there is no time, later.
    async fn give_back(&mut self, left: Option<Duration>) {
        let settled = self.parts.iter().filter(|part| part.outcome == Outcome::Settled);
        let mut returns: Vec<GiveBack<'_, 'a>> = settled.filter_map(Part::give_back).collect();
        if let Some(left) = left {
            let guard = self.guard;
            self.unsettled = false;
            together(returns.iter_mut().map(|it| guard.give_back(it, left))).await;
        }
        for it in returns {
            let returned = it.settlement.readings.into_iter().map(Some).chain(std::iter::repeat(None));
            policy::given_back(self.claim, &it.took, returned, &mut self.readings);
        }
    }

    /// Takes no units where nothing was asked yet.
    fn only_look(&mut self) {
        for part in self.parts.iter_mut().filter(|part| part.outcome == Outcome::Unknown) {
            let asks = part.claim.charges.iter_mut().filter(|charge| matches!(charge.ask, Ask::Exactly | Ask::UpTo));
            asks.for_each(|charge| charge.units = 0);
        }
    }

    /// When the claim was settled, by the clock of the first place that did.
    fn settled_at(&self) -> Option<Timestamp> {
        self.parts.iter().find(|part| part.outcome == Outcome::Settled).map(|part| part.settlement.at)
    }

    /// Where a record of it is pending.
    fn recorded_at(&self) -> Option<Place> {
        self.parts.first().filter(|home| home.outcome == Outcome::Settled).map(|home| home.place)
    }
}

impl<'a> Part<'a> {
    /// What gives back what was taken there, if anything was.
    fn give_back(&self) -> Option<GiveBack<'_, 'a>> {
        let answered: Charges = (0..self.settlement.readings.len().min(self.charges.len())).collect();
        let (took, claim) = policy::giving_back(&self.claim, &answered, &self.settlement.readings, self.settlement.at);
        let took: Charges = took.into_iter().map(|at| self.charges[at]).collect();
        (!took.is_empty()).then(|| GiveBack { part: self, took, claim, settlement: Settlement::default() })
    }
}

impl<S: Sharded, C: Clock> Drop for Split<'_, '_, S, C> {
    /// There was no time to give back what was taken, or the caller went away.
    fn drop(&mut self) {
        if !self.unsettled {
            return;
        }
        let now = self.guard.clock.now();
        for part in self.parts.iter().filter(|part| part.outcome == Outcome::Settled) {
            if let Some(it) = part.give_back() {
                self.guard.errands.push(Errand::of(&it.claim, now));
            }
        }
        if !self.readings.is_empty() {
            self.guard.forget(self.claim, &mut self.absent, &mut self.readings);
        }
    }
}

/// Whether one of these charges stops the claim.
fn refuses(claim: &Claim<'_>, charges: &[usize], readings: &[Reading]) -> bool {
    charges.iter().any(|at| {
        let charge = &claim.charges[*at];
        charge.ask == Ask::Exactly && charge.mode == Mode::Enforce && !readings[*at].admits
    })
}
