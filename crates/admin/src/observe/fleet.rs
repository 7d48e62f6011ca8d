//! Exchange between servers through a shared store of record: their heaviest keys and their load. Reports of other servers are cached
//! here, so that no request waits for the database. Without a shared store of record this server is alone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tollgate::{KeyPrivacy, Ruleset, Span, Timestamp};
use tollgate_control::{Db, DbLocation, MAX_SERVER_BYTES, SERVER_TTL, ServerRow};
use tollgate_core::KeySecret;
use tollgate_core::key::{HashSecret, Value};
use tollgate_observe::{DecisionOutcome, KeyName, SignalReport, Summary, SummaryKey, Window};

use super::Observability;
use super::fleet_events::FleetEvents;
use super::shares::{self, DemandMeter, RegionReport, ShareLine};
use super::signals::SignalLine;
use crate::store_of_record::{Author, ControlPlane};
use tollgate_net::Closing;

/// The fleet as this server knows it.
#[derive(Debug)]
pub struct Fleet {
    /// Identifies this server, even among servers with the same name.
    id: String,
    /// The secret of key hashes: the same on all servers that share a store of record.
    secret: RwLock<HashSecret>,
    state: Mutex<FleetState>,
    /// Events that another server sends.
    pub(super) events: FleetEvents,
}

#[derive(Debug, Default)]
struct FleetState {
    others: Vec<RemoteServer>,
    /// The recent load of this server.
    load: ServerLoad,
    /// The totals at the last count.
    counted: Option<(Timestamp, [u64; DecisionOutcome::ALL.len()])>,
    /// Whether the other servers have a report of this one.
    has_reported: bool,
    demand: DemandMeter,
    /// When shares were last planned.
    planned: Option<Timestamp>,
    /// When this server last reported, by the clock of the store of record.
    reported_at: Option<Timestamp>,
    /// The last change whose event is in the journal of a server.
    audit: Option<AuditPosition>,
}

/// A position in the audit log of a store of record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditPosition {
    /// Which store of record it is.
    pub identity: String,
    pub id: u64,
}

/// The last report of another server.
#[derive(Debug)]
struct RemoteServer {
    id: String,
    info: ServerInfo,
    seen_at: Timestamp,
    /// When the report expires, by this server's clock.
    until: Timestamp,
    /// One summary per window.
    lists: Vec<Arc<Summary>>,
    signals: Vec<SignalReport>,
    counting: Option<u64>,
    uptime: Span,
    shares: Vec<ShareLine>,
    audit: Option<AuditPosition>,
}

/// A server and its load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerInfo {
    pub name: String,
    pub region: Option<String>,
    pub version: String,
    pub rules_generation: u64,
    #[serde(flatten)]
    pub load: ServerLoad,
}

/// Decisions per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerLoad {
    pub decisions_per_second: f64,
    pub deny_per_second: f64,
}

/// A server of the fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetServer {
    pub info: ServerInfo,
    pub seen_at: Timestamp,
    /// Whether it is this server.
    pub this: bool,
}

/// The report of a server: a row of the table.
#[derive(Debug, Serialize, Deserialize)]
struct ServerReport {
    #[serde(flatten)]
    info: ServerInfo,
    lists: Vec<WindowReport>,
    /// Servers of earlier versions report none.
    #[serde(default)]
    signals: Vec<SignalLine>,
    /// How many servers count in the store of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    counting: Option<u64>,
    /// How long this one runs, in microseconds.
    #[serde(default)]
    uptime: u64,
    /// Rules whose shares follow demand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    shares: Vec<ShareLine>,
    /// The last change whose event is in the journal of a server that this one knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    audit: Option<AuditPosition>,
}

/// The heaviest keys of one window.
#[derive(Debug, Serialize, Deserialize)]
struct WindowReport {
    window: String,
    totals: [u64; 2],
    floors: [u64; 2],
    used_floor: u32,
    keys: Vec<KeyReport>,
}

/// Domain, rule, key, caller; counted and missed decisions and refusals; utilisation per mille.
#[derive(Debug, Serialize, Deserialize)]
struct KeyReport(String, String, String, Option<String>, [u64; 2], [u64; 2], Option<u32>);

/// How often servers report.
pub const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Time limit of the secret at the start.
const SECRET_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit of the last message.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(500);
/// Keys reported by each measure of a window; fewer in a large fleet, since every server reads every report.
const MAX_REPORTED_KEYS: usize = 256;
const MIN_REPORTED_KEYS: usize = 32;
const FLEET_REPORTED_KEYS: usize = 4_096;

/// The author of shares in the audit log.
const AUTHOR: &str = "tollgate";

const VERSION: &str = env!("CARGO_PKG_VERSION");

impl Default for Fleet {
    /// A single server with its own secret.
    fn default() -> Fleet {
        Fleet {
            id: format!("{:032x}", fastrand::u128(..)),
            secret: RwLock::new(drawn()),
            state: Mutex::default(),
            events: FleetEvents::default(),
        }
    }
}

impl Fleet {
    fn state(&self) -> MutexGuard<'_, FleetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A key as it is displayed where it must not be plain: 16 digits of a keyed hash.
    pub(super) fn hash_key(&self, text: &str) -> String {
        format!("#{:016x}", Value::Text(text).digest(self.hash_secret(), 0) as u64)
    }

    fn set_secret(&self, secret: &str) {
        let digest = Value::Text(secret).digest(HashSecret(0, 0), 0);
        *self.secret.write().unwrap_or_else(PoisonError::into_inner) = HashSecret((digest >> 64) as u64, digest as u64);
    }

    /// Unexpired summaries of the other servers for a window.
    pub(super) fn summaries(&self, window: Window, now: Timestamp) -> Vec<Arc<Summary>> {
        let place = Window::ALL.iter().position(|other| *other == window).unwrap_or(0);
        let state = self.state();
        let others = state.others.iter().filter(|other| now < other.until);
        others.filter_map(|other| other.lists.get(place).cloned()).collect()
    }

    /// Whether this server does what one server of the fleet does: the first by its id. Two may for some seconds, when one starts.
    pub(super) fn is_first(&self, now: Timestamp) -> bool {
        let state = self.state();
        let mut others = state.others.iter().filter(|other| now < other.until);
        others.all(|other| self.id < other.id)
    }

    /// What the other servers counted for signals.
    pub(super) fn signal_reports(&self, now: Timestamp) -> Vec<SignalReport> {
        let state = self.state();
        state.others.iter().filter(|other| now < other.until).flat_map(|other| other.signals.iter().cloned()).collect()
    }

    /// The secret of all hashes that servers exchange.
    fn hash_secret(&self) -> HashSecret {
        *self.secret.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn others(&self, now: Timestamp) -> Vec<FleetServer> {
        let state = self.state();
        let others = state.others.iter().filter(|other| now < other.until);
        others.map(|other| FleetServer { info: other.info.clone(), seen_at: other.seen_at, this: false }).collect()
    }

    /// Replaces the reports by these rows.
    fn update(&self, rows: Vec<ServerRow>, now: Timestamp) {
        let reported_at = rows.iter().find(|row| row.id == self.id).map(|row| row.at);
        let others =
            rows.into_iter().filter(|row| row.id != self.id).filter_map(|row| RemoteServer::from_row(&row, now));
        let others = others.collect();
        let mut state = self.state();
        (state.others, state.reported_at) = (others, reported_at);
    }

    /// Updates the load from the totals since the last call.
    fn record_load(&self, totals: [u64; DecisionOutcome::ALL.len()], now: Timestamp) {
        let mut state = self.state();
        if let Some((then, before)) = state.counted {
            let seconds = now.since(then).as_micros().max(1) as f64 / 1e6;
            let new = |outcome: Option<DecisionOutcome>| {
                let new = DecisionOutcome::ALL.into_iter().filter(|one| outcome.is_none_or(|outcome| outcome == *one));
                new.map(|one| totals[one as usize].saturating_sub(before[one as usize])).sum::<u64>() as f64 / seconds
            };
            state.load =
                ServerLoad { decisions_per_second: new(None), deny_per_second: new(Some(DecisionOutcome::Deny)) };
        }
        state.counted = Some((now, totals));
    }
}

impl RemoteServer {
    fn from_row(row: &ServerRow, now: Timestamp) -> Option<RemoteServer> {
        let report = serde_json::from_str::<ServerReport>(&row.document);
        let mut report =
            report.inspect_err(|error| tracing::debug!(%error, "the report of another server can't be read")).ok()?;
        let list = |window: Window| {
            let list = report.lists.iter().find(|list| list.window == window.name());
            Arc::new(list.map(WindowReport::summary).unwrap_or_default())
        };
        let left = Span::from_micros(SERVER_TTL.as_micros().saturating_sub(row.age.as_micros()));
        let lists = Window::ALL.into_iter().map(list).collect();
        let signals = std::mem::take(&mut report.signals).into_iter().filter_map(SignalLine::into_report).collect();
        let ServerReport { info, counting, uptime, shares, audit, .. } = report;
        let uptime = Span::from_micros(uptime);
        Some(RemoteServer {
            id: row.id.clone(),
            seen_at: row.at,
            until: now.after(left),
            lists,
            signals,
            info,
            counting,
            uptime,
            shares,
            audit,
        })
    }
}

impl WindowReport {
    fn new(window: Window, summary: &Summary) -> WindowReport {
        let (floors, used_floor) = summary.floors();
        let keys = summary.keys().map(|listed| {
            let name = &listed.name;
            let caller = name.caller().map(str::to_owned);
            let [domain, rule, key] = [name.domain(), name.rule(), name.key()].map(str::to_owned);
            KeyReport(domain, rule, key, caller, listed.counted, listed.missed, listed.used_permille)
        });
        let (window, totals) = (window.name().to_owned(), summary.totals());
        WindowReport { window, totals, floors, used_floor, keys: keys.collect() }
    }

    fn summary(&self) -> Summary {
        let keys = self.keys.iter().map(|KeyReport(domain, rule, key, caller, counted, missed, used)| SummaryKey {
            name: KeyName::new(domain, rule, key, caller.as_deref()),
            counted: *counted,
            missed: *missed,
            used_permille: *used,
        });
        Summary::from_keys(self.totals, (self.floors, self.used_floor), keys)
    }
}

impl Observability {
    /// All servers of the fleet, this one first.
    pub fn servers(&self, rules_generation: u64, now: Timestamp) -> Vec<FleetServer> {
        let this = FleetServer { info: self.info(rules_generation), seen_at: now, this: true };
        [this].into_iter().chain(self.fleet.others(now)).collect()
    }

    /// Whether this server sends the events of changes now. In a fleet it has to know of the others first.
    pub fn sends_fleet_events(&self, db: &Db, now: Timestamp) -> bool {
        (!is_shared(db) || self.fleet.state().reported_at.is_some()) && self.fleet.is_first(now)
    }

    /// The last change whose event was sent, as far as other servers reported.
    pub fn reported_audit_position(&self, identity: &str) -> Option<u64> {
        let state = self.fleet.state();
        let reported = state.others.iter().filter_map(|other| other.audit.as_ref());
        reported.filter(|position| position.identity == identity).map(|position| position.id).max()
    }

    /// Reports a position to the other servers.
    pub fn report_audit_position(&self, position: AuditPosition) {
        self.fleet.state().audit = Some(position);
    }

    fn info(&self, rules_generation: u64) -> ServerInfo {
        ServerInfo {
            name: self.name.clone(),
            region: self.region.clone(),
            version: VERSION.to_owned(),
            rules_generation,
            load: self.fleet.state().load,
        }
    }

    /// The report of this server. It takes a while to build.
    fn report(&self, rules: &Ruleset, (counting, uptime): (Option<u64>, Span), now: Timestamp) -> String {
        let shares = self.fleet.state().demand.report(rules);
        let servers = self.fleet.others(now).len() + 1;
        let signals = self.observer.signals().report(rules, servers, &self.fleet.signal_reports(now));
        let mut signals: Vec<SignalLine> = signals.iter().map(SignalLine::new).collect();
        let mut max_keys = (FLEET_REPORTED_KEYS / servers).clamp(MIN_REPORTED_KEYS, MAX_REPORTED_KEYS);
        loop {
            let list = |window| {
                WindowReport::new(
                    window,
                    &self.observer.heavy_hitters().summary(window, now).by_name().limited_to(max_keys),
                )
            };
            let (info, lists) = (self.info(rules.generation()), Window::ALL.map(list).into());
            let (shares, audit) = (shares.clone(), self.fleet.state().audit.clone());
            let report = ServerReport { info, lists, signals, counting, uptime: uptime.as_micros(), shares, audit };
            // Texts and numbers are always valid JSON.
            let text = serde_json::to_string(&report).unwrap_or_default();
            // Only if nearly all keys have maximal length.
            if text.len() <= MAX_SERVER_BYTES || (max_keys == 0 && report.signals.is_empty()) {
                return text;
            }
            max_keys /= 2;
            signals = report.signals;
            signals.truncate(signals.len() / 2);
        }
    }
}

/// Exchanges reports with the other servers, and logs keys with sustained use, until the server is about to stop.
/// Every `share_interval`, one of them plans the shares of regions that follow demand.
pub async fn run(
    observability: Arc<Observability>,
    control: Arc<ControlPlane>,
    share_interval: Duration,
    mut closing: Closing,
) {
    let mut every = interval(REPORT_INTERVAL.min(share_interval));
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut event, mut agreed) = (0, false);
    loop {
        tokio::select! {
            _ = every.tick() => {}
            () = closing.begun() => return,
        }
        let now = control.now();
        observability.fleet.record_load(observability.observer.tally().totals(), now);
        event = log_sustained(&observability, event, now);
        let rules = control.limiter().rules();
        observability.fleet.state().demand.measure(&rules, observability.observer.tally(), now);
        let Some(db) = control.db() else { continue };
        let exchange = async {
            if !agreed {
                let secret = db.secret().await?;
                agree_on(&observability, db, &secret);
                if !observability.shares_counters {
                    share_secret(&observability.key_privacy, db, &secret);
                }
                agreed = true;
            }
            let exchanged = exchange(&observability, &control, db).await;
            if exchanged.is_ok() && is_shared(db) {
                move_shares(&observability, &control, share_interval).await;
            }
            exchanged
        };
        tokio::select! {
            // While the database is unavailable this server is alone: old reports expire.
            exchanged = exchange => {
                observability.fleet.state().has_reported = exchanged.is_ok() && is_shared(db);
                if let Err(error) = exchanged {
                    tracing::debug!(%error, "no report was sent to the other servers");
                }
            }
            () = closing.begun() => return,
        }
    }
}

/// Withdraws this server's report when it stops, so that the others need not wait until it expires. Best effort.
pub async fn leave(observability: Arc<Observability>, control: Arc<ControlPlane>) {
    let has_reported = observability.fleet.state().has_reported;
    if let Some(db) = control.db().filter(|_| has_reported) {
        let _ = timeout(LEAVE_TIMEOUT, db.remove_server(&observability.fleet.id)).await;
    }
}

async fn exchange(
    observability: &Arc<Observability>,
    control: &ControlPlane,
    db: &Db,
) -> Result<(), tollgate_control::DbError> {
    if !is_shared(db) {
        return Ok(());
    }
    let (reporting, rules, now) = (observability.clone(), control.limiter().rules(), control.now());
    let counting = (counting(control), control.uptime());
    let report = tokio::task::spawn_blocking(move || reporting.report(&rules, counting, now)).await;
    if let Ok(report) = report {
        db.put_server(&observability.fleet.id, &report).await?;
    }
    let rows = db.servers().await?;
    let (updating, now) = (observability.clone(), control.now());
    // A panic has been logged.
    let _ = tokio::task::spawn_blocking(move || updating.fleet.update(rows, now)).await;
    Ok(())
}

/// The servers that count in the store of this one; `None` if that is not known.
fn counting(control: &ControlPlane) -> Option<u64> {
    let guard = control.limiter().store().shared()?.status().guard;
    guard.heartbeat_error.is_none().then_some(guard.replicas)
}

/// Uses the shares of the store of record, now that the other servers know of this one; and plans the next ones, if this is the
/// server that does it: the first by its id.
async fn move_shares(observability: &Observability, control: &Arc<ControlPlane>, share_interval: Duration) {
    control.know_shares().await;
    let (rules, now) = (control.limiter().rules(), control.now());
    let changes = {
        let mut state = observability.fleet.state();
        let FleetState { others, demand, planned, reported_at, .. } = &mut *state;
        let others = || others.iter().filter(|other| now < other.until);
        let is_due = planned.is_none_or(|then| now.since(then).as_micros() >= share_interval.as_micros() as u64);
        if !is_due || others().any(|other| other.id < observability.fleet.id) {
            return;
        }
        *planned = Some(now);
        let own = demand.report(&rules);
        let mut reports: Vec<RegionReport<'_>> = others()
            .filter_map(|other| {
                let region = other.info.region.as_deref()?;
                let RemoteServer { seen_at, uptime, counting, shares, .. } = other;
                Some(RegionReport { region, at: *seen_at, uptime: *uptime, counting: *counting, lines: shares })
            })
            .collect();
        let here = observability.region.as_deref();
        let (uptime, counting) = (control.uptime(), counting(control));
        let own = here.zip(*reported_at).map(|(region, at)| RegionReport { region, at, uptime, counting, lines: &own });
        reports.extend(own);
        shares::plan(&rules, &reports, now, |domain, rule| control.shares(domain, rule))
    };
    if changes.is_empty() {
        return;
    }
    let author = Author { name: AUTHOR.to_owned(), from: String::new() };
    match control.write(&author, changes, None).await {
        Ok(_) => tracing::debug!("shares of regions follow demand"),
        // Another server was faster, or the store of record is away: the last shares hold.
        Err(why) => tracing::debug!(?why, "shares of regions were not written"),
    }
}

fn log_sustained(observability: &Observability, event: u64, now: Timestamp) -> u64 {
    let (event, started) = observability.observer.sustained_since(event, now);
    for one in started {
        tracing::info!(
            domain = one.name.domain(),
            rule = one.name.rule(),
            key = observability.fleet.hash_key(one.name.key()),
            tier = &*one.terms.tier,
            limit = one.terms.limit.amount(),
            used_percent = one.used_permille / 10,
            "a caller has been near its limit for 5 minutes; see /admin/v1/sustained for the caller and a tier that would fit"
        );
    }
    event
}

/// Uses the secret of a shared store of record for private values: servers with counters of their own write to one decision
/// log.
fn share_secret(privacy: &KeyPrivacy, db: &Db, secret: &str) {
    if let Some(secret) = KeySecret::derive(secret.as_bytes()).filter(|_| is_shared(db)) {
        privacy.share(secret);
    }
}

/// The same before the first decision. A store of record that is unavailable shares it later.
pub async fn share_key_secret(privacy: &KeyPrivacy, db: &Db) {
    if is_shared(db)
        && let Ok(Ok(secret)) = timeout(SECRET_TIMEOUT, db.secret()).await
    {
        share_secret(privacy, db, &secret);
    }
}

/// Uses the secret of a store of record for all hashes that servers exchange.
fn agree_on(observability: &Observability, db: &Db, secret: &str) {
    observability.fleet.set_secret(secret);
    // Whoever counts alone goes on with its own: what was counted with another secret is dropped.
    if is_shared(db) {
        observability.observer.signals().use_secret(observability.fleet.hash_secret());
    }
}

/// The same before the first decision, so that nothing is counted in vain. A store of record that is unavailable has it later.
pub async fn agree_early(observability: &Observability, db: &Db) {
    if is_shared(db)
        && let Ok(Ok(secret)) = timeout(SECRET_TIMEOUT, db.secret()).await
    {
        agree_on(observability, db, &secret);
    }
}

/// Whether other servers use it too.
fn is_shared(db: &Db) -> bool {
    matches!(db.location(), DbLocation::Postgres(_))
}

fn drawn() -> HashSecret {
    use std::hash::BuildHasher as _;
    let random = std::collections::hash_map::RandomState::new();
    HashSecret(random.hash_one(0u8), random.hash_one(1u8))
}

#[cfg(test)]
mod tests;
