//! Rules while the server runs: read at the start, followed from then on. Bad ones never take effect.

mod last_good;
mod watch;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::Arc;

use tollgate::{Clock as _, Limiter, LoadOptions, Problem, Ruleset, SystemClock};
use tollgate_rules::{Files, Source};

use crate::counters::Counters;
use crate::health::Health;
use crate::observe::metrics::RulesMetrics;

pub(crate) use last_good::LastGood;
pub(crate) use watch::{Waker, watch};

/// Where rules come from.
#[derive(Clone, Debug)]
pub(crate) struct RulesSource {
    /// Files and directories; none: the built-in example.
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) options: LoadOptions,
}

/// What the server starts with.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) rules: Ruleset,
    /// What the files' authors should know.
    pub(crate) warnings: Vec<Problem>,
    /// What is wrong with the files, where these rules are the last good ones.
    pub(crate) errors: Vec<Problem>,
    /// A digest of the files.
    pub(crate) seen: u64,
}

/// Follows the files.
#[derive(Debug)]
pub(crate) struct Follower {
    source: RulesSource,
    limiter: Arc<Limiter<Counters>>,
    last_good: Option<LastGood>,
    health: Arc<Health>,
    metrics: RulesMetrics,
    /// A digest of the files that were looked at last, good or bad.
    seen: u64,
    generation: u64,
    clock: SystemClock,
}

/// The example that a server runs on without rules of its own.
const EXAMPLE: &str = include_str!("../../../../examples/rules/api.yaml");
const EXAMPLE_NAME: &str = "(built-in example)";
/// The part of health that is about rules.
const PART: &str = "rules";

impl RulesSource {
    fn read(&self) -> Files {
        if self.paths.is_empty() {
            return Files::of(vec![Source { name: EXAMPLE_NAME.to_owned(), text: EXAMPLE.to_owned() }]);
        }
        Files::read(&self.paths, &self.options)
    }

    /// Reads the rules to start with: those of the files, else the last good ones.
    ///
    /// # Errors
    /// The problems of the files, where there are no last good rules either.
    pub(crate) fn start(&self, last_good: Option<&LastGood>) -> Result<Started, Vec<Problem>> {
        const FIRST: u64 = 1;
        let files = self.read();
        let (seen, sources) = (digest(&files), files.sources.clone());
        match compile(files, &self.options, FIRST) {
            Ok((rules, warnings)) => {
                if let Some(last_good) = last_good.filter(|_| !self.paths.is_empty()) {
                    last_good.keep(&sources);
                }
                Ok(Started { rules, warnings, errors: Vec::new(), seen })
            }
            Err(errors) => match last_good.and_then(LastGood::read) {
                Some(sources) => match compile(Files::of(sources), &self.options, FIRST) {
                    Ok((rules, warnings)) => Ok(Started { rules, warnings, errors, seen }),
                    Err(_) => Err(errors),
                },
                None => Err(errors),
            },
        }
    }
}

impl Follower {
    pub(crate) fn new(
        source: RulesSource,
        seen: u64,
        errors: &[Problem],
        limiter: Arc<Limiter<Counters>>,
        last_good: Option<LastGood>,
        health: Arc<Health>,
        metrics: RulesMetrics,
    ) -> Follower {
        let clock = SystemClock::default();
        if errors.is_empty() {
            metrics.reloaded(clock.now());
        } else {
            refused(errors, &health, &metrics);
        }
        let generation = limiter.rules().generation();
        Follower { source, limiter, last_good, health, metrics, seen, generation, clock }
    }

    /// Looks at the files, and puts them in force if they changed and are good. `asked`: also if they did not change.
    pub(crate) fn look(&mut self, asked: bool) {
        let files = self.source.read();
        let seen = digest(&files);
        if seen == self.seen && !asked {
            return;
        }
        self.seen = seen;
        let sources = files.sources.clone();
        match compile(files, &self.source.options, self.generation + 1) {
            Ok((rules, warnings)) => {
                self.generation += 1;
                self.limiter.install(rules);
                self.in_force(&warnings);
                if let Some(last_good) = self.last_good.as_ref().filter(|_| !self.source.paths.is_empty()) {
                    last_good.keep(&sources);
                }
            }
            Err(problems) => refused(&problems, &self.health, &self.metrics),
        }
    }

    fn in_force(&self, warnings: &[Problem]) {
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        let rules = self.limiter.rules();
        let count: usize = rules.domains().iter().map(|domain| domain.rules().len()).sum();
        tracing::info!(generation = self.generation, domains = rules.domains().len(), rules = count, "rules in force");
        self.metrics.reloaded(self.clock.now());
        self.health.restore(PART);
    }
}

/// Says that rule files are bad and that others are in force.
fn refused(problems: &[Problem], health: &Health, metrics: &RulesMetrics) {
    for problem in problems {
        tracing::error!("{problem}");
    }
    tracing::error!("the rule files have errors; the last good rules stay in force");
    metrics.refused();
    let first = problems.first().map(ToString::to_string).unwrap_or_default();
    let more = match problems.len().saturating_sub(1) {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    health.degrade(PART, format!("the rule files have errors, the last good rules are in force: {first}{more}"));
}

fn compile(files: Files, options: &LoadOptions, generation: u64) -> Result<(Ruleset, Vec<Problem>), Vec<Problem>> {
    let loaded = files.load(options)?;
    match Ruleset::compile(loaded.domains, generation) {
        Ok(rules) => Ok((rules, loaded.warnings)),
        Err(errors) => Err(errors.into_iter().chain(loaded.warnings).collect()),
    }
}

/// Tells one state of the files from another; also where a file appears that can't be read.
fn digest(files: &Files) -> u64 {
    let mut hasher = DefaultHasher::new();
    for Source { name, text } in &files.sources {
        (name, text).hash(&mut hasher);
    }
    files.faults().hash(&mut hasher);
    hasher.finish()
}
