//! Installs records and rule files in a limiter.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::Timestamp;
use tollgate_rules::{KnownRegions, Layer, LoadOptions, RuleFile, RuleFiles, RuleProblem, Ruleset};
use tollgate_store::Store;

use crate::control::lines::FilesLine;
use crate::control::{Controls, Effect, Record};
use crate::{Adjustment, Limiter};

/// A limiter, with the records and files that its rules are compiled from.
pub(super) struct LimiterUpdater<S> {
    limiter: Arc<Limiter<S>>,
    controls: Controls,
    files: Option<SourceFiles>,
    /// The regions that the server's files may name.
    regions: KnownRegions,
    /// Whether the files are the service's own, not the server's.
    own_files: bool,
    /// Whether the counters are the service's own, not shared with the server.
    own_counters: bool,
    /// Whether the files or the layer may have changed since they were compiled.
    changed: bool,
    /// The files and the layer that were compiled last.
    compiled: Option<(SourceFiles, Layer)>,
    /// The first error of the last compilation.
    rules_error: Option<String>,
}

/// Rule files, and the options to load them with.
#[derive(Clone, Debug)]
struct SourceFiles {
    sources: Arc<Vec<RuleFile>>,
    options: LoadOptions,
}

impl<S: Store + Send + Sync + 'static> LimiterUpdater<S> {
    pub(super) fn new(limiter: Arc<Limiter<S>>) -> LimiterUpdater<S> {
        LimiterUpdater {
            limiter,
            controls: Controls::default(),
            files: None,
            regions: KnownRegions::None,
            own_files: false,
            own_counters: false,
            changed: false,
            compiled: None,
            rules_error: None,
        }
    }

    pub(super) fn set_own_files(&mut self, sources: Vec<RuleFile>, options: LoadOptions) {
        self.files = Some(SourceFiles { sources: Arc::new(sources), options });
        self.own_files = true;
    }

    pub(super) fn set_regions(&mut self, regions: KnownRegions) {
        self.regions = regions;
    }

    pub(super) fn has_own_files(&self) -> bool {
        self.own_files
    }

    pub(super) fn set_own_counters(&mut self) {
        self.own_counters = true;
    }

    /// The error of the rules, if they are not in force, or not all of them.
    pub(super) fn rules_error(&self) -> Option<&String> {
        self.rules_error.as_ref()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.limiter.clock().now()
    }

    /// Replaces all records and the server's files.
    pub(super) fn replace(&mut self, controls: Controls, files: Option<FilesLine>) {
        self.controls = controls;
        if let Some(files) = files {
            self.set_server_files(&files);
        }
        self.changed = true;
        self.limiter.install_tenants(self.controls.tenants().clone());
    }

    /// Replaces the server's files.
    pub(super) fn set_server_files(&mut self, line: &FilesLine) {
        // A server without files leaves those in force.
        if self.own_files || line.files.is_empty() {
            return;
        }
        let sources = line.files.iter().map(|file| RuleFile { name: file.name.clone(), text: file.text.clone() });
        let options =
            LoadOptions { merge_domains: line.merge_domains, regions: self.regions.clone(), ..LoadOptions::default() };
        self.files = Some(SourceFiles { sources: Arc::new(sources.collect()), options });
        self.changed = true;
    }

    /// Applies a record that has just been written.
    pub(super) async fn apply(&mut self, record: &Record<'_>) -> Result<(), String> {
        let effect = self.controls.apply(record)?;
        self.changed |= effect == Effect::Layer;
        if self.own_counters && effect == (Effect::Tenants { reset: true }) {
            let (domain, caller) = (&*record.domain, &*record.name);
            let reset = self.limiter.adjust(Some(domain), None, caller, &[], None, Adjustment::Reset).await;
            reset.map_err(|error| format!("the counters of {caller:?} could not be reset: {error}"))?;
        }
        Ok(())
    }

    /// Awaits a future, and ends switches on time meanwhile.
    pub(super) async fn update_during<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        loop {
            tokio::select! {
                output = &mut future => return output,
                () = self.wait_for_switch_end() => {
                    self.compile().await;
                }
            }
        }
    }

    /// Waits until a switch ends; forever if none does.
    async fn wait_for_switch_end(&mut self) {
        let now = self.now();
        let Some(end) = self.controls.layer_changes_at(now) else { return std::future::pending().await };
        tokio::time::sleep(Duration::from_micros(end.since(now).as_micros())).await;
        self.changed = true;
    }

    /// Compiles the rules if they have changed, on a thread of its own, and installs them: all of them, or those without
    /// errors; else the last good ones stay in force. Returns whether the rules had changed.
    pub(super) async fn compile(&mut self) -> bool {
        let Some(files) = self.files.clone().filter(|_| std::mem::take(&mut self.changed)) else { return false };
        let layer = self.controls.layer(self.now());
        if self.compiled.as_ref().is_some_and(|(before, above)| before.is_same(&files) && *above == layer) {
            return false;
        }
        self.compiled = Some((files.clone(), layer.clone()));
        let generation = self.limiter.rules().generation() + 1;
        let compiled = tokio::task::spawn_blocking(move || files.compile(&layer, generation)).await;
        self.rules_error = match compiled {
            Ok((rules, errors)) => {
                if let Some(rules) = rules {
                    self.limiter.install(rules);
                }
                errors.first().map(|first| format!("the rules have {} errors: {first}", errors.len()))
            }
            Err(error) => Some(error.to_string()),
        };
        true
    }
}

impl SourceFiles {
    fn is_same(&self, other: &SourceFiles) -> bool {
        let same = |(one, other): (&RuleFile, &RuleFile)| one.name == other.name && one.text == other.text;
        self.options.merge_domains == other.options.merge_domains
            && self.sources.len() == other.sources.len()
            && self.sources.iter().zip(&*other.sources).all(same)
    }

    /// Compiles the files under the layer; if that fails, without the faulty rules of the layer.
    fn compile(&self, layer: &Layer, generation: u64) -> (Option<Ruleset>, Vec<RuleProblem>) {
        let load = |layer: &Layer| {
            let files = RuleFiles::from_files(self.sources.to_vec());
            Ruleset::load_with_layer(files, &self.options, layer, generation).map(|(rules, _)| rules)
        };
        match load(layer) {
            Ok(rules) => (Some(rules), Vec::new()),
            Err(errors) => (load(&layer.without_faulty(&errors)).ok(), errors),
        }
    }
}

impl<S> fmt::Debug for LimiterUpdater<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimiterUpdater").field("generation", &self.controls.generation()).finish_non_exhaustive()
    }
}
