//! Reads `gateway.yaml`. All errors are reported at once, each with its line and a remedy.
//!
//! Nothing is opened: files that the configuration names are read by those who use them.

mod attributes;
mod costs;
mod defaults;
mod issuers;
mod listeners;
mod patterns;
mod priorities;
mod routes;
mod shedding;
mod upstreams;
mod values;

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use tollgate_rules::Severity;
use tollgate_rules::problem::{TextFault, choose, quoted};
use tollgate_rules::yaml::fields::{Faults, Fields, text};
use tollgate_rules::yaml::{self, Yaml};

use crate::model::{GatewayConfig, UpstreamHeaders};

/// A configuration that can take effect.
#[derive(Clone, Debug)]
pub struct ReadConfig {
    pub config: GatewayConfig,
    /// Likely mistakes.
    pub warnings: Vec<GatewayProblem>,
}

/// A problem in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayProblem {
    /// Whether the file can take effect in spite of it.
    pub severity: Severity,
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub remedy: String,
}

/// What the readers of all parts need.
struct Context<'a> {
    /// Where relative paths begin.
    folder: &'a Path,
    warnings: &'a Faults,
}

/// The largest file, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The most attributes with the cost of a request.
const MAX_COSTS: usize = 4;

/// Where callers see their limits, unless the file says otherwise.
const LIMITS_PATH: &str = "/.well-known/ratelimit";

/// The attributes that every request has.
const OF_EVERY_REQUEST: [&str; 7] = ["route", "method", "path", "endpoint", "host", "remote_address", "priority"];

impl GatewayConfig {
    /// Reads a file. Relative paths in it are relative to its folder.
    pub fn read_file(path: &Path) -> Result<ReadConfig, Vec<GatewayProblem>> {
        let name = path.display().to_string();
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text));
        let problem = |message: String, remedy: &str| {
            vec![GatewayProblem::new(Severity::Error, &name.as_str().into(), 1, TextFault::new(message, remedy))]
        };
        match read {
            Err(error) => {
                Err(problem(format!("the file can't be read: {error}"), "check its name and its permissions"))
            }
            Ok(_) if text.len() as u64 > MAX_FILE_BYTES => {
                Err(problem(format!("the file is larger than {} MiB", MAX_FILE_BYTES >> 20), "write a smaller one"))
            }
            Ok(_) => GatewayConfig::read(&name, &text, path.parent().unwrap_or(Path::new(""))),
        }
    }

    /// Reads the text of a file. Relative paths in it are relative to the folder.
    pub fn read(file_name: &str, text: &str, folder: &Path) -> Result<ReadConfig, Vec<GatewayProblem>> {
        let (documents, unreadable) = yaml::read_either(text);
        let (faults, warnings) = (Faults::default(), Faults::default());
        if documents.is_empty() && unreadable.is_empty() {
            faults.push(1, TextFault::new("the file is empty", "write at least `listen`, `upstreams` and `routes`"));
        }
        for (line, fault) in unreadable {
            faults.push(line, fault);
        }
        let context = Context { folder, warnings: &warnings };
        let config = document(&documents, &faults).map(|map| gateway(&map, &context));
        let file: Arc<str> = file_name.into();
        let problems = |severity: Severity, faults: Faults| -> Vec<GatewayProblem> {
            let faults = faults.into_sorted().into_iter();
            faults.map(|(line, fault)| GatewayProblem::new(severity, &file, line, fault)).collect()
        };
        let mut errors = problems(Severity::Error, faults);
        let warnings = problems(Severity::Warning, warnings);
        match config {
            Some(config) if errors.is_empty() => Ok(ReadConfig { config, warnings }),
            _ => {
                errors.extend(warnings);
                Err(errors)
            }
        }
    }
}

/// The single document of a file. Without one, an error is reported already.
fn document<'y>(documents: &'y [Yaml], faults: &'y Faults) -> Option<Fields<'y>> {
    match documents {
        [] => None,
        [document] => Fields::of(document, "the configuration of a gateway", faults),
        [_, second, ..] => {
            faults.push(second.line, TextFault::new("a second document begins here", "write one gateway to a file"));
            None
        }
    }
}

fn gateway(map: &Fields<'_>, context: &Context<'_>) -> GatewayConfig {
    let listeners = listeners::listeners(map, context);
    let trusted_proxies = listeners::trusted_proxies(map, context);
    let domain = map.read("domain", values::words);
    let upstreams = upstreams::upstreams(map, context);
    let attribute_names = attributes::names(map);
    let (routes, route_lines) = routes::routes(map, context, &attribute_names);
    let mut issuers = issuers::Issuers::read(map, context);
    let attributes = attributes::attributes(map, context, &mut issuers, &routes, &listeners);
    let priorities = priorities::priorities(map, &attribute_names, &route_lines);
    let worker_shedding = shedding::worker(map);
    let to_upstream = map.read("to_upstream", to_upstream).unwrap_or_default();
    let limits_path = match map.read("limits_path", |value| limits_path(text(value)?)) {
        Some(written) => {
            if let Some(path) = &written {
                routes::warn_of_hidden(path, &routes, context);
            }
            written
        }
        // Without attributes there are no callers, and a route for the path precedes what nobody has written.
        None => Some(LIMITS_PATH.to_owned()).filter(|path| !attributes.is_empty() && !routes::has_path(path, &routes)),
    };
    map.finish();
    GatewayConfig {
        listeners,
        trusted_proxies,
        domain,
        attributes,
        issuers: issuers.into_all(),
        priorities,
        upstreams,
        routes,
        worker_shedding,
        to_upstream,
        limits_path,
    }
}

/// A path, or `off`.
fn limits_path(given: &str) -> Result<Option<String>, TextFault> {
    if given == "off" {
        return Ok(None);
    }
    let pattern = patterns::path(given)?;
    match patterns::is_literal(&pattern) {
        true => Ok(Some(given.to_owned())),
        false => Err(TextFault::new(
            format!("{} is a pattern, not a path", quoted(given)),
            "write a path without `*` and `{…}`, for instance /v1/limits, or off",
        )),
    }
}

fn to_upstream(value: &Yaml) -> Result<UpstreamHeaders, TextFault> {
    const NAMES: [&str; 6] = ["caller", "tier", "priority", "rule", "remaining", "cost"];
    let mut headers = UpstreamHeaders::default();
    for item in values::one_or_more(value, NAMES.len())? {
        let given = text(item)?;
        *match given {
            "caller" => &mut headers.caller,
            "tier" => &mut headers.tier,
            "priority" => &mut headers.priority,
            "rule" => &mut headers.rule,
            "remaining" => &mut headers.remaining,
            "cost" => &mut headers.cost,
            _ => {
                let message = format!("there is no header {} to upstreams", quoted(given));
                return Err(TextFault::new(message, choose(given, NAMES)));
            }
        } = true;
    }
    Ok(headers)
}

// === impl GatewayProblem ===

impl GatewayProblem {
    fn new(severity: Severity, file: &Arc<str>, line: usize, fault: TextFault) -> GatewayProblem {
        let TextFault { message, remedy } = fault;
        GatewayProblem { severity, file: file.clone(), line, message, remedy }
    }
}

impl fmt::Display for GatewayProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}; {}", self.file, self.line, self.severity, self.message, self.remedy)
    }
}

#[cfg(test)]
mod tests;
