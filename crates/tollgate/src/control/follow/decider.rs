//! From records and files to what a limiter decides by.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::Timestamp;
use tollgate_rules::{Layer, LoadOptions, RuleFile, RuleFiles, RuleProblem, Ruleset};
use tollgate_store::Store;

use crate::control::lines::FilesLine;
use crate::control::{Controls, Effect, Record};
use crate::{Adjustment, Limiter};

/// What a limiter decides by, as it is followed.
pub(super) struct Decider<S> {
    limiter: Arc<Limiter<S>>,
    controls: Controls,
    files: Option<SourceFiles>,
    /// Whether the files are the service's own.
    own_files: bool,
    own_counters: bool,
    /// What may have to be compiled.
    changed: bool,
    /// What was compiled last.
    compiled: Option<(SourceFiles, Layer)>,
    /// What is wrong with it.
    trouble: Option<String>,
}

/// Rule files, and how they are read together.
#[derive(Clone, Debug)]
struct SourceFiles {
    sources: Arc<Vec<RuleFile>>,
    options: LoadOptions,
}

impl<S: Store + Send + Sync + 'static> Decider<S> {
    pub(super) fn new(limiter: Arc<Limiter<S>>) -> Decider<S> {
        Decider {
            limiter,
            controls: Controls::default(),
            files: None,
            own_files: false,
            own_counters: false,
            changed: false,
            compiled: None,
            trouble: None,
        }
    }

    pub(super) fn own_files(&mut self, sources: Vec<RuleFile>, options: LoadOptions) {
        self.files = Some(SourceFiles { sources: Arc::new(sources), options });
        self.own_files = true;
    }

    pub(super) fn has_own_files(&self) -> bool {
        self.own_files
    }

    pub(super) fn own_counters(&mut self) {
        self.own_counters = true;
    }

    /// What is wrong with the rules; they are not in force then, or not all of them.
    pub(super) fn trouble(&self) -> Option<&String> {
        self.trouble.as_ref()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.limiter.clock().now()
    }

    /// Puts others in the place of all records, and of the server's files.
    pub(super) fn replace(&mut self, controls: Controls, files: Option<FilesLine>) {
        self.controls = controls;
        if let Some(files) = files {
            self.files(&files);
        }
        self.changed = true;
        self.limiter.install_tenants(self.controls.tenants().clone());
    }

    /// The server's files are these.
    pub(super) fn files(&mut self, line: &FilesLine) {
        // A server that has none to tell leaves those that are in force.
        if self.own_files || line.files.is_empty() {
            return;
        }
        let sources = line.files.iter().map(|file| RuleFile { name: file.name.clone(), text: file.text.clone() });
        let options = LoadOptions { merge_domains: line.merge_domains, ..LoadOptions::default() };
        self.files = Some(SourceFiles { sources: Arc::new(sources.collect()), options });
        self.changed = true;
    }

    /// Applies a record that was written just now.
    pub(super) async fn apply(&mut self, record: &Record<'_>) -> Result<(), String> {
        let effect = self.controls.apply(record)?;
        self.changed |= effect == Effect::Layer;
        if self.own_counters && effect == (Effect::Tenants { reset: true }) {
            let (domain, caller) = (&*record.domain, &*record.name);
            let told = self.limiter.adjust(Some(domain), None, caller, &[], None, Adjustment::Reset).await;
            told.map_err(|error| format!("the counters of {caller:?} could not be reset: {error}"))?;
        }
        Ok(())
    }

    /// Waits for something. Switches end meanwhile.
    pub(super) async fn during<T>(&mut self, waited: impl Future<Output = T>) -> T {
        let mut waited = std::pin::pin!(waited);
        loop {
            tokio::select! {
                done = &mut waited => return done,
                () = self.switch_ends() => {
                    self.compile().await;
                }
            }
        }
    }

    /// Waits until a switch ends, and longer if none does.
    async fn switch_ends(&mut self) {
        let now = self.now();
        let Some(end) = self.controls.layer_changes_at(now) else { return std::future::pending().await };
        tokio::time::sleep(Duration::from_micros(end.since(now).as_micros())).await;
        self.changed = true;
    }

    /// Compiles the rules if they are others by now, on a thread of its own, and puts them in force: all of them, or what is not
    /// wrong, or the last good ones stay. Whether there was something to do.
    pub(super) async fn compile(&mut self) -> bool {
        let Some(files) = self.files.clone().filter(|_| std::mem::take(&mut self.changed)) else { return false };
        let layer = self.controls.layer(self.now());
        if self.compiled.as_ref().is_some_and(|(before, under)| before.is(&files) && *under == layer) {
            return false;
        }
        self.compiled = Some((files.clone(), layer.clone()));
        let generation = self.limiter.rules().generation() + 1;
        let compiled = tokio::task::spawn_blocking(move || files.compile(&layer, generation)).await;
        self.trouble = match compiled {
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
    fn is(&self, other: &SourceFiles) -> bool {
        let same = |(one, other): (&RuleFile, &RuleFile)| one.name == other.name && one.text == other.text;
        self.options.merge_domains == other.options.merge_domains
            && self.sources.len() == other.sources.len()
            && self.sources.iter().zip(&*other.sources).all(same)
    }

    /// The files under the layer; where that can't be, without those rules of the layer that are at fault.
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

impl<S> fmt::Debug for Decider<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decider").field("generation", &self.controls.generation()).finish_non_exhaustive()
    }
}
