//! From rule files to the [`model`](crate::model): everything that is wrong with them at once, or rules with nothing left to
//! refuse.

mod above;
mod clauses;
mod domain;
mod files;
mod keys;
mod reader;
mod rules_form;
mod terms;
#[cfg(test)]
mod tests;
mod tree_form;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::layer::{Layer, LayerRule, Switch};
use crate::load::above::Above;
use crate::load::domain::Document;
use crate::load::reader::Reader;
use crate::model::Domain;
use crate::problem::{Fault, Problem, Problems, quoted};
use crate::yaml::{self, Yaml};

pub(crate) use terms::ALGORITHMS;
pub(crate) use tree_form::UNITS;

/// A rule file.
#[derive(Clone, Debug)]
pub struct Source {
    /// What it is called in problems.
    pub name: String,
    /// What it says.
    pub text: String,
}

/// Rules, and what their authors should still know.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// In the order of the files.
    pub domains: Vec<Domain>,
    /// None of them is an error.
    pub warnings: Vec<Problem>,
}

/// How files are read together.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadOptions {
    /// Files of the same domain are one (envoyproxy/ratelimit's `MERGE_DOMAIN_CONFIG`); else they are an error.
    pub merge_domains: bool,
    /// In a directory every file is one of rules, not only those whose names end in `.yaml` or `.yml`.
    pub every_file: bool,
}

/// The longest rule file.
pub const MOST_BYTES: usize = 16 << 20;

/// Reads rule files, and those directly in directories whose names end in `.yaml` or `.yml`.
///
/// # Errors
/// All problems of all files, if one of them is an error.
pub fn load_paths<P: AsRef<Path>>(paths: &[P], options: &LoadOptions) -> Result<Loaded, Vec<Problem>> {
    Files::read(paths, options).load(options)
}

/// Rule files as they were when they were read: what is loaded, kept and compared.
#[derive(Debug)]
pub struct Files {
    /// Names and texts.
    pub sources: Vec<Source>,
    /// What could not be read.
    problems: Problems,
}

impl Files {
    /// Reads them, without a look at what they say.
    pub fn read<P: AsRef<Path>>(paths: &[P], options: &LoadOptions) -> Files {
        let mut problems = Problems::default();
        let sources = files::read(paths, options, &mut problems);
        Files { sources, problems }
    }

    /// Files that are at hand.
    pub fn of(sources: Vec<Source>) -> Files {
        Files { sources, problems: Problems::default() }
    }

    /// How many of them could not be read, or are none of rules.
    pub fn faults(&self) -> usize {
        self.problems.len()
    }

    /// What they say.
    ///
    /// # Errors
    /// All problems of all files, if one of them is an error.
    pub fn load(self, options: &LoadOptions) -> Result<Loaded, Vec<Problem>> {
        self.load_under(options, &Layer::default())
    }

    /// What they say under a layer.
    ///
    /// # Errors
    /// All problems of all files and of the layer, if one of them is an error.
    pub fn load_under(self, options: &LoadOptions, layer: &Layer) -> Result<Loaded, Vec<Problem>> {
        load(&self.sources, options, layer, self.problems)
    }
}

/// Reads rule files that are at hand.
///
/// # Errors
/// All problems of all files, if one of them is an error.
pub fn load_sources(sources: &[Source], options: &LoadOptions) -> Result<Loaded, Vec<Problem>> {
    load(sources, options, &Layer::default(), Problems::default())
}

/// Reads a text file, up to the length that a rule file may have.
///
/// # Errors
/// What is wrong with the file.
pub fn read_file(path: &Path) -> Result<Source, Fault> {
    files::text_of(path)
}

fn load(
    sources: &[Source],
    options: &LoadOptions,
    layer: &Layer,
    mut problems: Problems,
) -> Result<Loaded, Vec<Problem>> {
    let texts: Vec<(Arc<str>, Vec<Yaml>)> = sources.iter().map(|source| documents(source, &mut problems)).collect();
    let mut found = Vec::new();
    for (file, values) in &texts {
        for value in values {
            found.extend(Document::read(value, &mut Reader::new(file.clone(), &mut problems)));
        }
    }
    let all_read = !problems.has_errors();
    let mut above = Above::read(layer, &mut problems);
    let domains: Vec<Domain> = by_domain(found, options, &mut problems)
        .into_iter()
        .filter_map(|documents| domain::read(&documents, &mut above, &mut problems))
        .collect();
    let names: Vec<&str> = domains.iter().map(|domain| domain.name.as_str()).collect();
    above.finish(&names, all_read, &mut problems);

    // What is no rule file, such as a directory without any, comes first; what is above the files last.
    let files = texts.iter().map(|(file, _)| file.to_string());
    let above = layer.rules.iter().map(LayerRule::place).chain(layer.switches.iter().map(Switch::place));
    let mut ranks: HashMap<String, usize> = HashMap::new();
    for (rank, file) in files.chain(above).enumerate() {
        ranks.entry(file).or_insert(rank + 1);
    }
    let warnings = problems.into_result(|file| ranks.get(file).copied().unwrap_or(0))?;
    Ok(Loaded { domains, warnings })
}

/// The documents of a file, each of which is a domain.
fn documents(source: &Source, problems: &mut Problems) -> (Arc<str>, Vec<Yaml>) {
    let file: Arc<str> = source.name.as_str().into();
    if source.text.len() > MOST_BYTES {
        problems.error(&file, 1, too_long());
        return (file, Vec::new());
    }
    let (mut documents, faults) = yaml::read(&source.text);
    documents.retain(|document| !document.is_null());
    // A file that was cut short would otherwise take its rules away without a word.
    if documents.is_empty() && faults.is_empty() {
        let remedy = "write `domain: NAME` and its rules, or remove the file";
        problems.error(&file, 1, Fault::new("the file is empty", remedy));
    }
    for (line, fault) in faults {
        problems.error(&file, line, fault);
    }
    (file, documents)
}

/// The documents of each domain, which are several only where files are merged.
fn by_domain<'y>(
    documents: Vec<Document<'y>>,
    options: &LoadOptions,
    problems: &mut Problems,
) -> Vec<Vec<Document<'y>>> {
    let mut groups: Vec<Vec<Document<'y>>> = Vec::new();
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
                problems.error(&document.at.file, document.at.line, Fault::new(message, remedy));
                // Its own problems are told all the same.
                groups.push(vec![document]);
            }
        }
    }
    groups
}

fn too_long() -> Fault {
    Fault::new(format!("the file is longer than {} MiB", MOST_BYTES >> 20), "split it")
}
