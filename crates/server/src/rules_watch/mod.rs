//! Rules while the server runs: read at the start, followed from then on. Bad ones never take effect.

mod last_good;
mod layer;
mod reload;
mod source;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::Arc;

use tollgate::{Clock as _, Layer, Limiter, Problem, Ruleset, SystemClock};
use tollgate_rules::{Files, Source};

use crate::counters::Counters;
use crate::health::Health;
use crate::observe::metrics::RulesMetrics;

pub(crate) use last_good::LastGood;
pub(crate) use layer::LayerHandle;
pub(crate) use reload::Reload;
pub(crate) use source::{RulesChanges, RulesSource, Seen};
pub(crate) use watch::{Waker, watch};

/// Follows the files, and the layer above them.
#[derive(Debug)]
pub(crate) struct Follower {
    source: RulesSource,
    limiter: Arc<Limiter<Counters>>,
    last_good: Option<LastGood>,
    health: Arc<Health>,
    metrics: RulesMetrics,
    seen: Seen,
    generation: u64,
    clock: SystemClock,
}

/// The part of health that is about rules.
const PART: &str = "rules";

impl Follower {
    pub(crate) fn new(
        source: RulesSource,
        seen: Seen,
        errors: &[Problem],
        limiter: Arc<Limiter<Counters>>,
        last_good: Option<LastGood>,
        health: Arc<Health>,
        metrics: RulesMetrics,
    ) -> Follower {
        let clock = SystemClock::default();
        let generation = limiter.rules().generation();
        if errors.is_empty() {
            metrics.reloaded(clock.now());
            source.reloaded(Reload { generation, error: None, at: Some(clock.now()) });
        } else {
            let error = refused(errors, &health, &metrics);
            source.reloaded(Reload { generation, error: Some(error), at: None });
        }
        Follower { source, limiter, last_good, health, metrics, seen, generation, clock }
    }

    /// Looks at the files and the layer, and puts them in force if they changed and are good. `asked`: also if they did not change.
    pub(crate) fn look(&mut self, asked: bool) {
        let files = self.source.read();
        let seen = Seen::of(&files, self.source.layer.current());
        if seen.is(&self.seen) && !asked {
            return;
        }
        self.seen = seen;
        let (sources, layer) = (files.sources.clone(), self.seen.layer.clone());
        match self.source.compile(files, &layer, self.generation + 1) {
            Ok((rules, warnings)) => {
                // Another layer alone is nothing to keep.
                let kept = self.source.are_in_force(&sources) && !asked;
                self.install(rules, sources.clone(), layer);
                self.source.wait_for(None, &[]);
                self.in_force(&warnings);
                if let Some(last_good) = self.last_good.as_ref().filter(|_| !self.source.paths.is_empty() && !kept) {
                    last_good.keep(&sources);
                }
            }
            Err(problems) => {
                let error = refused(&problems, &self.health, &self.metrics);
                self.source.wait_for(Some(sources), &problems);
                self.fall_back(&layer);
                self.source.failed(self.generation, error);
            }
        }
    }

    /// Puts what can be of a layer above the last good files: all of it, else its switches, which can't be wrong. A kill switch must
    /// work whatever has become of the files and of other people's rules.
    fn fall_back(&mut self, layer: &Arc<Layer>) {
        let Some(good) = self.source.in_force() else { return };
        let switches = Layer { rules: good.layer.rules.clone(), switches: layer.switches.clone() };
        for layer in [layer.clone(), Arc::new(switches)] {
            if *layer == *good.layer {
                return;
            }
            let files = Files::of(good.sources.clone());
            if let Ok((rules, _)) = self.source.compile(files, &layer, self.generation + 1) {
                self.install(rules, good.sources.clone(), layer);
                tracing::info!(
                    generation = self.generation,
                    "what was changed by API is in force above the last good rules"
                );
                return;
            }
        }
    }

    fn install(&mut self, rules: Ruleset, sources: Vec<Source>, layer: Arc<Layer>) {
        self.generation += 1;
        self.limiter.install(rules);
        self.source.put_in_force(sources, layer);
    }

    fn in_force(&self, warnings: &[Problem]) {
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        let rules = self.limiter.rules();
        let count: usize = rules.domains().iter().map(|domain| domain.rules().len()).sum();
        tracing::info!(generation = self.generation, domains = rules.domains().len(), rules = count, "rules in force");
        let now = self.clock.now();
        self.metrics.reloaded(now);
        self.source.reloaded(Reload { generation: self.generation, error: None, at: Some(now) });
        self.health.restore(PART);
    }
}

/// Says that rules are bad and that others are in force, in the words of the answer.
fn refused(problems: &[Problem], health: &Health, metrics: &RulesMetrics) -> String {
    for problem in problems {
        tracing::error!("{problem}");
    }
    // Errors come first, and those of files before those of the layer.
    let what = match problems.first() {
        Some(first) if first.is_by_api() => "rules by API do not fit the rule files",
        _ => "the rule files have errors",
    };
    tracing::error!("{what}; the last good rules stay in force");
    metrics.refused();
    let first = problems.first().map(ToString::to_string).unwrap_or_default();
    let more = match problems.len().saturating_sub(1) {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let told = format!("{what}, the last good rules are in force: {first}{more}");
    health.degrade(PART, told.clone());
    told
}
