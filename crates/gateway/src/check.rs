//! Checks a file of a gateway before a server uses it, with the files that it names.

use std::path::Path;
use std::sync::Arc;

use tollgate_net::tls::Tls;
use tollgate_rules::Severity;

use crate::config::{GatewayProblem, ReadConfig};
use crate::explain;
use crate::identity::Identity;
use crate::model::GatewayConfig;
use crate::plan::GatewayPlan;

/// The result of a check.
#[derive(Clone, Debug)]
pub struct CheckedFile {
    /// `None` if the file has errors.
    pub config: Option<GatewayConfig>,
    /// Errors and warnings.
    pub problems: Vec<GatewayProblem>,
}

/// Reads a file, and the certificates and keys that it names.
pub fn check_file(path: &Path) -> CheckedFile {
    let ReadConfig { config, warnings: mut problems } = match GatewayConfig::read_file(path) {
        Ok(read) => read,
        Err(problems) => return CheckedFile { config: None, problems },
    };
    let lines = Lines(std::fs::read_to_string(path).unwrap_or_default());
    let file: Arc<str> = path.display().to_string().into();
    let problem = |severity: Severity, line: usize, message: String, remedy: &str| GatewayProblem {
        severity,
        file: file.clone(),
        line,
        message,
        remedy: remedy.to_owned(),
    };
    let remedy = "correct it, or the file that it names: relative names begin at the folder of this file";
    let mut errors = Vec::new();
    for listener in &config.listeners {
        let Some(files) = &listener.tls else { continue };
        if let Err(error) = Tls::load(files.clone(), &[b"h2", b"http/1.1"]) {
            let message = format!("listener {}: {error}", listener.address);
            errors.push(problem(Severity::Error, lines.naming(&files.cert), message, remedy));
        }
    }
    for error in GatewayPlan::new(config.clone(), None).err().into_iter().flatten() {
        let upstream = config.upstreams.iter().find(|one| error.starts_with(&format!("upstream `{}`:", one.name)));
        let line = upstream.map_or(1, |upstream| lines.beginning(&format!("{}:", upstream.name)));
        errors.push(problem(Severity::Error, line, error, remedy));
    }
    let remedy = "write the file before requests come: until then no token is valid";
    for (path, error) in explain::unloaded_keys(&Identity::new(&config.attributes, &[])) {
        let message = format!("keys {}: {error}", path.display());
        problems.push(problem(Severity::Warning, lines.naming(&path), message, remedy));
    }
    match errors.is_empty() {
        true => CheckedFile { config: Some(config), problems },
        false => CheckedFile { config: None, problems: errors.into_iter().chain(problems).collect() },
    }
}

/// The text of a file, to find the lines of what the configuration has no lines of.
struct Lines(String);

impl Lines {
    /// The line that names a file; the first line if none does.
    fn naming(&self, file: &Path) -> usize {
        let name = file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        self.find(|line| line.contains(&*name))
    }

    fn beginning(&self, text: &str) -> usize {
        self.find(|line| line.trim_start().starts_with(text))
    }

    fn find(&self, is_it: impl Fn(&str) -> bool) -> usize {
        self.0.lines().position(is_it).map_or(1, |index| index + 1)
    }
}
