//! The sources of rules: files and the layer above them, and which of them are in force.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::sync::watch;
use tollgate::{Layer, LoadOptions, RuleProblem, Ruleset, Severity};
use tollgate_records::lines::{FileText, FilesLine};
use tollgate_rules::{RuleFile, RuleFiles};

use super::guard::files_version;
use super::removed::RemovedRules;
use super::{HeldFiles, LastGood, LayerHandle, ReloadStatus};

/// The source of rules. Clones share the rules in force.
#[derive(Clone, Debug)]
pub struct RuleSource {
    /// Files and directories; if empty, the built-in example.
    pub(super) paths: Vec<PathBuf>,
    pub(super) options: LoadOptions,
    pub(super) layer: LayerHandle,
    in_force: Arc<watch::Sender<Option<Arc<ActiveRules>>>>,
    /// Files that only wait for rules by API to be corrected.
    waiting: Arc<ArcSwapOption<Vec<RuleFile>>>,
    /// Files that are held.
    held: Arc<ArcSwapOption<HeldFiles>>,
    reload: Arc<watch::Sender<ReloadStatus>>,
}

/// The inputs of the rules in force.
#[derive(Debug)]
pub(super) struct ActiveRules {
    pub(super) sources: Vec<RuleFile>,
    pub(super) layer: Arc<Layer>,
}

/// Notifies of new rules in force.
#[derive(Debug)]
pub struct RuleChanges(watch::Receiver<Option<Arc<ActiveRules>>>);

/// The inputs that were read last, valid or not.
#[derive(Clone, Debug)]
pub struct SourceState {
    /// A digest of the files.
    pub(super) files: u64,
    pub(super) layer: Arc<Layer>,
}

/// The rules that a server starts with.
#[derive(Debug)]
pub struct StartupRules {
    pub rules: Ruleset,
    /// Warnings for the authors.
    pub warnings: Vec<RuleProblem>,
    /// Errors in the current files and layer, if these rules are fallbacks.
    pub errors: Vec<RuleProblem>,
    pub state: SourceState,
}

pub(super) type Compiled = Result<(Ruleset, Vec<RuleProblem>), Vec<RuleProblem>>;

/// The example rules of a server without its own.
const EXAMPLE: &str = include_str!("../../../../examples/rules/api.yaml");
const EXAMPLE_NAME: &str = "(built-in example)";
/// The generation of the rules at startup.
const FIRST_GENERATION: u64 = 1;
/// The generation of rules that are only validated.
const VALIDATION_GENERATION: u64 = 0;

// === impl RuleSource ===

impl RuleSource {
    pub fn new(paths: Vec<PathBuf>, options: LoadOptions, layer: LayerHandle) -> RuleSource {
        let (in_force, waiting, held, reload) = Default::default();
        RuleSource { paths, options, layer, in_force, waiting, held, reload }
    }

    pub(super) fn read(&self) -> RuleFiles {
        if self.paths.is_empty() {
            return RuleFiles::from_files(vec![RuleFile { name: EXAMPLE_NAME.to_owned(), text: EXAMPLE.to_owned() }]);
        }
        RuleFiles::read(&self.paths, &self.options)
    }

    pub(super) fn compile(&self, files: RuleFiles, layer: &Layer, generation: u64) -> Compiled {
        Ruleset::load_with_layer(files, &self.options, layer, generation)
    }

    pub(super) fn in_force(&self) -> Option<Arc<ActiveRules>> {
        self.in_force.borrow().clone()
    }

    /// Whether the rules in force were made of these files.
    pub(super) fn are_in_force(&self, sources: &[RuleFile]) -> bool {
        self.in_force().is_some_and(|good| are_same(&good.sources, sources))
    }

    /// Records the inputs of the rules in force.
    pub(super) fn put_in_force(&self, sources: Vec<RuleFile>, layer: Arc<Layer>) {
        self.in_force.send_replace(Some(Arc::new(ActiveRules { sources, layer })));
    }

    /// The files in force, for services that decide locally.
    pub fn files(&self) -> FilesLine {
        let good = self.in_force();
        let sources = good.iter().flat_map(|good| &good.sources);
        let files = sources.map(|source| FileText { name: source.name.clone(), text: source.text.clone() }).collect();
        FilesLine { files, merge_domains: self.options.merge_domains }
    }

    /// Subscribes to changes of the rules in force.
    pub fn changes(&self) -> RuleChanges {
        RuleChanges(self.in_force.subscribe())
    }

    /// Records the result of a reload.
    pub(super) fn reloaded(&self, reload: ReloadStatus) {
        self.reload.send_replace(reload);
    }

    /// Records the generation of rules whose files did not change.
    pub(super) fn set_generation(&self, generation: u64) {
        self.reload.send_modify(|reload| reload.generation = generation);
    }

    /// Records a failed reload: rules of this generation stay in force.
    pub(super) fn failed(&self, generation: u64, error: String) {
        self.reload.send_modify(|reload| (reload.generation, reload.error) = (generation, Some(error)));
    }

    /// The files that are held, if any.
    pub fn held(&self) -> Option<Arc<HeldFiles>> {
        self.held.load_full()
    }

    /// Records the files that are held.
    pub(super) fn hold(&self, held: Option<HeldFiles>) {
        self.held.store(held.map(Arc::new));
    }

    /// Subscribes to reload results.
    pub fn reloads(&self) -> watch::Receiver<ReloadStatus> {
        self.reload.subscribe()
    }

    /// Records files that were rejected, if only because of the layer; `None` once others are in force.
    pub(super) fn wait_for(&self, sources: Option<Vec<RuleFile>>, errors: &[RuleProblem]) {
        self.waiting.store(sources.filter(|_| has_only_layer_errors(errors)).map(Arc::new));
    }

    /// Loads the rules to start with: the files under the layer. Otherwise the nearest fallback: the last good files under the
    /// layer, or either of them without the faulty rules of the layer, because a server that does not start limits nobody.
    ///
    /// # Errors
    /// The problems of the files, if there are no last good rules either.
    pub fn start(&self, last_good: Option<&LastGood>) -> Result<StartupRules, Vec<RuleProblem>> {
        let (files, layer) = (self.read(), self.layer.current());
        let (state, sources) = (SourceState::new(&files, layer.clone()), files.sources.clone());
        if let Some(started) = last_good.and_then(|last_good| self.start_held(last_good, &sources, &state)) {
            return Ok(started);
        }
        let errors = match self.compile(files, &layer, FIRST_GENERATION) {
            Ok((rules, warnings)) => {
                if let Some(last_good) = last_good.filter(|_| !self.paths.is_empty()) {
                    self.report_removed(last_good, &sources, &layer, &rules);
                    last_good.store(&sources);
                }
                self.put_in_force(sources, layer);
                return Ok(StartupRules { rules, warnings, errors: Vec::new(), state });
            }
            Err(errors) => errors,
        };
        self.wait_for(Some(sources.clone()), &errors);
        let mut candidates = Vec::new();
        if let Some(stored) = last_good.and_then(LastGood::read) {
            let pruned = match self.compile(RuleFiles::from_files(stored.clone()), &layer, FIRST_GENERATION) {
                Ok(_) => layer.clone(),
                Err(errors) => Arc::new(layer.without_faulty(&errors)),
            };
            candidates.push((stored, pruned));
        }
        // Unreadable files are not among the sources, which would then be only a part of the rules.
        if has_only_layer_errors(&errors) {
            candidates.push((sources, Arc::new(layer.without_faulty(&errors))));
        }
        // Prefer the candidate that drops the fewest rules of the layer.
        candidates.sort_by_key(|(_, under)| layer.rules.len() - under.rules.len());
        for (sources, layer) in candidates {
            if let Ok((rules, warnings)) =
                self.compile(RuleFiles::from_files(sources.clone()), &layer, FIRST_GENERATION)
            {
                self.put_in_force(sources, layer);
                return Ok(StartupRules { rules, warnings, errors, state });
            }
        }
        Err(errors)
    }

    /// The last good rules, if the files were held before a restart and have not changed or been released since.
    fn start_held(&self, last_good: &LastGood, sources: &[RuleFile], state: &SourceState) -> Option<StartupRules> {
        let held = last_good.read_held().filter(|held| held.version == files_version(sources))?;
        if state.layer.released_files.contains(&held.version) {
            return None;
        }
        let stored = last_good.read()?;
        let files = RuleFiles::from_files(stored.clone());
        let (rules, warnings) = self.compile(files, &state.layer, FIRST_GENERATION).ok()?;
        self.put_in_force(stored, state.layer.clone());
        self.hold(Some(held));
        Some(StartupRules { rules, warnings, errors: Vec::new(), state: state.clone() })
    }

    /// Names the rules that were in force before a restart and are missing now.
    fn report_removed(&self, last_good: &LastGood, sources: &[RuleFile], layer: &Layer, rules: &Ruleset) {
        let Some(stored) = last_good.read().filter(|stored| !are_same(stored, sources)) else { return };
        let before = self.compile(RuleFiles::from_files(stored), layer, VALIDATION_GENERATION);
        if let Ok((before, _)) = before
            && let Some(removed) = RemovedRules::between(&before, rules)
        {
            tracing::warn!("the rule files no longer have these rules, which were in force before: {removed}");
        }
    }

    /// Compiles the rules under another layer without installing them. The files are those in force, not those on disk;
    /// otherwise those that wait for the layer to be corrected.
    ///
    /// # Errors
    /// All problems, if one of them is an error.
    pub fn validate(&self, layer: &Layer) -> Compiled {
        let files = self.in_force().map_or_else(|| self.read(), |good| RuleFiles::from_files(good.sources.clone()));
        let errors = match self.compile(files, layer, VALIDATION_GENERATION) {
            Ok(compiled) => return Ok(compiled),
            Err(errors) => errors,
        };
        let waiting = self.waiting.load_full();
        let tried =
            waiting.map(|waiting| self.compile(RuleFiles::from_files(waiting.to_vec()), layer, VALIDATION_GENERATION));
        tried.and_then(Result::ok).ok_or(errors)
    }

    /// Compiles other files under a layer, without putting them in force.
    ///
    /// # Errors
    /// All problems, if one of them is an error.
    pub fn validate_files(&self, files: Vec<RuleFile>, layer: &Layer) -> Compiled {
        self.compile(RuleFiles::from_files(files), layer, VALIDATION_GENERATION)
    }
}

fn are_same(some: &[RuleFile], others: &[RuleFile]) -> bool {
    let same = |(one, other): (&RuleFile, &RuleFile)| one.name == other.name && one.text == other.text;
    some.len() == others.len() && some.iter().zip(others).all(same)
}

/// Whether all errors are in the layer.
fn has_only_layer_errors(problems: &[RuleProblem]) -> bool {
    problems.iter().filter(|problem| problem.severity == Severity::Error).all(RuleProblem::is_by_api)
}

// === impl RuleChanges ===

impl RuleChanges {
    /// Whether they changed since the last call.
    pub fn any(&mut self) -> bool {
        let changed = self.0.has_changed().unwrap_or(false);
        self.0.mark_unchanged();
        changed
    }

    /// Waits for the next change.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // The server is gone.
            std::future::pending().await
        }
    }
}

// === impl SourceState ===

impl SourceState {
    pub(super) fn new(files: &RuleFiles, layer: Arc<Layer>) -> SourceState {
        SourceState { files: digest(files), layer }
    }

    pub(super) fn is_same(&self, other: &SourceState) -> bool {
        self.files == other.files && Arc::ptr_eq(&self.layer, &other.layer)
    }
}

/// Distinguishes states of the files, including files that can't be read.
fn digest(files: &RuleFiles) -> u64 {
    let mut hasher = DefaultHasher::new();
    for RuleFile { name, text } in &files.sources {
        (name, text).hash(&mut hasher);
    }
    files.faults().hash(&mut hasher);
    hasher.finish()
}
