//! Loads rule files into the [`model`](crate::model). Reports all problems at once, or returns valid rules.

mod ban;
mod clauses;
mod count;
mod domain;
mod files;
mod foreign;
mod keys;
mod likely;
mod limit_by;
mod overlay;
mod partitions;
mod reader;
mod region;
mod rules_form;
mod shed;
mod signals;
mod terms;
#[cfg(test)]
mod tests;
mod tree_form;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::layer::{Layer, LayerRule, Switch};
use crate::load::domain::DomainDocument;
use crate::load::overlay::Overlay;
use crate::load::reader::FileReader;
use crate::model::{Domain, RuleOrigin};
use crate::problem::{Problems, RuleProblem, TextFault, quoted};
use crate::regions::KnownRegions;
use crate::yaml::{self, Yaml};

pub(crate) use terms::ALGORITHMS;
pub(crate) use tree_form::UNITS;

/// A rule file.
#[derive(Clone, Debug)]
pub struct RuleFile {
    /// The name in problems.
    pub name: String,
    /// The content.
    pub text: String,
}

/// The rules of a load, and the warnings.
#[derive(Clone, Debug)]
pub struct LoadedRules {
    /// In the order of the files.
    pub domains: Vec<Domain>,
    /// The warnings.
    pub warnings: Vec<RuleProblem>,
}

/// How files are read together.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Merges files of the same domain (envoyproxy/ratelimit's `MERGE_DOMAIN_CONFIG`); otherwise they are an error.
    pub merge_domains: bool,
    /// Reads every file of a directory, not only those whose names end in `.yaml` or `.yml`.
    pub every_file: bool,
    /// The regions that rules may name.
    pub regions: KnownRegions,
}

/// The maximum length of a rule file, in bytes.
pub const MAX_FILE_BYTES: usize = 16 << 20;

/// Reads rule files, and the files in directories whose names end in `.yaml` or `.yml`.
///
/// # Errors
/// All problems of all files, if one of them is an error.
pub fn load_paths<P: AsRef<Path>>(paths: &[P], options: &LoadOptions) -> Result<LoadedRules, Vec<RuleProblem>> {
    RuleFiles::read(paths, options).load(options)
}

/// The content of rule files, to be loaded, stored and compared.
#[derive(Debug)]
pub struct RuleFiles {
    /// The files.
    pub sources: Vec<RuleFile>,
    /// Errors of files that could not be read.
    problems: Problems,
}

impl RuleFiles {
    /// Reads the files without parsing them.
    pub fn read<P: AsRef<Path>>(paths: &[P], options: &LoadOptions) -> RuleFiles {
        let mut problems = Problems::default();
        let sources = files::read(paths, options, &mut problems);
        RuleFiles { sources, problems }
    }

    /// Files in memory.
    pub fn from_files(sources: Vec<RuleFile>) -> RuleFiles {
        RuleFiles { sources, problems: Problems::default() }
    }

    /// The number of files that could not be read or are not rule files.
    pub fn faults(&self) -> usize {
        self.problems.len()
    }

    /// Loads the files.
    ///
    /// # Errors
    /// All problems of all files, if one of them is an error.
    pub fn load(self, options: &LoadOptions) -> Result<LoadedRules, Vec<RuleProblem>> {
        self.load_with_layer(options, &Layer::default())
    }

    /// Loads the files with a layer.
    ///
    /// # Errors
    /// All problems of all files and of the layer, if one of them is an error.
    pub fn load_with_layer(self, options: &LoadOptions, layer: &Layer) -> Result<LoadedRules, Vec<RuleProblem>> {
        load(&self.sources, options, layer, self.problems)
    }
}

/// Loads rule files in memory.
///
/// # Errors
/// All problems of all files, if one of them is an error.
pub fn load_sources(sources: &[RuleFile], options: &LoadOptions) -> Result<LoadedRules, Vec<RuleProblem>> {
    load(sources, options, &Layer::default(), Problems::default())
}

/// Reads a text file, up to the maximum length of a rule file.
///
/// # Errors
/// If the file cannot be read or is not valid.
pub fn read_file(path: &Path) -> Result<RuleFile, TextFault> {
    files::text_of(path)
}

fn load(
    sources: &[RuleFile],
    options: &LoadOptions,
    layer: &Layer,
    mut problems: Problems,
) -> Result<LoadedRules, Vec<RuleProblem>> {
    let texts: Vec<(Arc<RuleOrigin>, Vec<Yaml>)> =
        sources.iter().map(|source| documents(source, &mut problems)).collect();
    let mut found = Vec::new();
    for (file, values) in &texts {
        for value in values {
            found.extend(DomainDocument::read(value, &mut FileReader::new(file.clone(), &mut problems)));
        }
    }
    let all_read = !problems.has_errors();
    let mut overlay = Overlay::read(layer, &mut problems);
    let domains: Vec<Domain> = by_domain(found, options, &mut problems)
        .into_iter()
        .filter_map(|documents| domain::read(&documents, &options.regions, &mut overlay, &mut problems))
        .collect();
    let names: Vec<&str> = domains.iter().map(|domain| domain.name.as_str()).collect();
    overlay.finish(&names, all_read, &mut problems);

    // Problems outside of rule files, such as an empty directory, come first; those of the layer last.
    let files = texts.iter().map(|(file, _)| RuleOrigin::clone(file));
    let overlay = layer.rules.iter().map(LayerRule::origin).chain(layer.switches.iter().map(Switch::origin));
    let mut ranks: HashMap<RuleOrigin, usize> = HashMap::new();
    for (rank, file) in files.chain(overlay).enumerate() {
        ranks.entry(file).or_insert(rank + 1);
    }
    let warnings = problems.into_result(|file| ranks.get(file).copied().unwrap_or(0))?;
    Ok(LoadedRules { domains, warnings })
}

/// The documents of a file. Each is a domain.
fn documents(source: &RuleFile, problems: &mut Problems) -> (Arc<RuleOrigin>, Vec<Yaml>) {
    let file = Arc::new(RuleOrigin::File(source.name.clone()));
    if source.text.len() > MAX_FILE_BYTES {
        problems.error(&file, 1, too_long());
        return (file, Vec::new());
    }
    let (mut documents, faults) = yaml::read(&source.text);
    documents.retain(|document| !document.is_null());
    // Otherwise a truncated file would silently remove its rules.
    if documents.is_empty() && faults.is_empty() {
        let remedy = "write `domain: NAME` and its rules, or remove the file";
        problems.error(&file, 1, TextFault::new("the file is empty", remedy));
    }
    for (line, fault) in faults {
        problems.error(&file, line, fault);
    }
    (file, documents)
}

/// The documents of each domain: one, unless files are merged.
fn by_domain<'y>(
    documents: Vec<DomainDocument<'y>>,
    options: &LoadOptions,
    problems: &mut Problems,
) -> Vec<Vec<DomainDocument<'y>>> {
    let mut groups: Vec<Vec<DomainDocument<'y>>> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for document in documents {
        let Some(name) = document.name.clone() else {
            groups.push(vec![document]);
            continue;
        };
        match places.get(&name) {
            None => {
                places.insert(name, groups.len());
                groups.push(vec![document]);
            }
            Some(place) if options.merge_domains => groups[*place].push(document),
            Some(place) => {
                let first = &groups[*place][0].at;
                let message = format!("the domain {} is also in {}:{}", quoted(&name), first.file, first.line);
                let remedy = "put both in one file, rename one, or have domains merged (`--merge-domains`)";
                problems.error(&document.at.file, document.at.line, TextFault::new(message, remedy));
                // Its own problems are reported nevertheless.
                groups.push(vec![document]);
            }
        }
    }
    groups
}

fn too_long() -> TextFault {
    TextFault::new(format!("the file is longer than {} MiB", MAX_FILE_BYTES >> 20), "split it")
}
