//! Settings from all their sources.

mod envoy;
mod errors;
mod print;
mod random;
mod regions;
mod sources;
mod store;

use std::fs;

use super::{LoadedSettings, command, load};

/// The inputs of one start.
#[derive(Clone, Debug, Default)]
struct Start {
    flags: Vec<String>,
    variables: Vec<(String, String)>,
    file: Option<String>,
}

/// A start with these flags and `NAME=value` variables, in a directory with this file.
fn start(flags: &[&str], variables: &[&str], file: &str) -> Start {
    let pair = |text: &&str| text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())).unwrap();
    Start {
        flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        variables: variables.iter().map(pair).collect(),
        file: (!file.is_empty()).then(|| file.to_owned()),
    }
}

impl Start {
    fn load(&self) -> Result<LoadedSettings, Vec<String>> {
        let directory = tempfile::tempdir().unwrap();
        if let Some(text) = &self.file {
            fs::write(directory.path().join("tollgate.yaml"), text).unwrap();
        }
        let arguments = ["tollgate"].into_iter().chain(self.flags.iter().map(String::as_str));
        let matches = command(clap::Command::new("tollgate")).try_get_matches_from(arguments).unwrap();
        let variables = self.variables.iter().map(|(name, value)| (name.into(), value.into()));
        let home = format!("{}/", directory.path().display());
        load(&matches, variables, directory.path())
            .map_err(|problems| problems.iter().map(|problem| problem.to_string().replace(&home, "")).collect())
    }

    fn loaded(&self) -> LoadedSettings {
        self.load().unwrap_or_else(|problems| panic!("{self:?}: {problems:#?}"))
    }

    fn problems(&self) -> Vec<String> {
        self.load().map(|loaded| loaded.settings).expect_err(&format!("{self:?}"))
    }

    /// The warnings of a successful start.
    fn warnings(&self) -> Vec<String> {
        self.loaded().warnings.iter().map(ToString::to_string).collect()
    }

    /// The text and the origin of a setting.
    fn value(&self, name: &str) -> (String, String) {
        let loaded = self.loaded();
        let value = loaded.values.get(name).unwrap();
        let origin = value.origin.to_string();
        let origin = origin
            .rsplit_once('/')
            .filter(|(_, rest)| rest.starts_with("tollgate.yaml"))
            .map(|(_, rest)| rest.to_owned())
            .unwrap_or(origin);
        (value.text.clone().unwrap(), origin)
    }
}
