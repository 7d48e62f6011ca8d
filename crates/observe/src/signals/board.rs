//! The signals of all domains: counted by the requests of this server, evaluated with what other servers report.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tollgate::{Ask, DecisionEvent, KeyPrivacy, Ruleset, Span, Timestamp};
use tollgate_core::key::HashSecret;
use tollgate_rules::{Domain, Signal, SignalHit};

use super::distinct::DistinctSketch;
use super::table::{SignalKey, SignalTable, SignalValue, TABLE_BOUNDS};
use crate::display;
use crate::heavy_hitters::KeyName;

/// The signals of all domains.
#[derive(Debug)]
pub struct SignalBoard {
    secret: RwLock<HashSecret>,
    /// By what they count. Those of rules that are no longer in force are dropped.
    tables: Mutex<HashMap<TableName, Arc<Mutex<SignalTable>>>>,
    /// The last evaluation.
    evaluated: Mutex<Evaluated>,
    /// When it was, in microseconds. A request that meets no limit has no time of its own.
    evaluated_at: AtomicU64,
    privacy: Arc<KeyPrivacy>,
}

/// What a table counts. A changed threshold goes on with the same table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TableName {
    domain: Box<str>,
    signal: Box<str>,
    distinct: Box<str>,
    per: Vec<Box<str>>,
    window: Span,
}

/// The tables of a ruleset, by the numbers of its domains and signals.
#[derive(Debug)]
struct TableIndex(Vec<Vec<Arc<Mutex<SignalTable>>>>);

#[derive(Debug, Default)]
struct Evaluated {
    raised: HashMap<RaisedKey, RaisedSignal>,
    signals: Vec<SignalStatus>,
    /// Signals that could not be listed.
    omitted: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RaisedKey {
    domain: Box<str>,
    signal: Box<str>,
    key: u128,
}

/// A signal that is raised for a key.
#[derive(Clone, Debug)]
pub struct RaisedSignal {
    /// Domain, signal and key. The rule of the name is the signal.
    pub name: KeyName,
    /// The attribute whose distinct values were counted.
    pub distinct: String,
    /// The attributes for whose values they were counted.
    pub per: Vec<String>,
    /// How many there are in the window: exact up to [`MAX_FEW`](super::MAX_FEW), else an estimate.
    pub count: u64,
    /// The number from which on it is raised.
    pub threshold: u64,
    /// The time in which values are counted.
    pub window: Span,
    /// When it was raised.
    pub since: Timestamp,
    /// When a value was counted on this server the last time.
    pub last: Timestamp,
    /// The newest values that this server counted, masked if they are private.
    pub examples: Vec<String>,
}

/// What an evaluation found.
#[derive(Clone, Debug)]
pub enum SignalChange {
    /// A key has reached the threshold.
    Raised(RaisedSignal),
    /// A key is below it again.
    Ended(RaisedSignal),
}

/// A signal of the rules in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignalStatus {
    /// Its domain.
    pub domain: String,
    /// Its name.
    pub signal: String,
    /// Keys that are counted on this server.
    pub keys: u64,
    /// Their memory.
    pub bytes: u64,
    /// Keys that were displaced by others because the table was full.
    pub displaced: u64,
    /// Keys for which it is raised.
    pub raised: u64,
}

/// The values that another server counted for one key.
#[derive(Clone, Debug)]
pub struct SignalReport {
    /// The domain of the signal.
    pub domain: String,
    /// The name of the signal.
    pub signal: String,
    /// The hash of the key.
    pub key: u128,
    /// The text of the key, with private values masked.
    pub key_text: String,
    /// The distinct values.
    pub sketch: DistinctSketch,
}

/// Raised signals that are listed.
pub const MAX_RAISED: usize = 1_000;

/// Keys that a server reports, of all signals.
pub const MAX_REPORTED: usize = 32;

/// Characters of an example.
const MAX_EXAMPLE_CHARS: usize = 64;

impl SignalBoard {
    /// Nothing counted yet. Names have private values in this form.
    pub fn new(privacy: Arc<KeyPrivacy>) -> SignalBoard {
        use std::hash::BuildHasher as _;
        let random = std::collections::hash_map::RandomState::new();
        SignalBoard {
            secret: RwLock::new(HashSecret(random.hash_one(0u8), random.hash_one(1u8))),
            tables: Mutex::default(),
            evaluated: Mutex::default(),
            evaluated_at: AtomicU64::default(),
            privacy,
        }
    }

    /// Hashes with this secret from now on: that of the fleet. What was counted with another one is dropped.
    pub fn use_secret(&self, secret: HashSecret) {
        let mut current = self.secret.write().unwrap_or_else(PoisonError::into_inner);
        if (current.0, current.1) == (secret.0, secret.1) {
            return;
        }
        *current = secret;
        for table in lock(&self.tables).values() {
            lock(table).clear();
        }
    }

    /// Counts a request for the signals of its domain. Whether it was admitted makes no difference.
    #[inline]
    pub fn count(&self, event: &DecisionEvent<'_, '_>) {
        let domain = event.domain();
        if !domain.signals().is_empty() && event.request.ask == Ask::Exactly {
            self.count_hits(event, domain);
        }
    }

    #[cold]
    fn count_hits(&self, event: &DecisionEvent<'_, '_>, domain: &Domain) {
        let hits = domain.signal_hits(event.request);
        if hits.is_empty() {
            return;
        }
        let tables = event.rules.extension(|rules| self.index(rules));
        let Some(tables) = tables.0.get(event.matched.domain) else { return };
        // Held until all are counted, so that no hash of an old secret comes after a change of it.
        let secret = self.secret.read().unwrap_or_else(PoisonError::into_inner);
        let at = match event.settlement.at {
            at if at == Timestamp::default() => Timestamp::from_micros(self.evaluated_at.load(Ordering::Relaxed)),
            at => at,
        };
        for hit in &hits {
            let number = domain.signals().iter().position(|signal| std::ptr::eq(signal, hit.signal));
            let Some(table) = number.and_then(|number| tables.get(number)) else { continue };
            let key = hit.key.values().iter().fold(0, |before, value| value.digest(*secret, before));
            let value = SignalValue {
                key,
                value: hit.value.digest(*secret, 0) as u64,
                at,
                examples_from: hit.signal.threshold() / 2,
            };
            lock(table).count(value, || self.name(hit.signal, hit), || self.example(hit));
        }
    }

    /// Adds up what all servers counted. Returns what was raised and what ended since the last call.
    pub fn evaluate(&self, rules: &Ruleset, reports: &[SignalReport], now: Timestamp) -> Vec<SignalChange> {
        self.evaluated_at.store(now.as_micros(), Ordering::Relaxed);
        let index = rules.extension(|rules| self.index(rules));
        let mut found = Evaluated::default();
        for (domain, tables) in rules.domains().iter().zip(&index.0) {
            for (signal, table) in domain.signals().iter().zip(tables) {
                let is_of = |report: &&SignalReport| report.domain == domain.name() && report.signal == signal.name();
                let mut table = lock(table);
                table.expire(now);
                found.add(domain, signal, &table, reports.iter().filter(is_of), now);
            }
        }
        self.drop_unused(rules);
        self.replace(found)
    }

    /// The raised signals, those with the most values first.
    pub fn raised(&self) -> Vec<RaisedSignal> {
        let mut raised: Vec<_> = lock(&self.evaluated).raised.values().cloned().collect();
        raised.sort_by(|one, other| (other.count, &one.name.key()).cmp(&(one.count, &other.name.key())));
        raised
    }

    /// The signals of the rules in force, and how many raised ones are not listed because there are too many.
    pub fn status(&self) -> (Vec<SignalStatus>, u64) {
        let evaluated = lock(&self.evaluated);
        (evaluated.signals.clone(), evaluated.omitted)
    }

    /// What other servers need to know, the keys that are nearest to their thresholds first. If the threshold is reached on so many
    /// servers together, one of them has its part of it, and reports the key; then the others report it as well.
    pub fn report(&self, rules: &Ruleset, servers: usize, others: &[SignalReport]) -> Vec<SignalReport> {
        let index = rules.extension(|rules| self.index(rules));
        let mut near: Vec<(u64, SignalReport)> = Vec::new();
        for (domain, tables) in rules.domains().iter().zip(&index.0) {
            for (signal, table) in domain.signals().iter().zip(tables) {
                let is_of = |report: &&SignalReport| report.domain == domain.name() && report.signal == signal.name();
                let known: HashSet<u128> = others.iter().filter(is_of).map(|report| report.key).collect();
                let has_its_part = |count: u64| count.saturating_mul(servers.max(1) as u64) >= signal.threshold();
                let table = lock(table);
                let keys = table.keys().iter().filter(|key| known.contains(&key.hash) || has_its_part(key.count()));
                near.extend(
                    keys.map(|key| {
                        (key.count().saturating_mul(1_000) / signal.threshold(), key.report(domain, signal))
                    }),
                );
                near.sort_by_key(|(share, _)| Reverse(*share));
                near.truncate(MAX_REPORTED);
            }
        }
        near.into_iter().map(|(_, report)| report).collect()
    }

    /// Replaces the last evaluation. What was raised before has been since then.
    fn replace(&self, mut found: Evaluated) -> Vec<SignalChange> {
        let mut last = lock(&self.evaluated);
        let mut changes = Vec::new();
        for (key, raised) in &mut found.raised {
            match last.raised.remove(key) {
                Some(before) => raised.since = before.since,
                None => changes.push(SignalChange::Raised(raised.clone())),
            }
        }
        changes.extend(last.raised.drain().map(|(_, ended)| SignalChange::Ended(ended)));
        *last = found;
        changes
    }

    fn index(&self, rules: &Ruleset) -> TableIndex {
        let mut tables = lock(&self.tables);
        let mut table = |domain: &Domain, signal: &Signal| {
            let new = || Arc::new(Mutex::new(SignalTable::new(signal.window(), TABLE_BOUNDS)));
            tables.entry(TableName::new(domain, signal)).or_insert_with(new).clone()
        };
        let domains = rules.domains().iter();
        TableIndex(
            domains.map(|domain| domain.signals().iter().map(|signal| table(domain, signal)).collect()).collect(),
        )
    }

    fn drop_unused(&self, rules: &Ruleset) {
        let mut tables = lock(&self.tables);
        if tables.len() > rules.domains().iter().map(|domain| domain.signals().len()).sum() {
            let used = rules.domains().iter().flat_map(|domain| domain.signals().iter().map(move |one| (domain, one)));
            let used: Vec<TableName> = used.map(|(domain, signal)| TableName::new(domain, signal)).collect();
            tables.retain(|name, _| used.contains(name));
        }
    }

    fn name(&self, signal: &Signal, hit: &SignalHit<'_>) -> KeyName {
        KeyName::from_key(&mut String::new(), signal.name(), &hit.key, self.privacy.log_secret())
    }

    fn example(&self, hit: &SignalHit<'_>) -> String {
        let mut text = String::new();
        display::value(&mut text, hit.value, self.privacy.log_secret().filter(|_| hit.signal.is_distinct_private()));
        match text.char_indices().nth(MAX_EXAMPLE_CHARS) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }
}

impl SignalKey {
    fn report(&self, domain: &Domain, signal: &Signal) -> SignalReport {
        SignalReport {
            domain: domain.name().to_owned(),
            signal: signal.name().to_owned(),
            key: self.hash,
            key_text: self.name.key().to_owned(),
            sketch: self.sketch(),
        }
    }
}

impl Evaluated {
    fn add<'r>(
        &mut self,
        domain: &Domain,
        signal: &Signal,
        table: &SignalTable,
        reports: impl Iterator<Item = &'r SignalReport>,
        now: Timestamp,
    ) {
        let mut others: HashMap<u128, (u64, Vec<&SignalReport>)> = HashMap::new();
        for report in reports {
            let (count, all) = others.entry(report.key).or_default();
            *count = count.saturating_add(report.sketch.estimate());
            all.push(report);
        }
        let before = self.raised.len();
        let own = table.keys().iter().map(|key| key.hash);
        let only_others = others.keys().copied().filter(|key| table.key(*key).is_none());
        for hash in own.chain(only_others) {
            let key = table.key(hash);
            let remote = others.get(&hash);
            // Together they have at most as many as each of them.
            let most = key.map_or(0, |key| key.count()).saturating_add(remote.map_or(0, |(count, _)| *count));
            if most < signal.threshold() {
                continue;
            }
            let mut sketch = key.map(|key| key.sketch()).unwrap_or_default();
            remote.iter().flat_map(|(_, all)| all).for_each(|report| sketch.merge(&report.sketch));
            let count = sketch.estimate();
            if count < signal.threshold() {
                continue;
            }
            if self.raised.len() == MAX_RAISED {
                self.omitted += 1;
                continue;
            }
            let name = match (key, remote.and_then(|(_, all)| all.first())) {
                (Some(key), _) => key.name.clone(),
                (None, Some(report)) => KeyName::new(&report.domain, &report.signal, &report.key_text, None),
                (None, None) => continue,
            };
            let raised = RaisedSignal {
                name,
                distinct: signal.distinct().to_owned(),
                per: signal.per().map(str::to_owned).collect(),
                count,
                threshold: signal.threshold(),
                window: signal.window(),
                since: now,
                last: key.map_or(now, |key| key.last),
                examples: key.map(|key| key.examples.clone()).unwrap_or_default(),
            };
            self.raised
                .insert(RaisedKey { domain: domain.name().into(), signal: signal.name().into(), key: hash }, raised);
        }
        self.signals.push(SignalStatus {
            domain: domain.name().to_owned(),
            signal: signal.name().to_owned(),
            keys: table.keys().len() as u64,
            bytes: table.bytes() as u64,
            displaced: table.displaced(),
            raised: (self.raised.len() - before) as u64,
        });
    }
}

impl TableName {
    fn new(domain: &Domain, signal: &Signal) -> TableName {
        TableName {
            domain: domain.name().into(),
            signal: signal.name().into(),
            distinct: signal.distinct().into(),
            per: signal.per().map(Into::into).collect(),
            window: signal.window(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
