//! All pools of a server, and the steps of a claim through them. No I/O, no clock: time and randomness are arguments.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tollgate_core::key::HashSecret;
use tollgate_core::{
    Ask, Charge, Claim, Key, Mode, OwnedCharge, Reading, Replay, Settlement, Shortcuts, Source, Timestamp,
};

use super::LeaseConfig;
use super::advance::{self, Advances};
use super::call::{Call, Part};
use super::demand::seconds;
use super::door::Door;
use super::errand::Errand;
use super::policy::LeasePolicy;
use super::pool::{Answer, Pool, PoolAnswer, Reserved};
use super::status::{HotKey, LeaseCounts, LeaseStatus, PurgedLeases};
use crate::clock::Steady;

/// The pools of all leased keys.
#[derive(Debug)]
pub struct Tables {
    secret: HashSecret,
    pub(super) policy: LeasePolicy,
    /// The most pools of a table.
    max_pools: usize,
    tables: Box<[Mutex<Table>]>,
    /// Calls to make, oldest first.
    errands: Mutex<VecDeque<Errand>>,
    is_enabled: AtomicBool,
    /// The number of servers that share the store. Zero if it is unknown.
    servers: AtomicU64,
    /// The store's clock less this server's, in microseconds, or [`UNKNOWN`].
    clock_offset: AtomicI64,
    /// When the store last counted units that were spent in advance, in microseconds.
    debited_at: AtomicU64,
}

/// The pools of a part of the keys.
#[derive(Debug)]
pub(super) struct Table {
    pools: HashMap<u128, Pool, foldhash::fast::RandomState>,
    /// The hashes of all pools, each once. A pool that was checked moves to the back.
    order: VecDeque<u128>,
    door: Door,
    pub(super) advances: Advances,
    pub(super) counts: LeaseCounts,
}

/// A change of a counter by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAdjustment {
    /// The counter is as if it had never been used: units that were taken before are void.
    Reset,
    /// The counter has more room.
    Credit,
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

/// The offset of a clock that was never read.
const UNKNOWN: i64 = i64::MIN;
/// The number of tables, each with its own lock. A power of two.
const TABLES: usize = 16;
/// The most errands that wait. Further ones are dropped: units that are not given back expire, and a pool without units
/// calls the store.
const MAX_ERRANDS: usize = 100_000;
/// The pools that a beat checks in each table: with beats every 50 ms, all of them in less than a second.
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
        let mut call = Call::new(self, claim, now);
        let mut has_errands = false;
        for charge in &claim.charges {
            let Some(pool) = self.pool_of(charge) else {
                call.send(charge, None, 0);
                continue;
            };
            match self.part(pool, charge, now, &mut has_errands) {
                Part::Refused(reading) if charge.mode == Mode::Enforce => {
                    refuse(claim, call.len(), reading, settlement);
                    call.abandon();
                    self.set_time(pool, now, settlement);
                    return LeaseStep::Answered { has_errands };
                }
                Part::Sent { pool, chunk, .. } => call.send(charge, pool, chunk),
                part => call.keep(part),
            }
        }
        if call.is_empty() {
            call.answer(settlement);
            if let Some(pool) = claim.charges.first().and_then(|charge| self.pool_of(charge)) {
                self.set_time(pool, now, settlement);
            }
            return LeaseStep::Answered { has_errands };
        }
        if call.is_whole() {
            return LeaseStep::Whole;
        }
        LeaseStep::Call(Box::new(call))
    }

    /// What one charge does: spends units, is refused, or goes to the store.
    fn part(&self, hash: u128, charge: &Charge<'_>, now: Steady, has_errands: &mut bool) -> Part {
        let mut table = self.table(hash);
        let Table { pools, door, counts, order, advances } = &mut *table;
        let pool = match pools.get_mut(&hash) {
            Some(pool) => pool,
            None => {
                let is_full = order.len() >= self.max_pools;
                let Some(busy) = door.knock(hash, now, &self.policy).filter(|_| !is_full) else {
                    let Shortcuts::Ahead(share) = charge.shortcuts else {
                        return Part::Sent { pool: None, at: 0, chunk: 0 };
                    };
                    return match self.reserve_in_advance(advances, hash, charge, share, now) {
                        Some(reading) => Part::Advanced { pool: hash, units: charge.units, reading },
                        // The store's answer says whether units may be spent in advance again.
                        None => Part::Sent { pool: Some(hash), at: 0, chunk: 0 },
                    };
                };
                order.push_back(hash);
                pools.entry(hash).or_insert(Pool::new(charge, now, busy.requests - 1, busy.time))
            }
        };
        if !pool.is_of(charge.limit) {
            let returns = pool.change_limit(charge.limit, now);
            *has_errands |= self.push_returns(hash, returns, counts);
        }
        pool.record(charge.units, now);
        let mut reserved = Reserved::default();
        match pool.answer(charge, now, &self.policy, &mut reserved) {
            PoolAnswer::Spent => {
                counts.spent += charge.units;
                counts.expired += pool.take_drained();
                let reading = pool.reading(true, charge.units, now);
                if let Some(charge) = pool.refill(now, &self.policy) {
                    counts.ahead += 1;
                    match self.push(Errand::new(hash, charge)) {
                        true => *has_errands = true,
                        false => pool.fail_call(now, &self.policy),
                    }
                }
                Part::Held { pool: hash, units: charge.units, reserved, reading }
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
                Part::Sent { pool: Some(hash), at: 0, chunk }
            }
        }
    }

    fn reserve_in_advance(
        &self,
        advances: &mut Advances,
        hash: u128,
        charge: &Charge<'_>,
        basis_points: u16,
        now: Steady,
    ) -> Option<Reading> {
        let is_timed = self.clock_offset.load(Ordering::Relaxed) != UNKNOWN;
        let shares = advance::shares(charge.limit, basis_points, self.servers.load(Ordering::Relaxed));
        if is_timed { advances.reserve(hash, charge, shares, now) } else { None }
    }

    /// Learns from the store's answer to a request.
    pub(super) fn hear(
        &self,
        table: &mut Table,
        hash: u128,
        charge: &Charge<'_>,
        reading: &Reading,
        at: Timestamp,
        sent: Steady,
    ) {
        let Shortcuts::Ahead(share) = charge.shortcuts else { return };
        self.set_clock(at, sent);
        let (part, _) = advance::shares(charge.limit, share, self.servers.load(Ordering::Relaxed));
        table.advances.hear(hash, charge, part, reading, sent);
    }

    fn set_clock(&self, at: Timestamp, now: Steady) {
        let offset = at.as_micros().cast_signed().saturating_sub(now.as_micros().cast_signed());
        self.clock_offset.store(offset, Ordering::Relaxed);
    }

    /// The number of servers that share the store. While it is unknown, nothing is spent before the store counts it.
    pub fn set_servers(&self, servers: u64) {
        self.servers.store(servers, Ordering::Relaxed);
    }

    /// Has the store count what was spent in advance.
    fn send_debits(&self, now: Steady) {
        let last = Steady::from_micros(self.debited_at.load(Ordering::Relaxed));
        if now.since(last) < advance::INTERVAL && self.is_enabled() {
            return;
        }
        self.debited_at.store(now.as_micros(), Ordering::Relaxed);
        for table in &self.tables {
            let mut table = lock(table);
            if !table.advances.has_due() {
                continue;
            }
            let Table { pools, advances, counts, .. } = &mut *table;
            for (hash, charge) in advances.take_due() {
                let units = charge.units;
                let refill = pools.get_mut(&hash).and_then(|pool| pool.take_refill(now, &self.policy));
                let taken = refill.is_some();
                if self.push(Errand { pool: hash, charge, refill }) {
                    counts.debits += 1;
                } else {
                    advances.put_back(hash, units);
                    if let Some(pool) = pools.get_mut(&hash).filter(|_| taken) {
                        pool.fail_call(now, &self.policy);
                    }
                }
            }
        }
    }

    /// Ends a claim that the store settled whole: what operators and returns change is no longer held or paused.
    pub fn end_whole(&self, claim: &Claim<'_>, now: Steady, settlement: &mut Settlement) {
        // A request of a key without a pool, as most are: there is nothing to change.
        if may_be_answered(claim) {
            return;
        }
        for (charge, reading) in claim.charges.iter().zip(&mut settlement.readings) {
            // An operator's change is the store's alone, whatever the rule says.
            let is_adjusted = matches!(charge.ask, Ask::Reset | Ask::Credit);
            let Some(hash) = self.pool_of(charge).or_else(|| is_adjusted.then(|| self.hash(&charge.key))) else {
                continue;
            };
            let mut table = self.table(hash);
            let Table { pools, counts, advances, .. } = &mut *table;
            if is_adjusted {
                advances.forget(hash);
            }
            let Some(pool) = pools.get_mut(&hash) else { continue };
            match charge.ask {
                Ask::Reset if reading.source == Source::Store => counts.expired += pool.reset(),
                Ask::Credit | Ask::Return { .. } => pool.end_pause(),
                // What this server holds is counted in the store, and not spent.
                Ask::Exactly if charge.units == 0 => {
                    reading.remaining = reading.remaining.saturating_add(pool.held(now)).min(charge.limit.quota());
                }
                _ => {}
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
            let checked = if is_enabled { table.order.len().min(POOLS_OF_A_BEAT) } else { table.order.len() };
            for _ in 0..checked {
                let Table { pools, order, counts, .. } = &mut *table;
                let Some(hash) = order.pop_front() else { break };
                let Some(pool) = pools.get_mut(&hash) else { continue };
                let is_idle = if is_enabled { pool.is_idle(now, &self.policy) } else { pool.is_unused(now) };
                let (returns, let_go) = match is_enabled {
                    // Also what calls in progress take, with a later beat.
                    false => pool.purge(now),
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

    /// Applies what operators changed on other servers. Returns the number of keys.
    pub fn adjust(&self, adjustment_of: impl Fn(&Key<'_>) -> Option<KeyAdjustment>) -> usize {
        let mut adjusted = 0;
        for table in &self.tables {
            let mut table = lock(table);
            let Table { pools, counts, .. } = &mut *table;
            for pool in pools.values_mut() {
                let adjustment = adjustment_of(&pool.key().key());
                match adjustment {
                    Some(KeyAdjustment::Reset) => counts.expired += pool.reset(),
                    Some(KeyAdjustment::Credit) => pool.end_pause(),
                    None => continue,
                }
                adjusted += 1;
            }
            table.advances.forget_if(&adjustment_of);
        }
        adjusted
    }

    /// Gives back what is held of keys, through [`take_errands`](Self::take_errands), and forgets what the store said of
    /// them. The pools stay: calls and claims in progress put units into them.
    pub fn purge(&self, now: Steady, is_purged: impl Fn(&Key<'_>) -> bool) -> PurgedLeases {
        let mut purged = PurgedLeases::default();
        for table in &self.tables {
            let mut table = lock(table);
            let Table { pools, counts, advances, .. } = &mut *table;
            advances.forget_if(|key| is_purged(key).then_some(KeyAdjustment::Reset));
            for (hash, pool) in pools.iter_mut().filter(|(_, pool)| is_purged(&pool.key().key())) {
                purged.keys += 1;
                let (returns, let_go) = pool.purge(now);
                purged.units += returns.iter().map(|charge| charge.units).sum::<u64>();
                counts.expired += let_go;
                self.push_returns(*hash, returns, counts);
            }
        }
        purged
    }

    /// Calls to make now, at most `max`.
    pub fn take_errands(&self, max: usize) -> Vec<Errand> {
        let mut errands = lock(&self.errands);
        let count = errands.len().min(max);
        errands.drain(..count).collect()
    }

    /// The answer to an errand that was sent at `sent`. `random` is from ½ to 1½.
    pub fn end_errand(&self, errand: &Errand, answer: &Settlement, sent: Steady, random: f64) {
        let reading = answer.readings.first().filter(|reading| reading.source == Source::Store);
        let units = errand.charge.units;
        let mut table = self.table(errand.pool);
        if errand.is_debit() {
            if reading.is_some() {
                self.set_clock(answer.at, sent);
            }
            table.advances.end_call(errand.pool, units, answer.readings.first(), sent);
            let Some(refill) = &errand.refill else { return };
            match answer.readings.get(1).filter(|reading| reading.source == Source::Store) {
                Some(reading) => {
                    let answer = Answer { charge: None, chunk: Some((refill.units, reading)), at: answer.at, sent };
                    table.end_call(errand.pool, &answer, &self.policy, random);
                }
                None => table.fail_call(errand.pool, refill.units, sent, &self.policy),
            }
            return;
        }
        match reading {
            Some(reading) if errand.is_refill() => {
                let answer = Answer { charge: None, chunk: Some((units, reading)), at: answer.at, sent };
                table.end_call(errand.pool, &answer, &self.policy, random);
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

    fn push_returns(&self, pool: u128, returns: Vec<OwnedCharge>, counts: &mut LeaseCounts) -> bool {
        let mut pushed = false;
        for charge in returns {
            counts.back += 1;
            let units = charge.units;
            match self.push(Errand::new(pool, charge)) {
                true => pushed = true,
                false => counts.lost += units,
            }
        }
        pushed
    }

    /// Whether the errand will be run: not if too many wait.
    fn push(&self, errand: Errand) -> bool {
        let mut errands = lock(&self.errands);
        let has_room = errands.len() < MAX_ERRANDS;
        if has_room {
            errands.push_back(errand);
        }
        has_room
    }

    /// Writes the store's clock into an answer.
    fn set_time(&self, hash: u128, now: Steady, settlement: &mut Settlement) {
        let heard = self.table(hash).pools.get(&hash).and_then(|pool| pool.store_time(now));
        let offset = self.clock_offset.load(Ordering::Relaxed);
        let known =
            || (offset != UNKNOWN).then(|| Timestamp::from_micros(now.as_micros().saturating_add_signed(offset)));
        if let Some(at) = heard.or_else(known) {
            settlement.at = at;
        }
    }

    /// The hash of a charge's pool, if its counter may be leased.
    fn pool_of(&self, charge: &Charge<'_>) -> Option<u128> {
        let is_leasable = charge.shortcuts.has_leases();
        is_leasable.then(|| self.hash(&charge.key))
    }

    fn hash(&self, key: &Key<'_>) -> u128 {
        key.hash(self.secret, key.partition(self.secret))
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
        }
    }

    /// Spends units that were reserved.
    pub(super) fn spend_in_advance(&mut self, hash: u128, units: u64) {
        self.counts.advanced += units;
        self.advances.spend(hash, units);
    }

    /// Puts back units of a claim that did not pass.
    pub(super) fn put_back(&mut self, hash: u128, units: u64, reserved: &Reserved) {
        self.counts.spent -= units;
        match self.pools.get_mut(&hash) {
            Some(pool) => pool.put_back(reserved),
            None => self.counts.expired += units,
        }
    }

    /// Ends a call to the store: its pool receives the units that were taken ahead of demand, and learns.
    pub(super) fn end_call(&mut self, hash: u128, answer: &Answer<'_>, policy: &LeasePolicy, random: f64) {
        let Table { pools, counts, .. } = self;
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
            counts.expired += pool.hear(answer, policy, random);
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
fn may_be_answered(claim: &Claim<'_>) -> bool {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The charges of most claims.
pub(super) type Parts = SmallVec<[Part; 2]>;
