//! Settings from all their sources.

mod envoy;
mod errors;
mod printed;
mod random;
mod sources;
mod store;

use std::fs;

use super::{Gathered, command, gather};

/// What one start of the server is given.
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
    fn gather(&self) -> Result<Gathered, Vec<String>> {
        let directory = tempfile::tempdir().unwrap();
        if let Some(text) = &self.file {
            fs::write(directory.path().join("tollgate.yaml"), text).unwrap();
        }
        let arguments = ["tollgate"].into_iter().chain(self.flags.iter().map(String::as_str));
        let matches = command(clap::Command::new("tollgate")).try_get_matches_from(arguments).unwrap();
        let variables = self.variables.iter().map(|(name, value)| (name.into(), value.into()));
        let home = format!("{}/", directory.path().display());
        gather(&matches, variables, directory.path())
            .map_err(|problems| problems.iter().map(|problem| problem.to_string().replace(&home, "")).collect())
    }

    fn gathered(&self) -> Gathered {
        self.gather().unwrap_or_else(|problems| panic!("{self:?}: {problems:#?}"))
    }

    fn problems(&self) -> Vec<String> {
        self.gather().map(|gathered| gathered.settings).expect_err(&format!("{self:?}"))
    }

    /// What is told although it starts.
    fn warnings(&self) -> Vec<String> {
        self.gathered().warnings.iter().map(ToString::to_string).collect()
    }

    /// The text and the origin of a setting.
    fn value(&self, name: &str) -> (String, String) {
        let gathered = self.gathered();
        let given = gathered.values.given(name).unwrap();
        let origin = given.origin.to_string();
        let origin = origin
            .rsplit_once('/')
            .filter(|(_, rest)| rest.starts_with("tollgate.yaml"))
            .map(|(_, rest)| rest.to_owned())
            .unwrap_or(origin);
        (given.text.clone().unwrap(), origin)
    }
}
