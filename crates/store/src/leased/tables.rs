//! All pools of a server, and the steps of a claim through them. No I/O, no clock: time and randomness are arguments.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tollgate_core::key::HashSecret;
use tollgate_core::{
    Ask, Charge, Claim, Key, Mode, OwnedCharge, Reading, Replay, Settlement, Shortcuts, Source, Span, Timestamp,
};

use super::LeaseConfig;
use super::advance::Advances;
use super::call::{self, Call, Part, PoolPlace};
use super::demand::seconds;
use super::door::Door;
use super::errand::Errand;
use super::policy::LeasePolicy;
use super::pool::{Answer, Generation, Pool, PoolAnswer, Reserved};
use super::status::{HotKey, LeaseCounts, LeaseStatus};
use crate::clock::Steady;

/// The pools of all leased keys.
#[derive(Debug)]
pub struct Tables {
    secret: HashSecret,
    pub(super) policy: LeasePolicy,
    /// The most pools of a table.
    max_pools: usize,
    pub(super) tables: Box<[Mutex<Table>]>,
    /// Calls to make, oldest first.
    errands: Mutex<VecDeque<Errand>>,
    is_enabled: AtomicBool,
    /// The number of servers that share the store. Zero if it is unknown.
    pub(super) servers: AtomicU64,
    /// The store's clock less this server's, in microseconds, or [`UNKNOWN`].
    pub(super) clock_offset: AtomicI64,
    /// When the store last counted units that were spent in advance, in microseconds.
    pub(super) debited_at: AtomicU64,
}

/// The pools of a part of the keys.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) pools: HashMap<u128, Pool, foldhash::fast::RandomState>,
    /// The hashes of all pools, each once. A pool that was checked moves to the back.
    order: VecDeque<u128>,
    door: Door,
    pub(super) advances: Advances,
    pub(super) counts: LeaseCounts,
    /// The last generation of a pool.
    pub(super) generation: Generation,
}

/// What becomes of a claim.
#[derive(Debug)]
pub enum LeaseStep<'t, 'a> {
    /// The settlement has the answer. `has_errands` if the store is to be called for more units.
    Answered {
        /// Whether [`Tables::take_errands`] has something to return.
        has_errands: bool,
    },
    /// The store settles the claim as it is.
    Whole,
    /// The store settles a part of it.
    Call(Box<Call<'t, 'a>>),
}

/// What is found out while the charges of a claim are looked at.
#[derive(Debug, Default)]
struct Begun {
    has_errands: bool,
    /// The store's clock, by the first pool that knows it.
    at: Option<Timestamp>,
}

/// The offset of a clock that was never read.
pub(super) const UNKNOWN: i64 = i64::MIN;
/// The number of tables, each with its own lock. A power of two.
const TABLES: usize = 16;
/// The most errands that wait. Further ones are dropped: units that are not given back expire, and a pool without units
/// calls the store.
const MAX_ERRANDS: usize = 100_000;
/// A beat checks one of so many pools of each table: with beats every 50 ms, each pool four times a second …
const BEATS_OF_A_POOL: usize = 5;
/// … and not more than this.
const POOLS_OF_A_BEAT: usize = 256;

impl Tables {
    /// No pools yet. The secret is that of the hash by which pools are found.
    pub fn new(config: LeaseConfig, secret: HashSecret) -> Tables {
        Tables::with_policy(config, LeasePolicy::default(), secret)
    }

    /// The same with other constants, for the simulator.
    pub fn with_policy(config: LeaseConfig, policy: LeasePolicy, secret: HashSecret) -> Tables {
        Tables {
            secret,
            policy: LeasePolicy { max_time: seconds(config.time), ..policy },
            max_pools: config.keys.div_ceil(TABLES),
            tables: (0..TABLES).map(|_| Mutex::new(Table::new(config.keys.div_ceil(TABLES)))).collect(),
            errands: Mutex::default(),
            is_enabled: AtomicBool::new(true),
            servers: AtomicU64::new(0),
            clock_offset: AtomicI64::new(UNKNOWN),
            debited_at: AtomicU64::new(0),
        }
    }

    /// Begins a claim: answers it, or says what the store must settle.
    pub fn begin<'a>(&self, claim: &Claim<'a>, now: Steady, settlement: &mut Settlement) -> LeaseStep<'_, 'a> {
        if !self.is_enabled.load(Ordering::Relaxed) || !may_be_answered(claim) {
            return LeaseStep::Whole;
        }
        let mut begun = Begun::default();
        let mut parts = Parts::new();
        for charge in &claim.charges {
            let part = match self.pool_of(charge) {
                Some(pool) => self.part(pool, charge, now, &mut begun),
                None => Part::sent(None, 0),
            };
            match part {
                Part::Refused(reading) if charge.mode == Mode::Enforce => {
                    refuse(claim, parts.len(), reading, settlement);
                    call::abandon(self, &parts, now);
                    self.set_time(begun.at, now, settlement);
                    return LeaseStep::Answered { has_errands: begun.has_errands };
                }
                part => parts.push(part),
            }
        }
        // Most keys are rare: nothing is copied for them.
        if parts.iter().all(Part::is_whole) {
            return LeaseStep::Whole;
        }
        if parts.iter().any(Part::is_sent) {
            return LeaseStep::Call(Box::new(Call::new(self, claim, parts, now)));
        }
        call::answer(self, &parts, settlement);
        self.set_time(begun.at, now, settlement);
        LeaseStep::Answered { has_errands: begun.has_errands }
    }

    /// What one charge does: spends units, is refused, or goes to the store.
    fn part(&self, hash: u128, charge: &Charge<'_>, now: Steady, begun: &mut Begun) -> Part {
        let mut table = self.table(hash);
        let Table { pools, door, counts, order, advances, generation } = &mut *table;
        let pool = match pools.get_mut(&hash) {
            Some(pool) => pool,
            None => {
                let is_full = order.len() >= self.max_pools;
                let Some(busy) = door.knock(hash, now, &self.policy).filter(|_| !is_full) else {
                    let Shortcuts::Ahead(share) = charge.shortcuts else {
                        return Part::sent(None, 0);
                    };
                    return match self.reserve_in_advance(advances, hash, charge, share, now) {
                        Some(reading) => Part::Advanced { pool: hash, units: charge.units, reading },
                        // The store's answer says whether units may be spent in advance again.
                        None => Part::sent(Some(PoolPlace { hash, generation: Generation::default() }), 0),
                    };
                };
                order.push_back(hash);
                let pool = Pool::new(charge, now, busy.requests - 1, busy.time, generation.next());
                pools.entry(hash).or_insert(pool)
            }
        };
        if !pool.is_of(charge.limit) {
            let returns = pool.change_limit(charge.limit, now, generation.next());
            begun.has_errands |= self.push_returns(hash, returns, counts);
        }
        begun.at = begun.at.or_else(|| pool.store_time(now));
        pool.record(charge.units, now);
        let mut reserved = Reserved::default();
        match pool.answer(charge, now, &self.policy, &mut reserved) {
            PoolAnswer::Spent => {
                counts.spent += charge.units;
                counts.expired += pool.take_drained();
                let reading = pool.reading(true, charge.units, now);
                if let Some(charge) = pool.refill(now, &self.policy) {
                    counts.ahead += 1;
                    match self.push(Errand::refill(hash, charge, pool.generation())) {
                        true => begun.has_errands = true,
                        false => pool.fail_call(now, &self.policy),
                    }
                }
                Part::Held { pool: hash, generation: pool.generation(), units: charge.units, reserved, reading }
            }
            PoolAnswer::Refused => {
                counts.refused += 1;
                Part::Refused(pool.reading(false, charge.units, now))
            }
            PoolAnswer::Call { chunk } => {
                if let Shortcuts::Ahead(share) = charge.shortcuts
                    && let Some(reading) = self.reserve_in_advance(advances, hash, charge, share, now)
                {
                    return Part::Advanced { pool: hash, units: charge.units, reading };
                }
                counts.misses += 1;
                if chunk > 0 {
                    pool.begin_call(chunk);
                }
                Part::sent(Some(PoolPlace { hash, generation: pool.generation() }), chunk)
            }
        }
    }

    /// Background work: what is over or idle is given back, through [`take_errands`](Self::take_errands). To be called
    /// about every 50 ms.
    pub fn beat(&self, now: Steady) {
        let is_enabled = self.is_enabled.load(Ordering::Relaxed);
        self.send_debits(now);
        for table in &self.tables {
            let mut table = lock(table);
            table.advances.beat(now);
            let checked = match is_enabled {
                true => table.order.len().div_ceil(BEATS_OF_A_POOL).min(POOLS_OF_A_BEAT),
                false => table.order.len(),
            };
            for _ in 0..checked {
                let Table { pools, order, counts, generation, .. } = &mut *table;
                let Some(hash) = order.pop_front() else { break };
                let Some(pool) = pools.get_mut(&hash) else { continue };
                let is_idle = if is_enabled { pool.is_idle(now, &self.policy) } else { pool.is_unused(now) };
                let (returns, let_go) = match is_enabled {
                    // Also what calls in progress take, with a later beat.
                    false => pool.purge(now, generation.next()),
                    true if is_idle => pool.give_back(now),
                    true if pool.has_over(now) => pool.give_back_over(now),
                    true => Default::default(),
                };
                counts.expired += let_go;
                self.push_returns(hash, returns, counts);
                match is_idle {
                    true => drop(pools.remove(&hash)),
                    false => order.push_back(hash),
                }
            }
        }
    }

    /// Stops leasing, or begins again. When it stops, the next [`beat`](Self::beat) gives back everything.
    pub fn set_enabled(&self, is_enabled: bool) {
        self.is_enabled.store(is_enabled, Ordering::Relaxed);
    }

    /// Whether keys are leased.
    pub fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    /// Whether there are pools.
    pub fn has_keys(&self) -> bool {
        self.tables.iter().any(|table| {
            let table = lock(table);
            !table.pools.is_empty() || table.advances.len() > 0
        })
    }

    /// Calls to make now, at most `max`.
    pub fn take_errands(&self, max: usize) -> Vec<Errand> {
        let mut errands = lock(&self.errands);
        let count = errands.len().min(max);
        errands.drain(..count).collect()
    }

    /// The same for calls to this region, or to other regions. They are made apart, because others take longer.
    pub(super) fn take_errands_to(&self, is_here: bool, max: usize) -> Vec<Errand> {
        let mut errands = lock(&self.errands);
        let is_taken = |errand: &Errand| errand.charge.key.region().is_here() == is_here;
        let count = errands.iter().take_while(|errand| is_taken(errand)).take(max).count();
        if count == errands.len() || count == max {
            return errands.drain(..count).collect();
        }
        let (mut taken, mut others) = (Vec::new(), VecDeque::with_capacity(errands.len()));
        for errand in errands.drain(..) {
            match taken.len() < max && is_taken(&errand) {
                true => taken.push(errand),
                false => others.push_back(errand),
            }
        }
        *errands = others;
        taken
    }

    /// The answer to an errand that was sent at `sent` and took so long. `random` is from ½ to 1½.
    pub fn end_errand(&self, errand: &Errand, answer: &Settlement, sent: Steady, took: Span, random: f64) {
        if errand.is_debit() {
            return self.end_debit(errand, answer, sent, took, random);
        }
        let reading = answer.readings.first().filter(|reading| reading.source == Source::Store);
        let units = errand.charge.units;
        let mut table = self.table(errand.pool);
        match reading {
            Some(reading) if errand.is_refill() => {
                let (limit, generation) = (&errand.charge.limit, errand.generation);
                let chunk = Some((units, reading));
                let answer = Answer { charge: None, chunk, at: answer.at, sent, took, limit, generation };
                self.end_call(&mut table, errand.pool, &answer, random);
            }
            None if errand.is_refill() => table.fail_call(errand.pool, units, sent, &self.policy),
            Some(reading) => {
                table.counts.returned += reading.taken.min(units);
                table.counts.expired += units.saturating_sub(reading.taken);
                // There is room again.
                if let Some(pool) = table.pools.get_mut(&errand.pool) {
                    pool.end_pause();
                }
            }
            None => table.counts.lost += units,
        }
    }

    /// What is leased.
    pub fn status(&self, now: Steady, hot_keys: usize) -> LeaseStatus {
        let mut status = LeaseStatus { is_enabled: self.is_enabled(), ..LeaseStatus::default() };
        for table in &self.tables {
            let table = lock(table);
            status.counts.add(&table.counts);
            // While leases are off, pools only wait for what is to be put back.
            let is_enabled = status.is_enabled;
            let is_listed = |pool: &&Pool| is_enabled || pool.unspent() > 0;
            for pool in table.pools.values().filter(is_listed) {
                status.keys += 1;
                let (rate, chunk, local) = pool.figures(now);
                let held = pool.held(now);
                status.held += held;
                status.unspent += pool.unspent();
                status.insert(hot_keys, rate, || HotKey { key: pool.key().clone(), rate, chunk, held, local });
            }
        }
        status
    }

    /// Ends a call to the store: its pool receives the units that were taken ahead of demand, and learns.
    pub(super) fn end_call(&self, table: &mut Table, hash: u128, answer: &Answer<'_>, random: f64) {
        let Table { pools, counts, .. } = table;
        let pool = pools.get_mut(&hash);
        if let Some((requested, reading)) = answer.chunk {
            counts.taken += reading.taken;
            match &pool {
                None => counts.expired += reading.taken,
                Some(_) if reading.taken > requested => counts.impossible += reading.taken,
                Some(_) => {}
            }
        }
        if let Some(pool) = pool {
            let (dropped, returns) = pool.hear(answer, &self.policy, random);
            counts.expired += dropped;
            self.push_returns(hash, returns, counts);
        }
    }

    pub(super) fn push_returns(&self, pool: u128, returns: Vec<OwnedCharge>, counts: &mut LeaseCounts) -> bool {
        let mut pushed = false;
        for charge in returns {
            counts.back += 1;
            let units = charge.units;
            match self.push(Errand::give_back(pool, charge)) {
                true => pushed = true,
                false => counts.lost += units,
            }
        }
        pushed
    }

    /// Whether the errand will be run: not if too many wait.
    pub(super) fn push(&self, errand: Errand) -> bool {
        let mut errands = lock(&self.errands);
        let has_room = errands.len() < MAX_ERRANDS;
        if has_room {
            errands.push_back(errand);
        }
        has_room
    }

    /// Writes the store's clock into an answer, as a pool or any answer of the store has it.
    fn set_time(&self, heard: Option<Timestamp>, now: Steady, settlement: &mut Settlement) {
        let offset = self.clock_offset.load(Ordering::Relaxed);
        let known =
            || (offset != UNKNOWN).then(|| Timestamp::from_micros(now.as_micros().saturating_add_signed(offset)));
        if let Some(at) = heard.or_else(known) {
            settlement.at = at;
        }
    }

    /// The hash of a charge's pool, if its counter may be leased.
    pub(super) fn pool_of(&self, charge: &Charge<'_>) -> Option<u128> {
        let is_leasable = charge.shortcuts.has_leases();
        is_leasable.then(|| self.hash(&charge.key))
    }

    pub(super) fn hash(&self, key: &Key<'_>) -> u128 {
        key.local_hash(self.secret, key.partition(self.secret))
    }

    pub(super) fn table(&self, hash: u128) -> MutexGuard<'_, Table> {
        lock(&self.tables[hash as usize % TABLES])
    }
}

impl Table {
    fn new(max_keys: usize) -> Table {
        Table {
            pools: HashMap::default(),
            order: VecDeque::new(),
            door: Door::new(),
            advances: Advances::new(max_keys),
            counts: LeaseCounts::default(),
            generation: Generation::default(),
        }
    }

    /// Puts back units of a claim that did not pass.
    pub(super) fn put_back(&mut self, hash: u128, generation: Generation, units: u64, reserved: &Reserved) {
        self.counts.spent -= units;
        let pool = self.pools.get_mut(&hash);
        if !pool.is_some_and(|pool| pool.put_back(reserved, generation)) {
            self.counts.expired += units;
        }
    }

    /// Ends a call for units that were not taken, for a reason that has nothing to do with their counter.
    pub(super) fn abandon_call(&mut self, hash: u128) {
        if let Some(pool) = self.pools.get_mut(&hash) {
            pool.abandon_call();
        }
    }

    /// Ends a call for units that the store did not answer.
    pub(super) fn fail_call(&mut self, hash: u128, requested: u64, sent: Steady, policy: &LeasePolicy) {
        self.counts.unanswered += requested;
        if let Some(pool) = self.pools.get_mut(&hash) {
            pool.fail_call(sent, policy);
        }
    }
}

/// Whether a claim may be answered here: a request without an idempotency key, in which no alternative limits vote.
pub(super) fn may_be_answered(claim: &Claim<'_>) -> bool {
    let is_request = |charge: &Charge<'_>| charge.ask == Ask::Exactly && charge.units > 0 && charge.mode != Mode::AnyOf;
    claim.once.is_none()
        && claim.charges.iter().any(|charge| charge.shortcuts.has_leases())
        && claim.charges.iter().all(is_request)
}

/// Answers a claim that one charge refuses. The readings of the others are unknown and do not matter.
fn refuse(claim: &Claim<'_>, refusing: usize, reading: Reading, settlement: &mut Settlement) {
    settlement.readings.clear();
    settlement.readings.extend(claim.charges.iter().enumerate().map(|(at, charge)| match at == refusing {
        true => reading,
        false => Reading::unread(charge, Source::Lease),
    }));
    settlement.replay = Replay::First;
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The charges of most claims.
pub(super) type Parts = SmallVec<[Part; 2]>;
