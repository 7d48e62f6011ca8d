//! Claims that only record facts, once: receipts that are settled, debits and refunds under a name.
//!
//! Nothing is decided, so nothing has to wait for the store; and what was told once is not told twice, so it may be told again. Such a
//! claim is therefore never counted in local memory. If its shard is away, or does not answer, it waits among the errands, whole and
//! with its name, until it was told. Its readings are assumed meanwhile.
//!
//! In several places each part is settled once by itself. The part in the place of the record comes first, under the claim's own name:
//! it says whether something else was told before, and nothing is sent elsewhere without its word. The others are settled under names
//! made from that, beside their counters. Whoever repeats the claim, after a crash half way too, goes the same way, and finds done what
//! is done.
//!
//! What is guaranteed, for as long as a record is kept (`Once::keep`: for a receipt, the time within which it may be settled):
//!
//! - Twice is once, whoever repeats it, also if the outcome of the first try is not known.
//! - What was answered is told, while this server lives and the store comes back before it makes no difference. What may have been told
//!   already, since an answer was lost, is told again for half of `keep`; then nobody knows whether a record of it is still there, and
//!   it is dropped, and counted. So is what comes when too much waits.
//! - Something else under the same name is a conflict, also while the first waits here.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{Ask, Charge, Claim, Once, Reading, Replay, Settlement, Source, Span, Timestamp, Wait};

use super::Guarded;
use super::errands::Pushed;
use super::owned::{self, Errand};
use super::policy::{self, Charges};
use super::split::Places;
use super::together::together;
use crate::clock::Clock;
use crate::sharded::{Failure, Place, Record, Sharded};

/// Facts of one place on their way.
struct Part<'a> {
    place: Place,
    /// Which charges of the claim live there.
    charges: Charges,
    /// With the name under which it is settled once.
    claim: Claim<'a>,
    settlement: Settlement,
    told: Result<(), Untold>,
}

/// Facts that were not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Untold {
    /// The store has not heard of them.
    Surely,
    /// Nobody knows.
    Perhaps,
}

/// Facts that are being told. If whoever asks goes away meanwhile, they wait.
struct Telling<'g, 'a, S: Sharded, C: Clock> {
    guard: &'g Guarded<S, C>,
    what: What<'g, 'a>,
    since: Timestamp,
    is_over: bool,
}

enum What<'g, 'a> {
    Claim(&'g Claim<'a>, &'g Once<'a>),
    /// What waited before.
    Errand(&'g Errand),
}

/// The name of a claim that only records facts and is settled once, if it is one. A claim without charges records its name.
pub(super) fn named<'c, 'a>(claim: &'c Claim<'a>) -> Option<&'c Once<'a>> {
    let once = claim.once.as_ref().filter(|once| once.keep > Span::ZERO)?;
    claim.charges.iter().all(is_fact).then_some(once)
}

fn is_fact(charge: &Charge<'_>) -> bool {
    matches!(charge.ask, Ask::Regardless | Ask::Return { .. })
}

impl<S: Sharded, C: Clock> Guarded<S, C> {
    /// Settles such a claim, now or later.
    pub(super) async fn settle_facts<'a>(&self, claim: &Claim<'a>, once: &Once<'a>, settlement: &mut Settlement) {
        let since = self.clock.now();
        assume(claim, since, Source::Assumed, settlement);
        if self.errands.holds_other(once) {
            return policy::conflict(claim, settlement);
        }
        let mut telling = Telling { guard: self, what: What::Claim(claim, once), since, is_over: false };
        let told = match self.within(claim).filter(|_| !self.local.owes(claim)) {
            Some(within) => self.tell(claim, once, within, settlement).await,
            None => Err(Untold::Surely),
        };
        if telling.end(told) == Pushed::Conflicts {
            policy::conflict(claim, settlement);
        }
    }

    /// Answers such a claim without asking the store, which hears of it later.
    pub(super) fn put_off<'a>(&self, claim: &Claim<'a>, once: &Once<'a>, source: Source, settlement: &mut Settlement) {
        let since = self.clock.now();
        assume(claim, since, source, settlement);
        let mut telling = Telling { guard: self, what: What::Claim(claim, once), since, is_over: false };
        if telling.end(Err(Untold::Surely)) == Pushed::Conflicts {
            policy::conflict(claim, settlement);
        }
    }

    /// Tells facts that waited.
    pub(super) async fn tell_again(&self, errand: &Errand) {
        let (claim, since) = (errand.claim(), self.clock.now());
        let Some(once) = &claim.once else { return };
        let mut telling = Telling { guard: self, what: What::Errand(errand), since, is_over: false };
        let (deadline, mut settlement) = (self.config.deadline, Settlement::default());
        let told = match errand.record() {
            record @ Record::Part(_) => {
                self.tell_one(self.inner.place(&once.key), &claim, record, Some(deadline), &mut settlement).await
            }
            _ => {
                assume(&claim, since, Source::Assumed, &mut settlement);
                self.tell(&claim, once, deadline, &mut settlement).await
            }
        };
        telling.end(told);
    }

    /// Tells the facts of a claim to all places that they belong to. Fails if the place of its record was not told: then none was. What
    /// another place was not told waits.
    async fn tell<'a>(
        &self,
        claim: &Claim<'a>,
        once: &Once<'a>,
        within: Duration,
        settlement: &mut Settlement,
    ) -> Result<(), Untold> {
        let began = self.clock.now();
        let mut places = match Places::of(&self.inner, claim) {
            Places::None => return Ok(()),
            Places::One(place) => {
                let mut answer = Settlement::default();
                self.tell_one(place, claim, Record::Whole, Some(within), &mut answer).await?;
                *settlement = answer;
                return Ok(());
            }
            Places::Several(places) => places.into_iter(),
        };
        let Some((place, charges)) = places.next() else { return Ok(()) };
        let mut home = Part::new(claim, once.clone(), place, charges);
        self.tell_one(place, &home.claim, Record::Whole, Some(within), &mut home.settlement).await?;
        (settlement.at, settlement.replay) = (home.settlement.at, home.settlement.replay);
        let is_ours = home.read_into(settlement);
        match home.settlement.replay {
            Replay::Conflict => policy::conflict(claim, settlement),
            // It was told by other rules, which had other parts.
            Replay::Again { .. } if !is_ours => settlement.readings = home.settlement.readings,
            Replay::First | Replay::Again { .. } => {
                let part = |(place, charges): (Place, Charges)| {
                    let key = claim.charges[*charges.first()?].key.clone();
                    Some(Part::new(claim, Once { key, ..once.clone() }, place, charges))
                };
                let parts = places.filter_map(part).collect();
                self.tell_rest(parts, owned::name(&once.key), self.left(within, began), settlement).await;
            }
        }
        Ok(())
    }

    /// Tells the parts that do not live with the record of the claim with this name.
    async fn tell_rest(
        &self,
        mut parts: SmallVec<[Part<'_>; 2]>,
        name: u128,
        left: Option<Duration>,
        settlement: &mut Settlement,
    ) {
        let since = self.clock.now();
        together(parts.iter_mut().map(|part| async move {
            let Part { place, claim, settlement, told, .. } = part;
            *told = self.tell_one(*place, claim, Record::Part(name), left, settlement).await;
        }))
        .await;
        for part in &parts {
            let Some(once) = &part.claim.once else { continue };
            match part.told {
                Ok(()) => {
                    part.read_into(settlement);
                    self.errands.forget(once, Some(name));
                }
                Err(untold) => {
                    let mut errand = Errand::facts(&part.claim, once, Some(name), since);
                    errand.doubt(untold.since(since));
                    self.errands.push(errand);
                }
            }
        }
    }

    /// Tells facts to one place.
    async fn tell_one(
        &self,
        place: Place,
        claim: &Claim<'_>,
        record: Record<'_>,
        within: Option<Duration>,
        settlement: &mut Settlement,
    ) -> Result<(), Untold> {
        let within = within.filter(|_| self.breakers.of(place.shard).is_closed()).ok_or(Untold::Surely)?;
        match self.ask_patiently(place, claim, record, within, settlement).await {
            Ok(()) => Ok(()),
            Err(Failure::Pending) => Err(Untold::Surely),
            Err(_) => Err(Untold::Perhaps),
        }
    }
}

impl Untold {
    /// Since when nobody knows whether they were told, if they were asked for at this time.
    fn since(self, asked: Timestamp) -> Option<Timestamp> {
        match self {
            Untold::Surely => None,
            Untold::Perhaps => Some(asked),
        }
    }
}

impl<'a> Part<'a> {
    fn new(claim: &Claim<'a>, once: Once<'a>, place: Place, charges: Charges) -> Part<'a> {
        let claim = Claim { once: Some(once), ..policy::part_of(claim, &charges) };
        Part { place, charges, claim, settlement: Settlement::default(), told: Ok(()) }
    }

    /// Adds what was read here to the whole. Whether it can be: the readings of another time may be those of other rules.
    fn read_into(&self, settlement: &mut Settlement) -> bool {
        let is_ours = self.settlement.readings.len() == self.charges.len();
        if is_ours && self.settlement.replay != Replay::Conflict {
            for (at, reading) in self.charges.iter().zip(&self.settlement.readings) {
                settlement.readings[*at] = *reading;
            }
        }
        is_ours
    }
}

impl<S: Sharded, C: Clock> Telling<'_, '_, S, C> {
    /// It was told, and what waited of it need not be; or it has to wait.
    fn end(&mut self, told: Result<(), Untold>) -> Pushed {
        self.is_over = true;
        match (told, &self.what) {
            (Ok(()), What::Claim(_, once)) => self.guard.errands.forget(once, None),
            (Ok(()), What::Errand(errand)) => self.guard.errands.forget_errand(errand),
            (Err(untold), _) => return self.wait(untold),
        }
        Pushed::Waits
    }

    fn wait(&self, untold: Untold) -> Pushed {
        let mut errand = match self.what {
            What::Claim(claim, once) => Errand::facts(claim, once, None, self.since),
            What::Errand(errand) => errand.clone(),
        };
        errand.doubt(untold.since(self.since));
        self.guard.errands.push(errand)
    }
}

impl<S: Sharded, C: Clock> Drop for Telling<'_, '_, S, C> {
    fn drop(&mut self) {
        if !self.is_over {
            self.wait(Untold::Perhaps);
        }
    }
}

/// What facts read that nobody has heard of yet: they ask for no room.
fn assume(claim: &Claim<'_>, now: Timestamp, source: Source, settlement: &mut Settlement) {
    policy::prepare(claim, now, settlement);
    for reading in &mut settlement.readings {
        *reading = Reading { admits: true, wait: Wait::None, source, ..*reading };
    }
}
