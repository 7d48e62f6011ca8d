//! Guardrails: a write that would refuse much of the recent traffic needs a confirmation, or the approval of somebody else.
//!
//! ```text
//! write ─▶ PlannedRecords ─ replay of recorded requests ─▶ Impact ─▶ passes, or is held as a plan until it is confirmed
//! ```
//!
//! Plans that are held are records, so any server of a fleet accepts their confirmation.

mod held;
mod snapshot;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tokio::sync::Semaphore;
use tollgate::tenants::OverrideCap;
use tollgate::{Algorithm, CallerCounters, ResolvedBy};
use tollgate_control::RecordName;
use tollgate_observe::{SAMPLED_TIME, TrafficExcerpt};
use tollgate_plan::{PlanReport, RecordedCaller, RecordedLimit, TrafficDescriptor, TrafficRecord};
use tollgate_records::RecordKind;
use tollgate_rules::RuleFile;
use tollgate_rules::pattern::Pattern;
#[cfg(test)]
use tollgate_telemetry::metrics::Metrics;
use tollgate_telemetry::metrics::{GuardedWrite, GuardrailMetrics};

use crate::observe::Observability;
use crate::plan::{PlannedChange, PlannedFile, PlannedRecord, TriedStage, recorded_name};
use crate::problem::ApiProblem;
use crate::rule_source::{FileGuard, FileVerdict};
use crate::store_of_record::ControlPlane;

pub(crate) use held::{Approval, HeldPlan, HeldReport, PLAN_LIFETIME, plan_id};
use snapshot::TrafficSnapshot;

/// The guardrails of a server.
pub struct Guardrails {
    config: GuardrailConfig,
    control: Arc<ControlPlane>,
    observability: Arc<Observability>,
    metrics: GuardrailMetrics,
    /// One change at a time is tried.
    planning: Arc<Semaphore>,
    /// The recorded requests as of the last judgement.
    snapshot: Mutex<Option<Arc<TrafficSnapshot>>>,
}

/// When a write is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardrailConfig {
    /// Whether writes by API are judged at all.
    pub on: bool,
    /// With a larger share of newly refused requests a write needs a confirmation, in basis points.
    pub confirm_bps: u16,
    /// The same, of the requests of one paid caller.
    pub paid_bps: u16,
    /// With a larger share a write needs an approval.
    pub approve_bps: u16,
    /// Nothing is known from fewer recorded requests.
    pub min_requests: u64,
    /// What happens to rule files that exceed the same shares.
    pub files: GuardedFiles,
}

/// What happens to changed rule files that would refuse much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardedFiles {
    /// They are put in force, with a warning.
    Warn,
    /// They are held until they change or are released.
    Hold,
    /// They are not judged.
    Off,
}

/// What a write needs to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PlanNeed {
    /// The writer confirms it.
    Confirmation,
    /// Somebody else approves it, and then it is confirmed.
    Approval,
}

/// What is known of a write before it is made.
#[derive(Debug)]
pub(crate) enum Judgement {
    /// It refuses little.
    Passes,
    /// Nothing is known of what it would do, for this reason.
    Unknown(String),
    /// It has to be held.
    Needs(PlanNeed, HeldReport),
}

/// How long a write waits for others that are judged.
const PLANNING_WAIT: Duration = Duration::from_secs(10);

impl Default for GuardrailConfig {
    fn default() -> GuardrailConfig {
        GuardrailConfig {
            on: true,
            confirm_bps: 500,
            paid_bps: 5_000,
            approve_bps: 5_000,
            min_requests: 20,
            files: GuardedFiles::Warn,
        }
    }
}

impl PlanNeed {
    /// The code of the answer to a write that is held.
    pub(crate) fn code(self) -> &'static str {
        match self {
            PlanNeed::Confirmation => "needs_confirmation",
            PlanNeed::Approval => "needs_approval",
        }
    }
}

impl GuardrailConfig {
    /// What a write needs that would do this, if `all` requests were decided in that time.
    fn need(&self, report: &PlanReport, all: u64) -> Option<PlanNeed> {
        let exceeds = |part: u64, whole: u64, bps: u16| u128::from(part) * 10_000 > u128::from(whole) * u128::from(bps);
        let refused = report.all.newly_refused;
        let paid = report.worst_paid.as_ref().map(|caller| caller.impact);
        match () {
            () if exceeds(refused, all, self.approve_bps) => Some(PlanNeed::Approval),
            () if exceeds(refused, all, self.confirm_bps) => Some(PlanNeed::Confirmation),
            () if paid.is_some_and(|one| exceeds(one.newly_refused, one.requests, self.paid_bps)) => {
                Some(PlanNeed::Confirmation)
            }
            () => None,
        }
    }
}

impl Guardrails {
    pub fn new(
        config: GuardrailConfig,
        control: Arc<ControlPlane>,
        observability: Arc<Observability>,
        metrics: GuardrailMetrics,
    ) -> Arc<Guardrails> {
        let (planning, snapshot) = (Arc::new(Semaphore::new(1)), Mutex::default());
        Arc::new(Guardrails { config, control, observability, metrics, planning, snapshot })
    }

    /// Those of a server in a test.
    #[cfg(test)]
    pub(crate) fn for_tests(
        control: &Arc<ControlPlane>,
        observability: &Arc<Observability>,
        metrics: &Metrics,
    ) -> Arc<Guardrails> {
        let (control, observability) = (control.clone(), observability.clone());
        Guardrails::new(GuardrailConfig::default(), control, observability, metrics.guardrails().clone())
    }

    pub(crate) fn config(&self) -> &GuardrailConfig {
        &self.config
    }

    /// Counts a write by what became of it.
    pub(crate) fn count(&self, write: GuardedWrite) {
        self.metrics.count(write);
    }

    /// A caller's name as it is shown without the scope `audit`.
    pub(crate) fn hash_key(&self, name: &str) -> String {
        self.observability.hash_key(name)
    }

    /// Judges what these records would do.
    ///
    /// # Errors
    /// If too many other writes are judged now.
    pub(crate) async fn judge(self: &Arc<Guardrails>, records: Vec<PlannedRecord>) -> Result<Judgement, ApiProblem> {
        if !self.observability.observer.traffic().config().on {
            return Ok(Judgement::Unknown("no recent traffic is recorded: `traffic_sample` is off".to_owned()));
        }
        let Ok(Ok(permit)) = tokio::time::timeout(PLANNING_WAIT, self.planning.clone().acquire_owned()).await else {
            let detail = "other changes are being tried on recent traffic; try again in a few seconds";
            return Err(ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail));
        };
        let absent = self.peek_absent(&records).await;
        let this = self.clone();
        let judged = tokio::task::spawn_blocking(move || {
            let judged = this.judge_now(records, absent);
            drop(permit);
            judged
        });
        Ok(judged.await.unwrap_or_else(|_| {
            tracing::error!("a change could not be tried on recent traffic; it is not held");
            Judgement::Unknown("the change could not be tried; see the log of the server".to_owned())
        }))
    }

    fn judge_now(&self, records: Vec<PlannedRecord>, absent: Option<TrafficRecord>) -> Judgement {
        let only = self.only_caller(&records);
        let has_stages = records.iter().any(PlannedRecord::has_stages);
        self.judge_change(&PlannedChange { files: None, records }, only, has_stages, absent)
    }

    fn judge_change(
        &self,
        change: &PlannedChange,
        only: Option<(String, String)>,
        has_stages: bool,
        absent: Option<TrafficRecord>,
    ) -> Judgement {
        let snapshot = self.snapshot();
        let recorded = snapshot.excerpt.records.len() as u64;
        let min = self.config.min_requests;
        if recorded < min {
            let minutes = SAMPLED_TIME.as_micros() / 60_000_000;
            return Judgement::Unknown(match recorded {
                0 => format!("no requests were recorded in the last {minutes} minutes"),
                _ => format!("fewer than {min} requests were recorded in the last {minutes} minutes: {recorded}"),
            });
        }
        let only = only.map(|(domain, name)| {
            let records = absent.map_or_else(|| snapshot.of_caller(&domain, &name), |one| vec![one]);
            TrafficExcerpt { records, is_complete: false }
        });
        let traffic = only.as_ref().unwrap_or(&snapshot.excerpt);
        let all = snapshot.requests;
        let privacy = &self.observability.key_privacy;
        let mut omitted = None;
        let mut worst: Option<(Option<PlanNeed>, PlanReport)> = None;
        for stage in [TriedStage::Last, TriedStage::First].into_iter().take(1 + usize::from(has_stages)) {
            let plan = match change.plan(&self.control, traffic, privacy, stage) {
                Ok(plan) => plan,
                Err(problem) => {
                    return Judgement::Unknown(format!("the change could not be tried: {}", problem.detail));
                }
            };
            omitted = omitted.or(plan.omitted.into_iter().next());
            let need = self.config.need(&plan.report, all);
            if worst.as_ref().is_none_or(|(other, _)| need > *other) {
                worst = Some((need, plan.report));
            }
        }
        match worst {
            Some((Some(need), report)) => {
                Judgement::Needs(need, HeldReport::new(&report, all, snapshot.excerpt.is_complete))
            }
            _ => omitted.map_or(Judgement::Passes, Judgement::Unknown),
        }
    }

    /// Of the quotas of an import, those that may change what is decided about recorded requests.
    pub(crate) fn relevant(&self) -> impl Fn(&RecordName) -> bool + Send + 'static {
        let (snapshot, observability) = (self.snapshot(), self.observability.clone());
        let rules = self.control.limiter().rules();
        move |name| {
            Pattern::new(&name.name).is_wild()
                || recorded_name(&name.name, &name.domain, &rules, &observability.key_privacy)
                    .is_some_and(|recorded| snapshot.has_caller(&name.domain, &recorded))
        }
    }

    /// The recorded requests. They are copied again only if there are many more of them.
    fn snapshot(&self) -> Arc<TrafficSnapshot> {
        let (traffic, now) = (self.observability.observer.traffic(), self.control.now());
        let rules = self.control.limiter().rules();
        let mut current = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(current) = current.as_ref().filter(|current| current.is_recent(traffic.recorded(), &rules, now)) {
            return current.clone();
        }
        let recorded = traffic.recorded();
        let snapshot = Arc::new(TrafficSnapshot::new(traffic.excerpt(now.before(SAMPLED_TIME)), recorded, rules, now));
        *current = Some(snapshot.clone());
        snapshot
    }

    /// The one caller that the change is for, as it is recorded; `None` if it may be for others.
    fn only_caller(&self, records: &[PlannedRecord]) -> Option<(String, String)> {
        let [PlannedRecord { kind: RecordKind::Quota, domain, name, .. }] = records else { return None };
        if !matches!(Pattern::new(name), Pattern::Exact(_)) {
            return None;
        }
        let rules = self.control.limiter().rules();
        let name = recorded_name(name, domain, &rules, &self.observability.key_privacy)?;
        Some((domain.clone(), name))
    }

    /// What is known of a caller.
    fn known_caller(peeked: &CallerCounters) -> RecordedCaller {
        let tier = peeked.tier.as_ref().map(|tier| tier.name.as_str().into());
        let own = peeked.counters.iter().filter(|(_, counter)| counter.by == ResolvedBy::Override);
        let overrides = own.map(|(name, counter)| {
            let limit = &counter.limit;
            let cap = match limit.algorithm() {
                Algorithm::Concurrency => OverrideCap::Amount(limit.amount()),
                _ => OverrideCap::Rate { amount: limit.amount(), period: limit.period().clone(), burst: None },
            };
            (name.name.as_str().into(), cap)
        });
        RecordedCaller { tier, overrides: overrides.collect() }
    }

    /// A request of the only caller that the change is for, if its requests are not recorded: one that it would send now.
    async fn peek_absent(&self, records: &[PlannedRecord]) -> Option<TrafficRecord> {
        let (domain_name, caller) = self.only_caller(records)?;
        let name = &records.first()?.name;
        let limiter = self.control.limiter();
        let rules = limiter.rules();
        let domain = rules.domain(Some(&domain_name)).ok()?;
        if self.observability.observer.traffic().includes(domain, name) {
            return None;
        }
        let peeked = limiter.peek(Some(&domain_name), None, name, &[]).await.ok()??;
        let limits: Box<[RecordedLimit]> = peeked
            .counters
            .iter()
            .map(|(name, counter)| RecordedLimit {
                rule: name.name.as_str().into(),
                period: counter.limit.period().span(),
                used: counter.used,
            })
            .collect();
        // A caller that has used nothing sends nothing.
        if limits.iter().all(|limit| limit.used == 0) {
            return None;
        }
        let entries = Box::new([(domain.entity()?.into(), caller.into_boxed_str())]);
        Some(TrafficRecord {
            at: peeked.at,
            domain: Some(domain_name.into()),
            descriptors: Box::new([TrafficDescriptor { entries, hits: None }]),
            cost: 1,
            copies: 1,
            callers: 1,
            caller: Guardrails::known_caller(&peeked),
            limits,
        })
    }
}

impl FileGuard for Guardrails {
    fn judge(&self, files: &[RuleFile]) -> FileVerdict {
        let is_recorded = self.observability.observer.traffic().config().on;
        if self.config.files == GuardedFiles::Off || !is_recorded {
            return FileVerdict::Passes;
        }
        let planned = |file: &RuleFile| PlannedFile { name: file.name.clone(), text: file.text.clone() };
        let files = Some(files.iter().map(planned).collect());
        match self.judge_change(&PlannedChange { files, records: Vec::new() }, None, false, None) {
            Judgement::Passes => FileVerdict::Passes,
            Judgement::Unknown(why) => {
                tracing::info!("what the changed rule files refuse is not known: {why}");
                FileVerdict::Passes
            }
            Judgement::Needs(_, report) if self.config.files == GuardedFiles::Hold => {
                self.metrics.count(GuardedWrite::Held);
                FileVerdict::Held(report.sentence_of("they"))
            }
            Judgement::Needs(_, report) => {
                self.metrics.count(GuardedWrite::Warned);
                FileVerdict::Warned(report.sentence_of("they"))
            }
        }
    }
}

impl std::fmt::Debug for Guardrails {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guardrails").field("config", &self.config).finish_non_exhaustive()
    }
}
