//! Loads the rules from files and the layer above them, and watches the files.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tollgate::{KnownRegions, Limiter, LoadOptions, RuleProblem, Ruleset};
use tollgate_admin::guardrails::{GuardedFiles, Guardrails};
use tollgate_admin::rule_source::{self, LastGood, LayerHandle, RuleReloader, RuleSource, SourceState, Waker};
use tollgate_store::Counters;

use super::component::Foundation;
use crate::config::{RulesSettings, ServerSettings};

/// The loaded rules, and the state for watching them.
pub(super) struct LoadedRules {
    pub(super) source: RuleSource,
    pub(super) layer: LayerHandle,
    last_good: Option<LastGood>,
    state: SourceState,
    errors: Vec<RuleProblem>,
}

/// Watches the rule files once it is started.
pub(super) struct RulesFollower {
    follower: RuleReloader,
    poll: Duration,
}

impl LoadedRules {
    /// Loads the rules that the settings name, under this layer.
    ///
    /// # Errors
    /// If they have errors and there are no last good ones: every problem with its remedy.
    pub(super) fn build(
        foundation: &Foundation<'_>,
        layer: LayerHandle,
    ) -> Result<(Ruleset, LoadedRules), Vec<String>> {
        let last_good = foundation.data.as_deref().map(LastGood::new);
        // Files that were held before are held still, unless they are to be no more.
        if let Some(last_good) = last_good.as_ref()
            && foundation.settings.control.guardrails.files != GuardedFiles::Hold
        {
            last_good.store_held(None);
        }
        let source = source(foundation.settings, layer.clone());
        let started = source.start(last_good.as_ref()).map_err(|problems| start_errors(&problems))?;
        for warning in &started.warnings {
            tracing::warn!("{warning}");
        }
        Ok((started.rules, LoadedRules { source, layer, last_good, state: started.state, errors: started.errors }))
    }

    /// The follower of the rules, not started yet.
    pub(super) fn follow(
        self,
        foundation: &Foundation<'_>,
        limiter: Arc<Limiter<Counters>>,
        guard: Arc<Guardrails>,
    ) -> RulesFollower {
        let LoadedRules { source, last_good, state, errors, .. } = self;
        let health = foundation.health.clone();
        let follower = RuleReloader::new(source, state, &errors, limiter, last_good, health, &foundation.metrics);
        let follower = follower.with_guard(guard);
        RulesFollower { follower, poll: foundation.settings.rules.poll }
    }
}

impl RulesFollower {
    /// Starts the thread that watches the files.
    pub(super) fn start(self) -> io::Result<(Waker, JoinHandle<()>)> {
        rule_source::watch(self.follower, self.poll)
    }
}

fn source(settings: &ServerSettings, layer: LayerHandle) -> RuleSource {
    let RulesSettings { paths, merge_domains, every_file, .. } = &settings.rules;
    if paths.is_empty() {
        tracing::warn!("no rules are set: using the built-in example; set your own with --rules PATH");
    }
    let options =
        LoadOptions { merge_domains: *merge_domains, every_file: *every_file, regions: known_regions(settings) };
    RuleSource::new(paths.clone(), options, layer)
}

/// The regions that rules may name.
fn known_regions(settings: &ServerSettings) -> KnownRegions {
    match (&settings.regions, &settings.observe.region) {
        (Some(regions), _) => KnownRegions::All(regions.names.clone()),
        (None, Some(here)) => KnownRegions::Here(here.clone()),
        (None, None) => KnownRegions::None,
    }
}

fn start_errors(problems: &[RuleProblem]) -> Vec<String> {
    let end = "the rule files have errors, and there are no last good rules; correct the errors and start again";
    problems.iter().map(ToString::to_string).chain([end.to_owned()]).collect()
}
