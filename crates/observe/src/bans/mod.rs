//! Refusals that count towards bans, between two flushes to the shared store.
//!
//! Each refusal is counted here where it is decided, and a task takes the sums a few times a second: a flood costs a few calls a second for
//! each attacker, not one for each refusal. The table is bounded. If it is full, of a few subjects the one with the fewest refusals is
//! forgotten, so that many spoofed addresses do not displace one that is refused again and again.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tollgate::{DecisionEvent, KeyPrivacy, Mode, Source, Timestamp};
use tollgate_rules::Banned;

#[cfg(test)]
mod tests;

/// Counts refusals under rules with a ban.
#[derive(Debug)]
pub struct RefusalTable {
    buckets: Box<[Mutex<Bucket>]>,
    /// How many subjects are in the table.
    subjects: AtomicUsize,
    hasher: RandomState,
    privacy: Arc<KeyPrivacy>,
    counts: Mutex<BTreeMap<BanRule, BanCounts>>,
}

type Bucket = SmallVec<[Refusals; 1]>;

/// A domain and a rule of it that bans.
pub type BanRule = (Box<str>, Box<str>);

/// The refusals of one subject under one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusals {
    /// The domain of the rule.
    pub domain: Box<str>,
    /// The rule that refused.
    pub rule: Box<str>,
    /// The name of the block that would be a ban: a caller, the digest of a private one, or a network.
    pub name: Box<str>,
    /// What kind of name it is.
    pub subject: SubjectKind,
    /// The number of refusals.
    pub count: u64,
    /// The time of the first one.
    pub at: Timestamp,
}

/// What the name of a ban is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubjectKind {
    /// A caller.
    Caller,
    /// The digest of a caller whose name is private.
    Masked,
    /// A network.
    Network,
}

/// What became of refusals and bans of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BanCounts {
    /// Bans that this server began.
    pub begun: u64,
    /// Refusals that did not count, because their subject is never banned.
    pub exempt: u64,
    /// Bans that this server could not begin, and refusals that were forgotten because there were too many subjects.
    pub dropped: u64,
}

/// What happened to a ban or a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BanEvent {
    /// The ban began.
    Begun,
    /// The subject is never banned.
    Exempt,
    /// There was no room.
    Dropped,
}

/// Buckets of the table, and subjects in each.
const BUCKETS: usize = 1_024;
const PER_BUCKET: usize = 4;
/// Subjects whose refusals are counted at the same time.
pub const MAX_REFUSED: usize = 4_096;
const _: () = assert!(BUCKETS * PER_BUCKET == MAX_REFUSED);
/// Rules with counts of their own; the others are counted together.
pub const MAX_BAN_RULES: usize = 1_000;
/// The longest name of a block, in bytes: longer ones are masked.
const MAX_NAME_BYTES: usize = 512;
/// The domain and the rule of those that are counted together.
const OTHER: &str = "other";

impl RefusalTable {
    /// An empty table. Private callers are named in this form.
    pub fn new(privacy: Arc<KeyPrivacy>) -> RefusalTable {
        RefusalTable {
            buckets: (0..BUCKETS).map(|_| Mutex::default()).collect(),
            subjects: AtomicUsize::new(0),
            hasher: RandomState::new(),
            privacy,
            counts: Mutex::default(),
        }
    }

    /// Counts a refused request under every rule with a ban that refused it. A refusal because the store did not answer says nothing
    /// about the caller.
    #[cold]
    pub(crate) fn count(&self, event: &DecisionEvent<'_, '_>) {
        let domain = event.domain();
        for limit in event.limits() {
            let Some(ban) = limit.rule.ban() else { continue };
            let is_counted = !matches!(limit.reading.source, Source::Assumed | Source::Shed);
            let refuses = matches!(limit.applied.mode, Mode::Enforce | Mode::AnyOf) && !limit.reading.admits;
            if !refuses || !is_counted {
                continue;
            }
            let Some(banned) = ban.subject(event.request) else { continue };
            let (of, rule) = (domain.name(), limit.rule.name());
            if domain.never_bans(event.request, &banned) {
                self.note(of, rule, BanEvent::Exempt);
                continue;
            }
            match self.name(&banned, ban.is_private()) {
                Some((name, subject)) => self.add(of, rule, (&name, subject), event.settlement.at),
                None => self.note(of, rule, BanEvent::Exempt),
            }
        }
    }

    /// The name of the block. A private name is masked, and so is one that would block others or is too long. `None` without a secret.
    pub fn name(&self, banned: &Banned<'_>, is_private: bool) -> Option<(String, SubjectKind)> {
        let name = banned.name();
        if banned.is_network() {
            return Some((name.into_owned(), SubjectKind::Network));
        }
        let secret = self.privacy.log_secret();
        let is_plain = !name.contains('*') && name.len() <= MAX_NAME_BYTES && !name.starts_with('#');
        if is_plain && (!is_private || secret.is_none()) {
            return Some((name.into_owned(), SubjectKind::Caller));
        }
        let digest = secret?.digest(tollgate_core::Value::Text(&name));
        Some((format!("#{digest:032x}"), SubjectKind::Masked))
    }

    fn add(&self, domain: &str, rule: &str, (name, subject): (&str, SubjectKind), at: Timestamp) {
        let index = self.hasher.hash_one((domain, rule, name)) as usize % BUCKETS;
        let mut bucket = lock(&self.buckets[index]);
        let known = bucket.iter_mut().find(|one| *one.name == *name && *one.rule == *rule && *one.domain == *domain);
        if let Some(known) = known {
            known.count = known.count.saturating_add(1);
            return;
        }
        let entry = Refusals { domain: domain.into(), rule: rule.into(), name: name.into(), subject, count: 1, at };
        let smallest = (bucket.len() == PER_BUCKET).then(|| bucket.iter_mut().min_by_key(|one| one.count)).flatten();
        match smallest {
            Some(smallest) => {
                let displaced = std::mem::replace(smallest, entry);
                drop(bucket);
                self.note(&displaced.domain, &displaced.rule, BanEvent::Dropped);
            }
            None => {
                bucket.push(entry);
                self.subjects.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Takes all refusals that were counted since the last call.
    pub fn take(&self) -> Vec<Refusals> {
        if self.subjects.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let taken: Vec<Refusals> = self.buckets.iter().flat_map(|bucket| std::mem::take(&mut *lock(bucket))).collect();
        self.subjects.fetch_sub(taken.len(), Ordering::Relaxed);
        taken
    }

    /// Counts what happened to a ban or to a refusal.
    pub fn note(&self, domain: &str, rule: &str, event: BanEvent) {
        let mut counts = lock(&self.counts);
        let key = (domain.into(), rule.into());
        let key =
            if counts.len() < MAX_BAN_RULES || counts.contains_key(&key) { key } else { (OTHER.into(), OTHER.into()) };
        let counts = counts.entry(key).or_default();
        match event {
            BanEvent::Begun => counts.begun += 1,
            BanEvent::Exempt => counts.exempt += 1,
            BanEvent::Dropped => counts.dropped += 1,
        }
    }

    /// What happened since the start, by domain and rule.
    pub fn counts(&self) -> Vec<(BanRule, BanCounts)> {
        lock(&self.counts).iter().map(|(rule, counts)| (rule.clone(), *counts)).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
