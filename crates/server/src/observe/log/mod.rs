//! Logs: lines to standard error, for people or for machines.

mod filter;
mod queue;

use std::io::{self, IsTerminal};

use prometheus_client::metrics::counter::Counter;
use tracing::Subscriber;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry};

pub(crate) use filter::Filter;
use queue::Lines;

/// How to log.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogSettings {
    pub(crate) filter: Filter,
    pub(crate) format: LogFormat,
}

/// How a line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Lines wait for standard error while this lives. Dropped, it waits until they are written, but no longer than two seconds.
#[derive(Debug)]
pub(crate) struct LogGuard {
    _lines: Lines,
}

impl LogFormat {
    /// Its names in flags and files.
    pub(crate) const NAMES: [&str; 2] = ["text", "json"];
}

impl std::str::FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<LogFormat, String> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err(format!("{text:?} is not a log format: write {}", LogFormat::NAMES.join(" or "))),
        }
    }
}

/// Logs from now on. `lost` counts the lines that standard error did not take.
///
/// # Errors
/// If something logs already, or there can't be another thread.
pub(crate) fn init(settings: &LogSettings, lost: Counter) -> Result<LogGuard, String> {
    let (lines, writer) = Lines::to(io::stderr(), lost).map_err(|error| format!("the log has no thread: {error}"))?;
    tracing::subscriber::set_global_default(subscriber(settings, writer, colour()))
        .map_err(|_| "the log was started twice".to_owned())?;
    Ok(LogGuard { _lines: lines })
}

/// Colour is for terminals, and for those who did not ask to be spared it (no-color.org).
fn colour() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// What turns events into lines. Times are UTC, to the microsecond.
fn subscriber<W>(settings: &LogSettings, writer: W, colour: bool) -> impl Subscriber + Send + Sync + use<W>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(colour);
    let layer: Box<dyn Layer<Registry> + Send + Sync> = match settings.format {
        LogFormat::Text => layer.compact().boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(settings.filter.targets()))
}

/// What tests look at.
#[cfg(test)]
pub(crate) fn logged(settings: &LogSettings, during: impl FnOnce()) -> String {
    let kept = tests::Kept::default();
    tracing::subscriber::with_default(subscriber(settings, kept.clone(), false), during);
    kept.text()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::observe::Masked;

    #[derive(Clone, Default)]
    pub(super) struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Kept {
        pub(super) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'w> MakeWriter<'w> for Kept {
        type Writer = Kept;

        fn make_writer(&'w self) -> Kept {
            self.clone()
        }
    }

    fn settings(filter: &str, format: LogFormat) -> LogSettings {
        LogSettings { filter: filter.parse().unwrap(), format }
    }

    const KEY: &str = "sk_live_0123456789abcdef";

    fn events() {
        tracing::info!(rules = 3, "rules are in force");
        tracing::debug!(key = %Masked(KEY), "checked");
    }

    #[test]
    fn text_is_a_line_with_utc_time_level_and_fields() {
        let text = logged(&settings("info", LogFormat::Text), events);
        assert_eq!(text.lines().count(), 1, "{text}");
        let (time, rest) = text.split_once(' ').unwrap();
        assert!(time.ends_with('Z') && time.len() == "2026-01-01T00:00:00.000000Z".len(), "{text}");
        assert!(rest.trim_start().starts_with("INFO "), "{text}");
        assert!(rest.contains("rules are in force") && rest.contains("rules=3"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn json_is_an_object_a_line() {
        let text = logged(&settings("debug", LogFormat::Json), events);
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert_eq!(lines[0]["level"], "INFO");
        assert_eq!(lines[0]["message"], "rules are in force");
        assert_eq!(lines[0]["rules"], 3);
        assert!(lines[0]["timestamp"].as_str().unwrap().ends_with('Z'));
        assert_eq!(lines[1]["key"], Masked(KEY).to_string());
    }

    #[test]
    fn a_whole_key_never_appears() {
        for format in [LogFormat::Text, LogFormat::Json] {
            let text = logged(&settings("trace", format), events);
            assert!(text.contains("sk_l…") && !text.contains(&KEY[..8]), "{text}");
        }
    }

    #[test]
    fn formats_have_names_and_others_are_told_what_to_write() {
        for (name, format) in LogFormat::NAMES.into_iter().zip([LogFormat::Text, LogFormat::Json]) {
            assert_eq!(name.parse(), Ok(format));
        }
        let error = "xml".parse::<LogFormat>().unwrap_err();
        assert_eq!(error, "\"xml\" is not a log format: write text or json");
    }
}
