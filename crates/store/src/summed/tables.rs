//! The counters of a server, and the steps of claims, reports and answers through them. No I/O, no clock: time is an argument.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tollgate_core::key::HashSecret;
use tollgate_core::{
    Ask, Charge, Claim, ClaimId, Key, Limit, OwnedKey, Reading, Settlement, Shortcuts, Source, StateSlot, Timestamp,
    Wait, settle_into,
};

use super::counter::Counter;
use super::report::{KeyCount, Note, OtherReports, Report};
use super::status::{SummedCounter, SummedStatus};
use super::{IDLE_AFTER, MAX_COUNTERS, MAX_NOTES, MAX_NOTES_OF_REPORT, STALE_AFTER};
use crate::clock::Steady;

/// All summed counters of a server.
#[derive(Debug)]
pub struct Tables {
    secret: HashSecret,
    /// The number of servers among which limits are divided while the sums are unknown.
    servers: AtomicU64,
    counters: Mutex<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    by_hash: HashMap<u128, Counter, foldhash::fast::RandomState>,
    /// When the last report was made that was answered.
    answered: Option<Steady>,
    /// The servers that publish, by that answer.
    publishing: u64,
    /// Whether the last report had counts, so that the next one must withdraw them.
    is_published: bool,
    /// Oldest first.
    notes: VecDeque<PendingNote>,
    dropped_notes: u64,
    without_place: u64,
}

/// A note whose key may have no digest yet.
#[derive(Debug)]
enum PendingNote {
    Ready(Note),
    OfKey(OwnedKey, fn(u128, ClaimId) -> Note, ClaimId),
}

/// The counters that a claim uses.
#[derive(Debug, Default)]
struct LentCounters {
    charges: SmallVec<[LentCharge; 4]>,
    slots: SmallVec<[StateSlot; 4]>,
    has_new: bool,
}

/// A charge as this server settles it.
#[derive(Debug)]
struct LentCharge {
    hash: u128,
    /// What the limit leaves to this server.
    limit: Limit,
    /// What that rests on.
    source: Source,
    ask: Ask,
    units: u64,
    /// Whether the claim had its hold before.
    held_before: bool,
    /// Whether it renews a hold that is another server's, or has expired.
    is_away: bool,
}

/// What is needed to lend a counter.
#[derive(Clone, Copy)]
struct Lending<'c, 'a> {
    claim: &'c Claim<'a>,
    charge: &'c Charge<'a>,
    is_renewal: bool,
    servers: u64,
    steady: Steady,
}

/// What a claim did with the counters of this server.
#[derive(Debug, Default)]
pub(super) struct SettledHere {
    /// Whether some counter is new here.
    pub(super) has_new: bool,
    /// Whether each charge's claim had its hold before.
    pub(super) held_before: SmallVec<[bool; 4]>,
}

impl Tables {
    /// No counters yet. The secret is that of the hash by which they are found.
    pub fn new(secret: HashSecret) -> Tables {
        Tables { secret, servers: AtomicU64::new(1), counters: Mutex::default() }
    }

    /// The number of servers among which limits are divided while the sums are unknown.
    pub fn set_servers(&self, servers: u64) {
        self.servers.store(servers.max(1), Ordering::Relaxed);
    }

    /// Which charges of a claim are counted here: those that say so, as far as there is a place for their counters.
    pub(super) fn places(&self, claim: &Claim<'_>) -> SmallVec<[bool; 4]> {
        let mut counters = self.lock();
        let mut left = MAX_COUNTERS.saturating_sub(counters.by_hash.len());
        let places = claim.charges.iter().map(|charge| {
            if charge.shortcuts != Shortcuts::Summed {
                return false;
            }
            let has_place = counters.by_hash.contains_key(&self.hash(&charge.key)) || left > 0;
            if !has_place {
                counters.without_place += 1;
            }
            left = left.saturating_sub(1);
            has_place
        });
        places.collect()
    }

    /// Settles a claim of which all charges are counted here. A renewal extends holds, and takes none.
    pub(super) fn settle(
        &self,
        claim: &Claim<'_>,
        is_renewal: bool,
        now: Timestamp,
        steady: Steady,
        settlement: &mut Settlement,
    ) -> SettledHere {
        let mut counters = self.lock();
        let servers = self.servers.load(Ordering::Relaxed).max(counters.publishing);
        let mut lent = LentCounters::default();
        for charge in &claim.charges {
            let hash = self.hash(&charge.key);
            lent.add(&mut counters, hash, Lending { claim, charge, is_renewal, servers, steady });
        }
        let charges = claim.charges.iter().zip(&lent.charges).map(|(charge, lent)| Charge {
            // The same key with a lifetime that may be as short as that of the limit.
            key: Key::new(charge.key.scope(), charge.key.values().iter().copied().collect()),
            limit: &lent.limit,
            ask: lent.ask,
            units: lent.units,
            mode: charge.mode,
            on_failure: charge.on_failure,
            shortcuts: charge.shortcuts,
        });
        let part = Claim { id: claim.id, charges: charges.collect(), once: None, timeout: None };
        settle_into(&part, &mut lent.slots, now, settlement);
        drop(part);
        for (at, slot) in lent.slots.into_iter().enumerate() {
            let hash = lent.charges[at].hash;
            if !lent.charges[..at].iter().any(|earlier| earlier.hash == hash)
                && let Some(counter) = counters.by_hash.get_mut(&hash)
            {
                counter.take_back(slot);
            }
        }
        let settled = claim.charges.iter().zip(&lent.charges).zip(&mut settlement.readings);
        for ((charge, lent), reading) in settled {
            counters.finish(claim, charge, lent, reading);
        }
        SettledHere { has_new: lent.has_new, held_before: lent.charges.iter().map(|lent| lent.held_before).collect() }
    }

    /// Returns holds of a claim that did not pass: of the charges that took one, and had none before.
    pub(super) fn give_back(&self, claim: &Claim<'_>, is_taken: impl Fn(usize) -> bool, now: Timestamp) {
        let mut counters = self.lock();
        for (_, charge) in claim.charges.iter().enumerate().filter(|(at, _)| is_taken(*at)) {
            if let Some(counter) = counters.by_hash.get_mut(&self.hash(&charge.key)) {
                counter.apply(Note::Release { key: 0, by: claim.id }, now);
            }
        }
    }

    /// What is to be published. `None` if there is nothing, and nothing to withdraw.
    pub fn report(&self, now: Timestamp, steady: Steady, digest: impl Fn(&Key<'_>) -> Option<u128>) -> Option<Report> {
        let mut counters = self.lock();
        counters.by_hash.retain(|_, counter| steady.since(counter.used_at) < IDLE_AFTER || counter.here(now) > 0);
        if counters.by_hash.is_empty() && counters.notes.is_empty() && !counters.is_published {
            // What was answered long ago says nothing about the next counter.
            counters.answered = None;
            return None;
        }
        let mut report = Report::default();
        for counter in counters.by_hash.values_mut() {
            counter.digest = digest(&counter.key.key());
            let in_flight = u32::try_from(counter.here(now)).unwrap_or(u32::MAX);
            if let Some(key) = counter.digest.filter(|_| in_flight > 0) {
                report.counts.push(KeyCount { key, in_flight });
            }
        }
        let count = counters.notes.len().min(MAX_NOTES_OF_REPORT);
        let notes: Vec<PendingNote> = counters.notes.drain(..count).collect();
        report.notes = notes
            .into_iter()
            .filter_map(|note| match note {
                PendingNote::Ready(note) => Some(note),
                PendingNote::OfKey(key, make, by) => Some(make(digest(&key.key())?, by)),
            })
            .collect();
        counters.is_published = !report.counts.is_empty();
        Some(report)
    }

    /// The answer to a report that was made at `sent`.
    pub fn receive(&self, now: Timestamp, sent: Steady, answer: &OtherReports) {
        let mut sums: HashMap<u128, u64, foldhash::fast::RandomState> = HashMap::default();
        for count in answer.reports.iter().flatten() {
            let sum = sums.entry(count.key).or_default();
            *sum = sum.saturating_add(u64::from(count.in_flight));
        }
        let mut counters = self.lock();
        let Counters { by_hash, answered, publishing, .. } = &mut *counters;
        if answered.is_some_and(|answered| answered > sent) {
            return;
        }
        (*answered, *publishing) = (Some(sent), answer.reports.len() as u64 + 1);
        for counter in by_hash.values_mut() {
            let Some(digest) = counter.digest else { continue };
            counter.others = Some(sums.get(&digest).copied().unwrap_or(0));
        }
        for note in &answer.notes {
            let (Note::Release { key, .. } | Note::Renew { key, .. } | Note::Reset { key }) = *note;
            if let Some(counter) = by_hash.values_mut().find(|counter| counter.digest == Some(key)) {
                counter.apply(*note, now);
            }
        }
    }

    /// Publishes notes again whose report was not answered.
    pub fn put_back(&self, notes: Vec<Note>) {
        let mut counters = self.lock();
        for note in notes.into_iter().rev() {
            if counters.notes.len() >= MAX_NOTES {
                counters.dropped_notes += 1;
            } else {
                counters.notes.push_front(PendingNote::Ready(note));
            }
        }
    }

    /// What is counted.
    pub fn status(&self, now: Timestamp, steady: Steady) -> SummedStatus {
        let mut counters = self.lock();
        let Counters { by_hash, answered, publishing, dropped_notes, without_place, .. } = &mut *counters;
        let counter = |counter: &mut Counter| SummedCounter {
            key: counter.key.clone(),
            here: counter.here(now),
            others: counter.others,
        };
        SummedStatus {
            is_stale: !by_hash.is_empty() && !answered.is_some_and(|answered| is_fresh(answered, steady)),
            counters: by_hash.values_mut().map(counter).collect(),
            age: answered.map(|answered| steady.since(answered)),
            servers: *publishing,
            dropped_notes: *dropped_notes,
            without_place: *without_place,
        }
    }

    fn hash(&self, key: &Key<'_>) -> u128 {
        key.hash(self.secret, key.partition(self.secret))
    }

    fn lock(&self) -> MutexGuard<'_, Counters> {
        // A panic while a claim is settled leaves fresh states behind, which are valid.
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LentCounters {
    fn add(&mut self, counters: &mut Counters, hash: u128, lending: Lending<'_, '_>) {
        let Lending { claim, charge, is_renewal, servers, steady } = lending;
        let Counters { by_hash, answered, .. } = counters;
        let is_fresh = answered.is_some_and(|answered| is_fresh(answered, steady));
        let has_new = &mut self.has_new;
        let counter = by_hash.entry(hash).or_insert_with(|| {
            *has_new = true;
            Counter::new(&charge.key, charge.limit, steady)
        });
        let earlier = self.charges.iter().position(|earlier| earlier.hash == hash);
        let is_request = matches!(charge.ask, Ask::Exactly | Ask::UpTo) && charge.units > 0;
        let may_hold = is_request && (is_renewal || !claim.id.is_generated());
        let held_before = may_hold && counter.holds(claim.id);
        let (amount, source) = match counter.others.filter(|_| is_fresh) {
            Some(others) => (charge.limit.amount().saturating_sub(others), Source::Summed),
            None => (charge.limit.amount().div_ceil(servers), Source::Local),
        };
        let is_away = is_renewal && is_request && !held_before;
        let (ask, units) = match charge.ask {
            _ if is_away => (Ask::Exactly, 0),
            // An order is carried out now, on all servers, or not at all.
            Ask::Reset if source != Source::Summed && servers > 1 => (Ask::Exactly, 0),
            ask => (ask, charge.units),
        };
        self.slots.push(match earlier {
            Some(earlier) => StateSlot::same_as(earlier),
            None => counter.lend(charge.limit, steady),
        });
        let limit = charge.limit.with_amount(amount);
        self.charges.push(LentCharge { hash, limit, source, ask, units, held_before, is_away });
    }
}

impl Counters {
    /// Completes the reading of a charge, and notes what other servers must do.
    fn finish(&mut self, claim: &Claim<'_>, charge: &Charge<'_>, lent: &LentCharge, reading: &mut Reading) {
        reading.source = lent.source;
        match charge.ask {
            Ask::Return { .. } if reading.taken > 0 && claim.id.is_generated() => reading.source = Source::Summed,
            Ask::Return { .. } if charge.units > 0 => {
                reading.source = if reading.taken > 0 { Source::Summed } else { Source::Assumed };
                self.note(&charge.key, |key, by| Note::Release { key, by }, claim.id);
            }
            Ask::Reset if lent.ask == Ask::Reset => self.note(&charge.key, |key, _| Note::Reset { key }, claim.id),
            Ask::Reset => {
                *reading = Reading { source: lent.source, ..Reading::refusal(Wait::For(Reading::RETRY_AFTER)) };
            }
            Ask::Exactly if lent.is_away => {
                (reading.admits, reading.wait, reading.source) = (true, Wait::None, Source::Assumed);
                self.note(&charge.key, |key, by| Note::Renew { key, by }, claim.id);
            }
            // The others have all of it. When they end is not known.
            _ if !reading.admits && reading.wait == Wait::Forever && charge.limit.amount() > 0 => {
                reading.wait = Wait::For(Reading::RETRY_AFTER);
            }
            _ => {}
        }
    }

    fn note(&mut self, key: &Key<'_>, make: fn(u128, ClaimId) -> Note, by: ClaimId) {
        match self.notes.len() {
            MAX_NOTES.. => self.dropped_notes += 1,
            _ => self.notes.push_back(PendingNote::OfKey(key.into(), make, by)),
        }
    }
}

/// Whether the counts in the answer to a report may still be used.
fn is_fresh(answered: Steady, now: Steady) -> bool {
    now.since(answered) < STALE_AFTER
}
