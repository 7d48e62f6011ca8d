//! Checks a file of a gateway before a server uses it, with the files that it names.

use std::path::Path;
use std::sync::Arc;

use tollgate::Ruleset;
use tollgate_net::tls::Tls;
use tollgate_rules::Severity;

use crate::agreement::Disagreement;
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

/// Reads a file, and the certificates and keys that it names. With rules, it is compared with them.
pub fn check_file(path: &Path, rules: Option<&Ruleset>) -> CheckedFile {
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
    let disagreements = rules.map(|rules| Disagreement::find(&config, rules)).unwrap_or_default();
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
    for one in disagreements {
        let (severity, problems) = match one.is_error() {
            true => (Severity::Error, &mut errors),
            false => (Severity::Warning, &mut problems),
        };
        problems.push(problem(severity, lines.of(&one, &config), one.to_string(), &one.remedy()));
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

    /// The line of what the rules do not have.
    fn of(&self, disagreement: &Disagreement, config: &GatewayConfig) -> usize {
        match disagreement {
            Disagreement::UnknownDomain { .. } | Disagreement::NoDomain { .. } => self.beginning("domain:"),
            Disagreement::UnknownTier { upstream, tier, .. } => {
                let from = self.beginning(&format!("{upstream}:"));
                let reserve = self.find_from(from, |line| line.contains("reserve:")).unwrap_or(from);
                self.find_from(reserve, |line| line.contains(tier.as_str())).unwrap_or(reserve)
            }
            Disagreement::UnusedCost { route, attribute } | Disagreement::UnsettledCost { route, attribute } => {
                let from = config.routes.iter().find(|one| one.name == *route).map_or(1, |route| route.line);
                self.find_from(from, |line| line.contains(&format!("{attribute}:"))).unwrap_or(from)
            }
        }
    }

    fn beginning(&self, text: &str) -> usize {
        self.find(|line| line.trim_start().starts_with(text))
    }

    fn find(&self, is_it: impl Fn(&str) -> bool) -> usize {
        self.find_from(1, is_it).unwrap_or(1)
    }

    /// The first line that is it, from this one on.
    fn find_from(&self, first: usize, is_it: impl Fn(&str) -> bool) -> Option<usize> {
        let lines = self.0.lines().enumerate().skip(first.saturating_sub(1));
        lines.into_iter().find(|(_, line)| is_it(line)).map(|(index, _)| index + 1)
    }
}
