//! The rule files of `lint`, `explain` and `replay`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use tollgate::{KnownRegions, LoadOptions, RuleProblem, Ruleset};

use super::{EXIT_FAILURE, print_error};

/// The options of rule files. A command also takes paths without `--rules`.
#[derive(Debug, Args)]
pub(super) struct RulesArgs {
    /// A rule file, or a directory of them; may be repeated
    #[arg(long, value_name = "PATH")]
    pub(super) rules: Vec<PathBuf>,
    /// Let several files add to one domain
    #[arg(long)]
    merge_domains: bool,
}

impl RulesArgs {
    /// The paths of `--rules`, followed by these.
    pub(super) fn paths<'a>(&'a self, others: impl IntoIterator<Item = &'a Path>) -> Vec<&'a Path> {
        self.rules.iter().map(PathBuf::as_path).chain(others).collect()
    }

    /// Loads the rules; errors have been printed.
    pub(super) fn load(&self, paths: &[&Path]) -> Result<Ruleset, ExitCode> {
        let loaded = Ruleset::load(paths, &self.options(), 1);
        loaded.map(|(ruleset, _)| ruleset).map_err(|problems| {
            let text: String = problems.iter().map(|problem: &RuleProblem| format!("{problem}\n")).collect();
            print_error(text.trim_end());
            ExitCode::from(EXIT_FAILURE)
        })
    }

    pub(super) fn options(&self) -> LoadOptions {
        LoadOptions { merge_domains: self.merge_domains, regions: KnownRegions::Unchecked, ..LoadOptions::default() }
    }
}
