//! Where rules come from: files, and the layer above them. What of it is in force.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::sync::watch;
use tollgate::control::lines::{FileText, FilesLine};
use tollgate::{Layer, LoadOptions, Problem, Ruleset, Severity};
use tollgate_rules::{Files, Source};

use super::{LastGood, LayerHandle, Reload};

/// Where rules come from; every clone knows the same ones in force.
#[derive(Clone, Debug)]
pub(crate) struct RulesSource {
    /// Files and directories; none: the built-in example.
    pub(super) paths: Vec<PathBuf>,
    pub(super) options: LoadOptions,
    pub(super) layer: LayerHandle,
    in_force: Arc<watch::Sender<Option<Arc<InForce>>>>,
    /// Files that wait for rules by API to be corrected: nothing else is wrong with them.
    waiting: Arc<ArcSwapOption<Vec<Source>>>,
    reload: Arc<watch::Sender<Reload>>,
}

/// What the rules in force were made of.
#[derive(Debug)]
pub(super) struct InForce {
    pub(super) sources: Vec<Source>,
    pub(super) layer: Arc<Layer>,
}

/// Tells when the rules in force are others.
#[derive(Debug)]
pub(crate) struct RulesChanges(watch::Receiver<Option<Arc<InForce>>>);

/// What was looked at last, good or bad.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// A digest of the files.
    files: u64,
    pub(super) layer: Arc<Layer>,
}

/// What the server starts with.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) rules: Ruleset,
    /// What the authors should know.
    pub(crate) warnings: Vec<Problem>,
    /// What is wrong with files and layer as they are, where these rules are others.
    pub(crate) errors: Vec<Problem>,
    pub(crate) seen: Seen,
}

pub(super) type Compiled = Result<(Ruleset, Vec<Problem>), Vec<Problem>>;

/// The example that a server runs on without rules of its own.
const EXAMPLE: &str = include_str!("../../../../examples/rules/api.yaml");
const EXAMPLE_NAME: &str = "(built-in example)";
/// The generation of the rules that a server starts with.
const FIRST: u64 = 1;
/// The generation of rules that are only tried.
const NONE: u64 = 0;

// === impl RulesSource ===

impl RulesSource {
    pub(crate) fn new(paths: Vec<PathBuf>, options: LoadOptions, layer: LayerHandle) -> RulesSource {
        RulesSource { paths, options, layer, in_force: Arc::default(), waiting: Arc::default(), reload: Arc::default() }
    }

    pub(super) fn read(&self) -> Files {
        if self.paths.is_empty() {
            return Files::of(vec![Source { name: EXAMPLE_NAME.to_owned(), text: EXAMPLE.to_owned() }]);
        }
        Files::read(&self.paths, &self.options)
    }

    pub(super) fn compile(&self, files: Files, layer: &Layer, generation: u64) -> Compiled {
        Ruleset::load_under(files, &self.options, layer, generation)
    }

    pub(super) fn in_force(&self) -> Option<Arc<InForce>> {
        self.in_force.borrow().clone()
    }

    /// Whether the rules in force were made of these files.
    pub(super) fn are_in_force(&self, sources: &[Source]) -> bool {
        let same = |(one, other): (&Source, &Source)| one.name == other.name && one.text == other.text;
        self.in_force()
            .is_some_and(|good| good.sources.len() == sources.len() && good.sources.iter().zip(sources).all(same))
    }

    /// Remembers what the rules in force were made of.
    pub(super) fn put_in_force(&self, sources: Vec<Source>, layer: Arc<Layer>) {
        self.in_force.send_replace(Some(Arc::new(InForce { sources, layer })));
    }

    /// The files that are in force, for those who decide by them elsewhere.
    pub(crate) fn files(&self) -> FilesLine {
        let good = self.in_force();
        let sources = good.iter().flat_map(|good| &good.sources);
        let files = sources.map(|source| FileText { name: source.name.clone(), text: source.text.clone() }).collect();
        FilesLine { files, merge_domains: self.options.merge_domains }
    }

    /// Tells when others may be.
    pub(crate) fn changes(&self) -> RulesChanges {
        RulesChanges(self.in_force.subscribe())
    }

    /// Rules were put in force, or were not.
    pub(super) fn reloaded(&self, reload: Reload) {
        self.reload.send_replace(reload);
    }

    /// The rules as they are written are not in force, for this reason; these are.
    pub(super) fn failed(&self, generation: u64, error: String) {
        self.reload.send_modify(|reload| (reload.generation, reload.error) = (generation, Some(error)));
    }

    /// How that went last, and tells when it goes on.
    pub(crate) fn reloads(&self) -> watch::Receiver<Reload> {
        self.reload.subscribe()
    }

    /// Remembers files that were refused, if that is for the layer's sake alone; none, once others are in force.
    pub(super) fn wait_for(&self, sources: Option<Vec<Source>>, errors: &[Problem]) {
        self.waiting.store(sources.filter(|_| of_layer_alone(errors)).map(Arc::new));
    }

    /// Reads the rules to start with: those of the files under the layer. Else what comes nearest: the last good files under
    /// the layer; then either of them without those rules of the layer that are at fault, because a server that does not start
    /// limits nobody.
    ///
    /// # Errors
    /// The problems of the files, where there are no last good rules either.
    pub(crate) fn start(&self, last_good: Option<&LastGood>) -> Result<Started, Vec<Problem>> {
        let (files, layer) = (self.read(), self.layer.current());
        let (seen, sources) = (Seen::of(&files, layer.clone()), files.sources.clone());
        let errors = match self.compile(files, &layer, FIRST) {
            Ok((rules, warnings)) => {
                if let Some(last_good) = last_good.filter(|_| !self.paths.is_empty()) {
                    last_good.keep(&sources);
                }
                self.put_in_force(sources, layer);
                return Ok(Started { rules, warnings, errors: Vec::new(), seen });
            }
            Err(errors) => errors,
        };
        self.wait_for(Some(sources.clone()), &errors);
        let mut tries = Vec::new();
        if let Some(kept) = last_good.and_then(LastGood::read) {
            let pruned = match self.compile(Files::of(kept.clone()), &layer, FIRST) {
                Ok(_) => layer.clone(),
                Err(errors) => Arc::new(layer.without_faulty(&errors)),
            };
            tries.push((kept, pruned));
        }
        // Files that can't be read at all are not among the sources, so that these would be only a part of the rules.
        if of_layer_alone(&errors) {
            tries.push((sources, Arc::new(layer.without_faulty(&errors))));
        }
        // The fewest rules of the layer have to go.
        tries.sort_by_key(|(_, under)| layer.rules.len() - under.rules.len());
        for (sources, layer) in tries {
            if let Ok((rules, warnings)) = self.compile(Files::of(sources.clone()), &layer, FIRST) {
                self.put_in_force(sources, layer);
                return Ok(Started { rules, warnings, errors, seen });
            }
        }
        Err(errors)
    }

    /// What would be in force under another layer, which is not put in force. The files are those in force, not those on the
    /// disk; else those that only wait for the layer to be corrected.
    ///
    /// # Errors
    /// All problems, if one of them is an error.
    pub(crate) fn try_out(&self, layer: &Layer) -> Compiled {
        let files = self.in_force().map_or_else(|| self.read(), |good| Files::of(good.sources.clone()));
        let errors = match self.compile(files, layer, NONE) {
            Ok(compiled) => return Ok(compiled),
            Err(errors) => errors,
        };
        let waiting = self.waiting.load_full();
        let tried = waiting.map(|waiting| self.compile(Files::of(waiting.to_vec()), layer, NONE));
        tried.and_then(Result::ok).ok_or(errors)
    }
}

/// Whether files can't be put in force for the layer's sake alone.
fn of_layer_alone(problems: &[Problem]) -> bool {
    problems.iter().filter(|problem| problem.severity == Severity::Error).all(Problem::is_by_api)
}

// === impl RulesChanges ===

impl RulesChanges {
    /// Whether they are, since this was asked last.
    pub(crate) fn any(&mut self) -> bool {
        let changed = self.0.has_changed().unwrap_or(false);
        self.0.mark_unchanged();
        changed
    }

    /// Ends when they are.
    pub(crate) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // The server is gone.
            std::future::pending().await
        }
    }
}

// === impl Seen ===

impl Seen {
    pub(super) fn of(files: &Files, layer: Arc<Layer>) -> Seen {
        Seen { files: digest(files), layer }
    }

    pub(super) fn is(&self, other: &Seen) -> bool {
        self.files == other.files && Arc::ptr_eq(&self.layer, &other.layer)
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
