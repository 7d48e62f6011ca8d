//! What servers tell each other of what they see, through the store of record where that is shared: their heaviest keys, and how busy they
//! are. What others told is kept here, so that who asks never waits for the database; without it this server is alone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tollgate::{Span, Timestamp};
use tollgate_control::{Db, KEEP_SERVERS, LONGEST_SERVER, Place, ServerRow};
use tollgate_core::key::{Secret, Value};
use tollgate_observe::{ListedKey, Name, Ruling, Summary, Window};

use super::Sight;
use crate::control::Control;
use crate::net::Closing;

/// What is known of a fleet.
#[derive(Debug)]
pub(crate) struct Fleet {
    /// Tells servers apart, also those with one name.
    id: String,
    /// The key of hashes that stand for callers: the same on all servers of a store of record.
    secret: RwLock<Secret>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    others: Vec<Other>,
    /// How busy this server was lately.
    busy: Busy,
    /// What was counted by then.
    counted: Option<(Timestamp, [u64; Ruling::ALL.len()])>,
    /// The others know of this server.
    has_told: bool,
}

/// What another server told.
#[derive(Debug)]
struct Other {
    about: About,
    seen_at: Timestamp,
    /// Until when it is true, by this server's clock.
    until: Timestamp,
    /// For each window.
    lists: Vec<Arc<Summary>>,
}

/// A server, and how busy it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct About {
    pub(crate) name: String,
    pub(crate) region: Option<String>,
    pub(crate) version: String,
    pub(crate) rules_generation: u64,
    #[serde(flatten)]
    pub(crate) busy: Busy,
}

/// Decisions in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Busy {
    pub(crate) decisions_per_second: f64,
    pub(crate) deny_per_second: f64,
}

/// A server of the fleet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KnownServer {
    pub(crate) about: About,
    pub(crate) seen_at: Timestamp,
    /// It is the one that says so.
    pub(crate) this: bool,
}

/// What a server tells: a row of the table.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    #[serde(flatten)]
    about: About,
    lists: Vec<List>,
}

/// The heaviest keys of a window.
#[derive(Debug, Serialize, Deserialize)]
struct List {
    window: String,
    totals: [u64; 2],
    floors: [u64; 2],
    used_floor: u32,
    keys: Vec<Listed>,
}

/// Domain, rule, key, caller; what was counted, what may be missing, and how full it was.
#[derive(Debug, Serialize, Deserialize)]
struct Listed(String, String, String, Option<String>, [u64; 2], [u64; 2], Option<u32>);

/// How often servers tell each other.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// How long the last word may take.
const LEAVE_WITHIN: Duration = Duration::from_millis(500);
/// The most keys that are told by each measure of a window; fewer in a large fleet, since everybody reads what everybody tells.
const MOST_TOLD: usize = 256;
const FEWEST_TOLD: usize = 32;
const TOLD_BY_ALL: usize = 4_096;

const VERSION: &str = env!("CARGO_PKG_VERSION");

impl Default for Fleet {
    /// A server alone, with a secret of its own.
    fn default() -> Fleet {
        Fleet { id: format!("{:032x}", fastrand::u128(..)), secret: RwLock::new(drawn()), state: Mutex::default() }
    }
}

impl Fleet {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A caller's text where it is not shown: 16 digits of a keyed hash.
    pub(super) fn hidden(&self, text: &str) -> String {
        let secret = *self.secret.read().unwrap_or_else(PoisonError::into_inner);
        format!("#{:016x}", Value::Text(text).digest(secret, 0) as u64)
    }

    fn agree(&self, secret: &str) {
        let digest = Value::Text(secret).digest(Secret(0, 0), 0);
        *self.secret.write().unwrap_or_else(PoisonError::into_inner) = Secret((digest >> 64) as u64, digest as u64);
    }

    /// What others told of a window, and is still true.
    pub(super) fn told(&self, window: Window, now: Timestamp) -> Vec<Arc<Summary>> {
        let place = Window::ALL.iter().position(|known| *known == window).unwrap_or(0);
        let state = self.state();
        let others = state.others.iter().filter(|other| now < other.until);
        others.filter_map(|other| other.lists.get(place).cloned()).collect()
    }

    fn others(&self, now: Timestamp) -> Vec<KnownServer> {
        let state = self.state();
        let others = state.others.iter().filter(|other| now < other.until);
        others.map(|other| KnownServer { about: other.about.clone(), seen_at: other.seen_at, this: false }).collect()
    }

    /// What all servers told, read now.
    fn heard(&self, rows: Vec<ServerRow>, now: Timestamp) {
        let others = rows.into_iter().filter(|row| row.id != self.id).filter_map(|row| Other::of(&row, now));
        let others = others.collect();
        self.state().others = others;
    }

    /// How busy it is since it was asked last.
    fn count(&self, totals: [u64; Ruling::ALL.len()], now: Timestamp) {
        let mut state = self.state();
        if let Some((then, before)) = state.counted {
            let seconds = now.since(then).as_micros().max(1) as f64 / 1e6;
            let new = |ruling: Option<Ruling>| {
                let new = Ruling::ALL.into_iter().filter(|one| ruling.is_none_or(|ruling| ruling == *one));
                new.map(|one| totals[one as usize].saturating_sub(before[one as usize])).sum::<u64>() as f64 / seconds
            };
            state.busy = Busy { decisions_per_second: new(None), deny_per_second: new(Some(Ruling::Deny)) };
        }
        state.counted = Some((now, totals));
    }
}

impl Other {
    fn of(row: &ServerRow, now: Timestamp) -> Option<Other> {
        let told = serde_json::from_str::<Told>(&row.document);
        let told =
            told.inspect_err(|error| tracing::debug!(%error, "another server's words are not understood")).ok()?;
        let list = |window: Window| {
            let list = told.lists.iter().find(|list| list.window == window.name());
            Arc::new(list.map(List::summary).unwrap_or_default())
        };
        let left = Span::from_micros(KEEP_SERVERS.as_micros().saturating_sub(row.age.as_micros()));
        let lists = Window::ALL.into_iter().map(list).collect();
        Some(Other { seen_at: row.at, until: now.after(left), lists, about: told.about })
    }
}

impl List {
    fn of(window: Window, summary: &Summary) -> List {
        let (floors, used_floor) = summary.floors();
        let keys = summary.listed().map(|listed| {
            let name = &listed.name;
            let caller = name.caller().map(str::to_owned);
            let [domain, rule, key] = [name.domain(), name.rule(), name.key()].map(str::to_owned);
            Listed(domain, rule, key, caller, listed.seen, listed.missed, listed.used_of_1_000)
        });
        let (window, totals) = (window.name().to_owned(), summary.totals());
        List { window, totals, floors, used_floor, keys: keys.collect() }
    }

    fn summary(&self) -> Summary {
        let keys = self.keys.iter().map(|Listed(domain, rule, key, caller, seen, missed, used)| ListedKey {
            name: Name::new(domain, rule, key, caller.as_deref()),
            seen: *seen,
            missed: *missed,
            used_of_1_000: *used,
        });
        Summary::told(self.totals, (self.floors, self.used_floor), keys)
    }
}

impl Sight {
    /// All servers that are known, this one first.
    pub(crate) fn servers(&self, rules_generation: u64, now: Timestamp) -> Vec<KnownServer> {
        let this = KnownServer { about: self.about(rules_generation), seen_at: now, this: true };
        [this].into_iter().chain(self.fleet.others(now)).collect()
    }

    fn about(&self, rules_generation: u64) -> About {
        About {
            name: self.name.clone(),
            region: self.region.clone(),
            version: VERSION.to_owned(),
            rules_generation,
            busy: self.fleet.state().busy,
        }
    }

    /// What this server tells the others. It takes a while.
    fn told(&self, rules_generation: u64, now: Timestamp) -> String {
        let servers = self.fleet.others(now).len() + 1;
        let mut most = (TOLD_BY_ALL / servers).clamp(FEWEST_TOLD, MOST_TOLD);
        loop {
            let list = |window| List::of(window, &self.observer.hitters().summary(window, now).by_name().first(most));
            let told = Told { about: self.about(rules_generation), lists: Window::ALL.map(list).into() };
            // Names and numbers have a form.
            let text = serde_json::to_string(&told).unwrap_or_default();
            // Only where nearly all keys are as long as they may be.
            if text.len() <= LONGEST_SERVER || most == 0 {
                return text;
            }
            most /= 2;
        }
    }
}

/// Tells the other servers of this one and listens to them, and logs who has come to be near a limit for long, until the server is about
/// to stop.
pub(crate) async fn keep(sight: Arc<Sight>, control: Arc<Control>, mut closing: Closing) {
    let mut every = interval(TELL_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut event, mut agreed) = (0, false);
    loop {
        tokio::select! {
            _ = every.tick() => {}
            () = closing.begun() => return,
        }
        let now = control.now();
        sight.fleet.count(sight.observer.tally().totals(), now);
        event = say_sustained(&sight, event, now);
        let Some(db) = control.db() else { continue };
        let exchange = async {
            if !agreed {
                sight.fleet.agree(&db.secret().await?);
                agreed = true;
            }
            exchange(&sight, &control, db).await
        };
        tokio::select! {
            // It may be away: then this server is alone, and what it heard last is forgotten in time.
            exchanged = exchange => {
                sight.fleet.state().has_told = exchanged.is_ok() && is_shared(db);
                if let Err(error) = exchanged {
                    tracing::debug!(%error, "nothing was told to other servers");
                }
            }
            () = closing.begun() => return,
        }
    }
}

/// The last word: the others need not wait until what this server told is too old. Not much time is spent on it.
pub(crate) async fn leave(sight: Arc<Sight>, control: Arc<Control>) {
    let has_told = sight.fleet.state().has_told;
    if let Some(db) = control.db().filter(|_| has_told) {
        let _ = timeout(LEAVE_WITHIN, db.leave(&sight.fleet.id)).await;
    }
}

async fn exchange(sight: &Arc<Sight>, control: &Control, db: &Db) -> Result<(), tollgate_control::DbError> {
    if !is_shared(db) {
        return Ok(());
    }
    let (telling, generation, now) = (sight.clone(), control.limiter().rules().generation(), control.now());
    let told = tokio::task::spawn_blocking(move || telling.told(generation, now)).await;
    if let Ok(told) = told {
        db.tell(&sight.fleet.id, &told).await?;
    }
    let rows = db.servers().await?;
    let (hearing, now) = (sight.clone(), control.now());
    // One that panicked has said so.
    let _ = tokio::task::spawn_blocking(move || hearing.fleet.heard(rows, now)).await;
    Ok(())
}

fn say_sustained(sight: &Sight, event: u64, now: Timestamp) -> u64 {
    let (event, begun) = sight.observer.sustained_since(event, now);
    for one in begun {
        tracing::info!(
            domain = one.name.domain(),
            rule = one.name.rule(),
            key = sight.fleet.hidden(one.name.key()),
            tier = &*one.terms.tier,
            limit = one.terms.limit.amount(),
            used_percent = one.used_of_1_000 / 10,
            "a caller has been near its limit for 5 minutes: /admin/v1/sustained says who, and what would fit"
        );
    }
    event
}

/// Whether others write to it too.
fn is_shared(db: &Db) -> bool {
    matches!(db.place(), Place::Postgres(_))
}

fn drawn() -> Secret {
    use std::hash::BuildHasher as _;
    let random = std::collections::hash_map::RandomState::new();
    Secret(random.hash_one(0u8), random.hash_one(1u8))
}

#[cfg(test)]
mod tests;
