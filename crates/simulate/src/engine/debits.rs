//! What regions debit in each other, by the steps that servers take.

use smallvec::smallvec;
use tollgate_core::key::HashSecret;
use tollgate_core::{Claim, Key, OwnedCharge, RegionId, Settlement};
use tollgate_store::DebitConfig;
use tollgate_store::debits::{DebitMessage, DebitTables, Delivery, LoweredLimits, Routes};
use tollgate_store::sharded::ShardId;

use super::{Engine, Event};
use crate::random::mix;
use crate::scenario::{Lost, PlannedMode, PlannedRegions};

/// A debit, or units that are given back, on its way to another region.
pub(super) struct SentDebit {
    server: u32,
    tables: usize,
    to: usize,
    id: RegionId,
    /// What the other region settles.
    charge: OwnedCharge,
    /// Until the server has an answer, or no longer waits for it.
    message: Option<DebitMessage>,
}

/// Regions whose messages are lost.
#[derive(Clone, Copy)]
pub(super) struct Separation {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) until: u64,
    pub(super) lost: Lost,
}

/// The stores of regions, as one shard each. The breaker of a region opens when its debits had no answer for a second, and
/// closes as soon as the way is free.
struct OneShard {
    /// The regions whose breakers are open.
    away: Vec<RegionId>,
    /// The servers of the region that debits the others.
    servers: u32,
}

/// The debits of a server to a region without an answer.
#[derive(Clone, Copy)]
pub(super) struct Outage {
    tables: usize,
    to: RegionId,
    since: u64,
    is_open: bool,
}

/// After so long without an answer the breaker of a region opens, in nanoseconds.
const OUTAGE: u64 = 1_000_000_000;
/// How long a server waits for the answer to a debit, in nanoseconds.
const DEBIT_TIMEOUT: u64 = 1_000_000_000;

impl Routes for OneShard {
    fn is_whole(&self, region: RegionId) -> bool {
        !self.away.contains(&region)
    }

    fn shard(&self, key: &Key<'_>) -> ShardId {
        ShardId(0).at(key.region())
    }

    fn is_reachable(&self, shard: ShardId) -> bool {
        self.is_whole(shard.region())
    }

    fn servers_here(&self) -> u64 {
        u64::from(self.servers)
    }
}

impl Engine<'_> {
    /// The debits of a server, if regions debit each other. `tables` is the place of its tables.
    fn debits_of(&mut self, tables: usize) -> Option<&DebitTables> {
        let planned = self.scenario.regions.as_ref()?;
        if !self.scenario.limits.iter().any(|planned| matches!(planned.mode, PlannedMode::Global(_))) {
            return None;
        }
        if self.debits.len() <= tables {
            self.debits.resize_with(tables + 1, || None);
        }
        let secret = HashSecret(mix(self.scenario.seed), tables as u64);
        Some(self.debits[tables].get_or_insert_with(|| {
            // A server numbers itself first.
            let others = (1..planned.regions.len()).map(|number| (RegionId::new(number as u8), number.to_string()));
            DebitTables::new(config(planned), secret, others.collect())
        }))
    }

    fn shards_of(&mut self, server: u32) -> OneShard {
        let (region, tables) = (self.servers[server as usize].region, self.servers[server as usize].tables);
        let mut outages = std::mem::take(&mut self.outages);
        outages.retain(|outage| {
            let to = self.region_number(region, outage.to);
            let is_away =
                |to| self.is_separated(region, to, Lost::Requests) || self.is_separated(region, to, Lost::Answers);
            outage.tables != tables || !outage.is_open || to.is_some_and(is_away)
        });
        self.outages = outages;
        let open = self.outages.iter().filter(|outage| outage.tables == tables && outage.is_open);
        let away = open.map(|outage| outage.to).collect();
        let planned = self.scenario.regions.as_ref().and_then(|planned| planned.regions.get(region));
        OneShard { away, servers: planned.map_or(1, |planned| planned.servers) }
    }

    /// The limits on which a server's claim is settled.
    pub(super) fn lowered(&mut self, tables: usize, claim: &Claim<'_>) -> Option<LoweredLimits> {
        Some(self.debits_of(tables)?.lowered(claim))
    }

    /// A server has the answer to a claim.
    pub(super) fn record_debits(
        &mut self,
        server: u32,
        claim: &Claim<'_>,
        lowered: Option<&LoweredLimits>,
        answer: &Settlement,
    ) {
        let (tables, steady) = (self.servers[server as usize].tables, self.steady(server));
        let Some(debits) = self.debits_of(tables) else { return };
        let is_urgent = match lowered {
            Some(lowered) => debits.record(claim, &lowered.claim(claim), answer, || steady),
            None => debits.record(claim, claim, answer, || steady),
        };
        if is_urgent {
            self.send_debits(server);
        }
    }

    /// A server's beat of debits.
    pub(super) fn beat_debits(&mut self, server: u32, tables: usize) {
        let simulated = &self.servers[server as usize];
        let (is_up, paused_until) = (simulated.is_up && simulated.tables == tables, simulated.paused_until);
        let Some(planned) = self.scenario.regions.as_ref().filter(|_| is_up) else { return };
        let next = self.now.max(paused_until) + planned.beat.as_micros() * 1_000;
        self.schedule(next, Event::DebitBeat { server, tables: tables as u32 });
        if paused_until <= self.now {
            self.send_debits(server);
        }
    }

    fn send_debits(&mut self, server: u32) {
        let (tables, steady) = (self.servers[server as usize].tables, self.steady(server));
        let shards = self.shards_of(server);
        let Some(debits) = self.debits_of(tables) else { return };
        debits.beat(steady, &shards);
        let mut sent = Vec::new();
        for id in debits.regions() {
            sent.extend(debits.take(id, steady, &shards).into_iter().map(|message| (id, message)));
        }
        for (id, message) in sent {
            self.send_debit(server, tables, id, message);
        }
    }

    fn send_debit(&mut self, server: u32, tables: usize, id: RegionId, message: DebitMessage) {
        let from = self.servers[server as usize].region;
        let Some(to) = self.region_number(from, id) else { return };
        let is_lost = self.network.chance(self.scenario.network.drops)
            || self.servers[server as usize].requests_lost_until > self.now
            || self.is_separated(from, to, Lost::Requests);
        let way = self.way(from, to);
        let place = self.sent_debits.len() as u32;
        let Some(charge) = message.claim(id, Default::default()).charges.first().map(OwnedCharge::from) else { return };
        self.sent_debits.push(SentDebit { server, tables, to, id, charge, message: Some(message) });
        self.outcome.calls.debits += u64::from(self.is_measured());
        if !is_lost {
            self.schedule(self.now + way, Event::DebitReach(place));
        }
        self.schedule(self.now + DEBIT_TIMEOUT, Event::DebitEnd { debit: place, is_answered: false });
    }

    /// The region that servers of a region know by this number: the others follow in the order of their numbers.
    fn region_number(&self, from: usize, id: RegionId) -> Option<usize> {
        (0..self.scenario.region_count()).filter(|region| *region != from).nth(usize::from(id.number()) - 1)
    }

    /// Whether a debit has an answer decides about the breaker of its region.
    fn note_answer(&mut self, tables: usize, to: RegionId, is_answered: bool) {
        let place = self.outages.iter().position(|outage| (outage.tables, outage.to) == (tables, to));
        match place {
            Some(place) if is_answered => drop(self.outages.swap_remove(place)),
            Some(place) => self.outages[place].is_open |= self.now >= self.outages[place].since + OUTAGE,
            None if is_answered => {}
            None => self.outages.push(Outage { tables, to, since: self.now, is_open: false }),
        }
    }

    /// A debit reaches the other region.
    pub(super) fn reach_debit(&mut self, place: u32) {
        let (at, sent) = (self.store_time(), &self.sent_debits[place as usize]);
        let (server, to) = (sent.server, sent.to);
        let charge = sent.charge.clone();
        let claim = Claim { id: Default::default(), charges: smallvec![charge.charge()], once: None, timeout: None };
        self.counters.settle(&claim, to, at, &mut Settlement::default(), None);
        let from = self.servers[server as usize].region;
        let is_lost = self.network.chance(self.scenario.network.drops)
            || self.servers[server as usize].answers_lost_until > self.now
            || self.is_separated(from, to, Lost::Answers);
        if !is_lost {
            let way = self.way(to, from);
            self.schedule(self.now + way, Event::DebitEnd { debit: place, is_answered: true });
        }
    }

    /// A server has the answer to a debit, or no longer waits for it.
    pub(super) fn end_debit(&mut self, place: u32, is_answered: bool) {
        let SentDebit { server, tables, id, .. } = self.sent_debits[place as usize];
        let Some(message) = self.sent_debits[place as usize].message.take() else { return };
        let simulated = &self.servers[server as usize];
        if !simulated.is_up || simulated.tables != tables {
            return;
        }
        let steady = self.steady(server);
        self.note_answer(tables, id, is_answered);
        let delivery = if is_answered { Delivery::Done } else { Delivery::Unsure };
        let shards = self.shards_of(server);
        if let Some(debits) = self.debits_of(tables) {
            debits.end(id, message, delivery, steady, &shards);
        }
    }

    /// Whether messages from servers of a region to the store of another are lost, or their answers.
    pub(super) fn is_separated(&self, from: usize, to: usize, what: Lost) -> bool {
        self.separations.iter().any(|separation| {
            (separation.from, separation.to) == (from, to)
                && separation.until > self.now
                && (separation.lost == what || separation.lost == Lost::Both)
        })
    }

    /// The time of a message from one region to another, or within one.
    pub(super) fn way(&mut self, from: usize, to: usize) -> u64 {
        let delay = self.scenario.regions.as_ref().map_or(0, |planned| planned.delay(from, to).as_micros() * 1_000);
        self.one_way() + delay
    }
}

fn config(planned: &PlannedRegions) -> DebitConfig {
    DebitConfig { beat: std::time::Duration::from_micros(planned.beat.as_micros()) }
}
