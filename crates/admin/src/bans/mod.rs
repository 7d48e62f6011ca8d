//! Automatic bans: whoever is refused too often is blocked on all servers.
//!
//! ```text
//! Observer: refusals by subject ─ every 200 ms ─▶ one claim on counters that the fleet shares ─ reached ─▶ a record: a block
//!                                                                              store of record away ─▶ in force here, and a note in Redis
//! ```
//!
//! A ban is a block with an end, so nothing is new on the path of a banned request. Whichever server reaches the number first writes it;
//! a block in force is never replaced, so the others find that there is nothing to do. Without a store of record that all servers share,
//! bans reach them by notes in the shared store of counters.

mod begin;
mod notes;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tollgate::{RefusalCount, RefusalSum, Rule, Ruleset, Span, Tenants, Timestamp};
use tollgate_control::RecordName;
use tollgate_net::Closing;
use tollgate_observe::{BanEvent, KeyName, MAX_REFUSED, RefusalTable, Refusals, SubjectKind};
use tollgate_rules::Signal;

use crate::observe::Observability;
use crate::store_of_record::ControlPlane;
use begin::{BanCause, DueBan};
use notes::BanNote;
use tollgate_telemetry::Health;

/// Counts refusals across the fleet, and begins bans.
#[derive(Debug)]
pub struct Bans {
    control: Arc<ControlPlane>,
    observability: Arc<Observability>,
    health: Arc<Health>,
    state: Mutex<BanState>,
}

#[derive(Debug, Default)]
struct BanState {
    /// Refusals that the shared store has not counted yet.
    unsettled: Vec<Refusals>,
    /// Bans in force here that wait for the store of record.
    waiting: BTreeMap<RecordName, BanNote>,
    /// Notes that are settled, with the time after which none can appear any more.
    known: HashMap<String, Timestamp>,
    /// Those for whom a signal was raised, with the end of their bans: domain, signal and name.
    seen: HashMap<RaisedSubject, Timestamp>,
    /// Where the bans that wait are in force.
    applied_to: Option<Arc<Tenants>>,
}

/// A domain, a signal of it, and the name of a block.
type RaisedSubject = (Box<str>, Box<str>, Box<str>);

/// How often refusals are counted, and notes are read.
pub const BAN_INTERVAL: Duration = Duration::from_millis(200);
/// The time for counting them.
const COUNT_TIMEOUT: Span = Span::from_micros(500_000);
/// Bans that begin in one interval; the others in the next ones.
pub const MAX_BEGUN: usize = 64;
/// Bans that wait for the store of record.
pub const MAX_WAITING_BANS: usize = 1_024;
/// Bans by signals that a server remembers until they end.
pub const MAX_SEEN: usize = 4_096;
/// The health component of bans that wait or could not begin.
const COMPONENT: &str = "bans";

impl Bans {
    /// Bans by the rules in force of this control plane.
    pub fn new(control: Arc<ControlPlane>, observability: Arc<Observability>, health: Arc<Health>) -> Arc<Bans> {
        Arc::new(Bans { control, observability, health, state: Mutex::default() })
    }

    /// Counts and bans until the server is about to stop.
    pub async fn run(self: Arc<Bans>, mut closing: Closing) {
        let mut tick = tokio::time::interval(BAN_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = closing.begun() => return,
            }
            self.tick().await;
        }
    }

    /// One interval.
    pub(crate) async fn tick(&self) {
        let limiter = self.control.limiter();
        limiter.tenants().use_secret(self.observability.key_privacy.log_secret());
        let rules = limiter.rules();
        if !rules.domains().iter().any(|domain| domain.bans()) && self.state().waiting.is_empty() {
            return;
        }
        self.exchange().await;
        let mut due = self.count(&rules).await;
        due.extend(self.raised(&rules));
        if !due.is_empty() {
            self.begin(&due).await;
            for one in &due {
                // They count anew when the ban is over, or lifted.
                if let BanCause::Rule(ban) = one.cause {
                    limiter.forget_refusals(ban, &one.refusals.name, COUNT_TIMEOUT).await;
                }
            }
        }
        self.show();
    }

    /// Adds the refusals here to those of the fleet, and returns who has reached the number of a ban.
    async fn count<'r>(&self, rules: &'r Ruleset) -> Vec<DueBan<'r>> {
        let now = self.control.now();
        let unsettled = std::mem::take(&mut self.state().unsettled);
        let refusals = sum_up(unsettled, self.observability.observer.refusals().take());
        // The rule may have changed since.
        let found: Vec<(Refusals, &Rule)> = refusals
            .into_iter()
            .filter_map(|one| {
                let rule = find_rule(rules, &one.domain, &one.rule)?;
                rule.ban().is_some().then_some((one, rule))
            })
            .collect();
        let counts = found
            .iter()
            .filter_map(|(one, rule)| Some(RefusalCount { ban: rule.ban()?, name: &one.name, count: one.count }));
        let sums = self.control.limiter().count_refusals(&counts.collect::<Vec<_>>(), COUNT_TIMEOUT).await;
        let (mut due, mut unsettled) = (Vec::new(), Vec::new());
        for ((mut refusals, rule), sum) in found.into_iter().zip(sums) {
            let Some(ban) = rule.ban() else { continue };
            let is_reached = match sum {
                RefusalSum::Below => continue,
                RefusalSum::Reached => true,
                // The store does not answer: then those of this server count, for as long as they would there.
                RefusalSum::Unknown if now >= refusals.at.after(ban.limit().period().span()) => continue,
                RefusalSum::Unknown => refusals.count >= ban.limit().amount(),
            };
            if is_reached && due.len() < MAX_BEGUN {
                due.push(DueBan { refusals, cause: BanCause::Rule(ban) });
                continue;
            }
            if is_reached {
                // They are counted; the next interval asks for the sum again.
                refusals.count = if sum == RefusalSum::Reached { 0 } else { refusals.count };
            }
            unsettled.push(refusals);
        }
        for dropped in unsettled.drain(MAX_REFUSED.min(unsettled.len())..) {
            self.note(&dropped, BanEvent::Dropped);
        }
        self.state().unsettled = unsettled;
        due
    }

    /// Those for whom a signal with a ban is raised, and that this server has not seen yet, or not since their ban ended. All servers
    /// may find them; one of them writes the ban.
    fn raised<'r>(&self, rules: &'r Ruleset) -> Vec<DueBan<'r>> {
        let now = self.control.now();
        let table = self.observability.observer.refusals();
        let mut due = Vec::new();
        let mut state = self.state();
        state.seen.retain(|_, until| now < *until);
        for raised in self.observability.observer.signals().raised() {
            let (of, name) = (raised.name.domain(), raised.name.rule());
            let domain = rules.domain_number(Some(of)).and_then(|number| rules.domains().get(number));
            let Some(domain) = domain else { continue };
            let Some(signal) = domain.signals().iter().find(|signal| signal.name() == name) else { continue };
            let Some(ban) = signal.ban() else { continue };
            let Some(found) = subject(signal, &raised.name, table) else { continue };
            let key = (Box::from(of), Box::from(name), found.0.as_str().into());
            if due.len() >= MAX_BEGUN || state.seen.len() >= MAX_SEEN || state.seen.contains_key(&key) {
                continue;
            }
            // An operator may lift it meanwhile: it does not come back before it would have ended.
            state.seen.insert(key, now.after(ban.lasts));
            if signal.subject(raised.name.clear_key()).is_some_and(|banned| domain.never_bans_subject(&banned)) {
                table.note(of, name, BanEvent::Exempt);
                continue;
            }
            let (text, subject) = found;
            let refusals = Refusals {
                domain: of.into(),
                rule: name.into(),
                name: text.into(),
                subject,
                count: raised.count,
                at: now,
            };
            due.push(DueBan { refusals, cause: BanCause::Signal(signal, ban) });
        }
        due
    }

    fn note(&self, refusals: &Refusals, event: BanEvent) {
        self.observability.observer.refusals().note(&refusals.domain, &refusals.rule, event);
    }

    fn show(&self) {
        match self.state().waiting.len() {
            0 => self.health.restore(COMPONENT),
            count => self
                .health
                .degrade(COMPONENT, format!("{count} bans are in force here and wait for the store of record")),
        }
    }

    fn state(&self) -> MutexGuard<'_, BanState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds new refusals to those that are not settled.
fn sum_up(mut refusals: Vec<Refusals>, new: Vec<Refusals>) -> Vec<Refusals> {
    if refusals.is_empty() {
        return new;
    }
    let key = |one: &Refusals| (one.domain.clone(), one.rule.clone(), one.name.clone());
    let places: HashMap<_, usize> = refusals.iter().enumerate().map(|(place, one)| (key(one), place)).collect();
    for new in new {
        match places.get(&key(&new)) {
            Some(place) => refusals[*place].count = refusals[*place].count.saturating_add(new.count),
            None => refusals.push(new),
        }
    }
    refusals
}

/// The name of the block of someone for whom a signal is raised. A private name that only other servers have seen is masked already.
fn subject(signal: &Signal, name: &KeyName, table: &RefusalTable) -> Option<(String, SubjectKind)> {
    if signal.is_private() && name.key().starts_with('#') {
        let digest = name.key().get(..MASKED_CHARS)?;
        return Some((digest.to_owned(), SubjectKind::Masked));
    }
    table.name(&signal.subject(name.clear_key())?, signal.is_private())
}

/// `#` and the digits of the digest of a private name.
const MASKED_CHARS: usize = 33;

fn find_rule<'r>(rules: &'r Ruleset, domain: &str, rule: &str) -> Option<&'r Rule> {
    let domain = rules.domains().get(rules.domain_number(Some(domain))?)?;
    domain.rules().iter().find(|one| one.name() == rule)
}
