//! The settings of `tollgate serve`: flags, `TOLLGATE_*` variables, `tollgate.yaml` and, if enabled, envoyproxy/ratelimit's
//! environment, in that order of precedence.
//!
//! Every setting is a row of one [table](table::table). Every value is a text with its origin; the one with the highest precedence
//! becomes a part of [`ServerSettings`] or a [`ConfigProblem`]. All problems are reported at once.

mod auth;
mod build;
mod control;
mod environment;
mod envoy;
mod file;
mod flags;
mod key_privacy;
mod observe;
mod origin;
mod print;
mod read;
mod receipts;
#[cfg(test)]
mod reference;
mod regions;
mod settings;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod values;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use tollgate_rules::problem::TextFault;

use environment::Environment;
use origin::{ConfigProblems, Origin, SettingLayer, SettingValue};
use read::SettingsReader;
use table::DEFAULT_FILE;
use values::Values;

pub use flags::{PATHS, command};
pub use origin::ConfigProblem;
#[cfg(test)]
use settings::{
    AdminSettings, ClientCertificate, ControlSettings, GrpcSettings, HttpSettings, IdempotencySettings, Percent,
    RespSettings, ResponseHeaders,
};
pub use settings::{
    ClientAuthSettings, ControlPlace, DataAuth, DataSettings, DecisionLogPlace, GuardrailSettings, KeyPrivacySettings,
    LeaseSettings, ListenSettings, LogFormat, ObserveSettings, OtherRegion, PasswordSource, ReceiptKeySource,
    RedisAccess, RedisSettings, RegionSettings, RulesSettings, ServerSettings, StoreSettings, TlsSettings,
    WorkerSettings,
};

/// The settings at the start.
#[derive(Debug)]
pub struct LoadedSettings {
    /// The settings of the server.
    pub settings: ServerSettings,
    /// Warnings for whoever starts the server.
    pub warnings: Vec<ConfigProblem>,
    /// Whether to print the settings and exit.
    pub print_only: bool,
    values: Values,
}

/// Settings from the flags of [`command`], these variables, and the file that they name or that is in this directory.
///
/// # Errors
/// All problems, if one of them is an error.
pub fn load(
    matches: &ArgMatches,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    directory: &Path,
) -> Result<LoadedSettings, Vec<ConfigProblem>> {
    let mut problems = ConfigProblems::default();
    let environment = Environment::new(variables);
    flags::report_foreign(matches, &mut problems);
    let (flags, own) = (flags::read(matches), environment.settings(&mut problems));
    let file = match settings_file(&Values::merge(&[&flags, &own]), directory) {
        Ok(Some(path)) => file::read(&path, &mut problems),
        Ok(None) => SettingLayer::new(),
        Err((place, fault)) => {
            problems.error(place, fault);
            SettingLayer::new()
        }
    };
    let without_envoy = Values::merge(&[&flags, &own, &file]);
    let envoy = match SettingsReader::new(&without_envoy, &mut problems).switch("envoy_env") {
        Some(true) => envoy::read(&environment, &without_envoy, &mut problems),
        _ => SettingLayer::new(),
    };
    let values = Values::merge(&[&flags, &own, &file, &envoy]);
    let mut reader = SettingsReader::new(&values, &mut problems);
    let (settings, print_only) = (reader.settings(), reader.switch("print_config"));
    if let Some(settings) = &settings {
        envoy::warn_open_listeners(settings, &values, &mut problems);
    }
    let warnings = problems.into_result()?;
    // Settings that can't be built have been reported as errors.
    let loaded = settings.zip(print_only);
    loaded.map(|(settings, print_only)| LoadedSettings { settings, warnings, print_only, values }).ok_or_else(Vec::new)
}

/// The file to read, if any.
fn settings_file(values: &Values, directory: &Path) -> Result<Option<PathBuf>, (String, TextFault)> {
    let Some(SettingValue { text, origin }) = values.get("config") else { return Ok(None) };
    if *origin == Origin::Default {
        let path = directory.join(DEFAULT_FILE);
        // For a file that can't be accessed, reading reports the error.
        return Ok(Some(path).filter(|path| !matches!(path.try_exists(), Ok(false))));
    }
    match text.as_ref().map(|text| text.trim()) {
        Ok("none") => Ok(None),
        Ok("") => Err((origin.place(), TextFault::new("`config`: it is empty", "name a file, or write none"))),
        Ok(path) => Ok(Some(PathBuf::from(path))),
        Err(fault) => Err((origin.place(), fault.clone())),
    }
}

impl LoadedSettings {
    /// All settings as an equivalent file, each with its origin.
    pub fn print(&self) -> String {
        print::print(&self.values)
    }
}
