//! Where decisions are logged, as the settings ask for it.

use std::io;

use tollgate::Span;
use tollgate_control::Db;

use crate::config::{DecisionLogPlace, Settings};
use crate::data_dir::DataDir;
use crate::decisions::{FilesConfig, Sink};

/// The directory of its files in the data directory.
const DIRECTORY: &str = "decisions";

/// Where decisions are logged.
///
/// # Errors
/// If they can't be logged there.
pub(super) fn sink(settings: &Settings, db: Option<&Db>, data: Option<&DataDir>) -> Result<Sink, String> {
    let log = &settings.observe.decisions;
    let directory = log.directory.clone().or_else(|| data.map(|data| data.file(DIRECTORY)));
    let keep = Span::from_micros(u64::try_from(log.keep.as_micros()).unwrap_or(u64::MAX));
    let config =
        directory.map(|directory| FilesConfig { directory, most_bytes: log.file_size, most_files: log.files, keep });
    match (log.place, db, config) {
        (DecisionLogPlace::Auto | DecisionLogPlace::Control, Some(db), _) => Ok(Sink::control(db.clone())),
        (DecisionLogPlace::Auto | DecisionLogPlace::Files, _, Some(config)) => Sink::files(config),
        (DecisionLogPlace::Auto | DecisionLogPlace::Off, _, _) => Ok(Sink::Memory),
        (DecisionLogPlace::Stdout, _, _) => Sink::output(io::stdout()),
        (DecisionLogPlace::Control, None, _) => {
            Err("decision_log is control, and there is no control store; start with --data or --control".to_owned())
        }
        (DecisionLogPlace::Files, _, None) => {
            Err("decision_log is files, and there is no directory for them; name one with --decision-log-dir or --data"
                .to_owned())
        }
    }
}
