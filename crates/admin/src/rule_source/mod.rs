//! Rule files and the layer above them: loaded at the start, reloaded on change. Invalid rules never take effect.

mod guard;
mod last_good;
mod layer;
mod measure;
mod pending;
mod reload;
mod removed;
mod source;
#[cfg(test)]
mod tests;
mod watcher;
mod writes;

use std::sync::Arc;

use tollgate::{Clock as _, Layer, Limiter, RuleProblem, Ruleset, SystemClock, Timestamp};
use tollgate_records::Rfc3339;
use tollgate_rules::{RuleFile, RuleFiles};

use tollgate_store::Counters;
use tollgate_telemetry::Health;
use tollgate_telemetry::metrics::{Metrics, RulesMetrics};

use measure::ChangeTimes;
use pending::{FilesSeen, PendingFiles};
use removed::RemovedRules;
use writes::FileWrites;

pub use guard::{FileGuard, FileVerdict, HeldFiles};
pub use last_good::LastGood;
pub use layer::LayerHandle;
pub use reload::ReloadStatus;
pub use source::{RuleChanges, RuleSource, SourceState};
pub use watcher::{Waker, watch};

/// Reloads the files and the layer above them.
#[derive(Debug)]
pub struct RuleReloader {
    source: RuleSource,
    limiter: Arc<Limiter<Counters>>,
    last_good: Option<LastGood>,
    health: Arc<Health>,
    metrics: RulesMetrics,
    state: SourceState,
    generation: u64,
    clock: SystemClock,
    /// What the file system reports of writes to the files.
    writes: FileWrites,
    pending: PendingFiles,
    times: ChangeTimes,
    /// Judges changed files.
    guard: Option<Arc<dyn FileGuard>>,
}

/// The health component of rules.
const COMPONENT: &str = "rules";

impl RuleReloader {
    pub fn new(
        source: RuleSource,
        state: SourceState,
        errors: &[RuleProblem],
        limiter: Arc<Limiter<Counters>>,
        last_good: Option<LastGood>,
        health: Arc<Health>,
        metrics: &Metrics,
    ) -> RuleReloader {
        let clock = SystemClock::default();
        let (metrics, times) = (metrics.rules().clone(), ChangeTimes::new(metrics.changes().clone(), clock.now()));
        let generation = limiter.rules().generation();
        if let Some(held) = source.held() {
            let error = report_held(&held, &health, &metrics);
            source.reloaded(ReloadStatus { generation, error: Some(error), at: None });
        } else if errors.is_empty() {
            metrics.reloaded(clock.now());
            source.reloaded(ReloadStatus { generation, error: None, at: Some(clock.now()) });
        } else {
            let error = report_invalid(errors, &health, &metrics);
            source.reloaded(ReloadStatus { generation, error: Some(error), at: None });
        }
        let (writes, pending) = Default::default();
        RuleReloader {
            source,
            limiter,
            last_good,
            health,
            metrics,
            state,
            generation,
            clock,
            writes,
            pending,
            times,
            guard: None,
        }
    }

    /// With a guard of changed files.
    pub fn with_guard(self, guard: Arc<dyn FileGuard>) -> RuleReloader {
        RuleReloader { guard: Some(guard), ..self }
    }

    /// Reads the files and the layer, and installs them if they changed and are valid. `forced`: even if they did not change.
    ///
    /// Returns when to call this again, if changed files may be incomplete. Meanwhile a new layer takes effect above the files in
    /// force.
    fn reload_at(&mut self, forced: bool, now: Timestamp) -> Option<Timestamp> {
        // Before the layer is read, which then has these changes.
        self.times.add(self.source.layer.take_written());
        let layer = self.source.layer.current();
        let again = self.reload_under(&layer, forced, now);
        if let Some(good) = self.source.in_force() {
            self.times.layer_in_force(&layer, &good.layer, self.clock.now());
        }
        again
    }

    fn reload_under(&mut self, layer: &Arc<Layer>, forced: bool, now: Timestamp) -> Option<Timestamp> {
        // Before the files are read: what is reported later may be missing in them.
        let completed = self.writes.take_completed();
        let files = self.source.read();
        let state = SourceState::new(&files, layer.clone());
        let has_new_files = state.files != self.state.files;
        if has_new_files {
            if completed || forced {
                self.pending.announce();
            }
            let seen = FilesSeen { digest: state.files, open: self.writes.last_open() };
            if let Some(again) = self.pending.wait_until(seen, now) {
                self.fall_back(layer);
                return Some(again);
            }
        } else {
            self.pending.end();
            self.times.unchanged(now);
            if state.is_same(&self.state) && !forced {
                return None;
            }
        }
        let sources = files.sources.clone();
        let compiled = self.source.compile(files, layer, self.generation + 1);
        let removed = match &compiled {
            Ok((rules, _)) if has_new_files => RemovedRules::between(&self.limiter.rules(), rules),
            _ => None,
        };
        if removed.is_some()
            && let Some(again) = self.pending.confirm_at(now)
        {
            self.fall_back(layer);
            return Some(again);
        }
        self.pending.end();
        self.state = state;
        if compiled.is_ok()
            && let Some(why) = self.held(&sources, layer)
        {
            self.source.wait_for(None, &[]);
            self.fall_back(layer);
            self.source.failed(self.generation, why);
            return None;
        }
        match compiled {
            Ok((rules, warnings)) => {
                if let Some(removed) = removed {
                    tracing::warn!("the changed rule files no longer have these rules, which end now: {removed}");
                }
                // A new layer alone does not change the stored files.
                let is_stored = self.source.are_in_force(&sources) && !forced;
                self.install(rules, sources.clone(), layer.clone());
                if has_new_files {
                    self.times.files_in_force(&sources, self.clock.now());
                }
                self.source.wait_for(None, &[]);
                self.in_force(&warnings);
                if let Some(last_good) = self.last_good.as_ref().filter(|_| !self.source.paths.is_empty() && !is_stored)
                {
                    last_good.store(&sources);
                }
            }
            Err(problems) => {
                let error = report_invalid(&problems, &self.health, &self.metrics);
                self.source.wait_for(Some(sources), &problems);
                self.fall_back(layer);
                self.source.failed(self.generation, error);
            }
        }
        None
    }

    /// Why valid files are not put in force, if they are held.
    fn held(&mut self, sources: &[RuleFile], layer: &Layer) -> Option<String> {
        let version = guard::files_version(sources);
        let before = self.source.held();
        let is_free = self.source.are_in_force(sources) || layer.released_files.contains(&version);
        let held = match before.as_deref().filter(|held| held.version == version) {
            _ if is_free => None,
            Some(held) => Some(held.clone()),
            None => match self.guard.as_ref()?.judge(sources) {
                FileVerdict::Passes => None,
                FileVerdict::Warned(why) => {
                    tracing::warn!("the changed rule files are put in force, although {why}");
                    None
                }
                FileVerdict::Held(why) => Some(HeldFiles { version, why, since: Rfc3339(self.clock.now()) }),
            },
        };
        if held.as_ref() != before.as_deref() {
            self.source.hold(held.clone());
            self.last_good.iter().for_each(|last_good| last_good.store_held(held.as_ref()));
        }
        held.map(|held| report_held(&held, &self.health, &self.metrics))
    }

    /// Installs as much of a layer as is valid above the last good files: all of it, else its switches, which are always valid.
    /// A kill switch must work whatever the state of the files and of other rules.
    fn fall_back(&mut self, layer: &Arc<Layer>) {
        let Some(good) = self.source.in_force() else { return };
        let switches = Layer { rules: good.layer.rules.clone(), ..Layer::clone(layer) };
        for layer in [layer.clone(), Arc::new(switches)] {
            if *layer == *good.layer {
                return;
            }
            let files = RuleFiles::from_files(good.sources.clone());
            if let Ok((rules, _)) = self.source.compile(files, &layer, self.generation + 1) {
                self.install(rules, good.sources.clone(), layer);
                self.source.set_generation(self.generation);
                tracing::info!(
                    generation = self.generation,
                    "the changes by API are in force above the last good rules"
                );
                return;
            }
        }
    }

    fn install(&mut self, rules: Ruleset, sources: Vec<RuleFile>, layer: Arc<Layer>) {
        self.generation += 1;
        self.limiter.install(rules);
        self.source.put_in_force(sources, layer);
    }

    fn in_force(&self, warnings: &[RuleProblem]) {
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        let rules = self.limiter.rules();
        let count: usize = rules.domains().iter().map(|domain| domain.rules().len()).sum();
        tracing::info!(generation = self.generation, domains = rules.domains().len(), rules = count, "rules in force");
        let now = self.clock.now();
        self.metrics.reloaded(now);
        self.source.reloaded(ReloadStatus { generation: self.generation, error: None, at: Some(now) });
        self.health.restore(COMPONENT);
    }
}

/// Reports held files to the log, health and metrics, and returns the message.
fn report_held(held: &HeldFiles, health: &Health, metrics: &RulesMetrics) -> String {
    let report = held.report();
    tracing::error!("{report}");
    metrics.refused();
    health.degrade(COMPONENT, report.clone());
    report
}

/// Reports invalid rules to the log, health and metrics, and returns the message.
fn report_invalid(problems: &[RuleProblem], health: &Health, metrics: &RulesMetrics) -> String {
    for problem in problems {
        tracing::error!("{problem}");
    }
    // Errors come first, and those of files before those of the layer.
    let summary = match problems.first() {
        Some(first) if first.is_by_api() => "rules by API conflict with the rule files",
        _ => "the rule files have errors",
    };
    tracing::error!("{summary}; the last good rules stay in force");
    metrics.refused();
    let first = problems.first().map(ToString::to_string).unwrap_or_default();
    let more = match problems.len().saturating_sub(1) {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let report = format!("{summary}, the last good rules are in force: {first}{more}");
    health.degrade(COMPONENT, report.clone());
    report
}
