//! Logs on standard error, as text or as JSON.

mod filter;
mod queue;

use std::io::{self, IsTerminal};

use prometheus_client::metrics::counter::Counter;
use tracing::Subscriber;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry};

pub use filter::LogFilter;
use queue::LogQueue;

/// The settings of the log.
#[derive(Clone, Debug, Default)]
pub struct LogSettings {
    pub filter: LogFilter,
    pub format: LogFormat,
}

/// The format of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Logging lasts as long as this guard. Dropping it waits for the queued lines, for at most two seconds.
#[derive(Debug)]
pub struct LogGuard {
    _queue: LogQueue,
}

impl LogFormat {
    /// The names in flags and files.
    pub const NAMES: [&str; 2] = ["text", "json"];
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

/// Starts the log. `lost` counts the lines that standard error did not accept in time.
///
/// # Errors
/// If a log has been started already, or the thread can't be started.
pub fn init(settings: &LogSettings, lost: Counter) -> Result<LogGuard, String> {
    let (queue, writer) =
        LogQueue::start(io::stderr(), lost).map_err(|error| format!("the log thread can't be started: {error}"))?;
    tracing::subscriber::set_global_default(subscriber(settings, writer, is_coloured()))
        .map_err(|_| "the log was started twice".to_owned())?;
    Ok(LogGuard { _queue: queue })
}

/// Whether to colour: on terminals, unless `NO_COLOR` is set (no-color.org).
fn is_coloured() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The subscriber that formats events. Times are UTC, to the microsecond.
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

/// The lines that `during` logs.
#[cfg(test)]
pub fn logged(settings: &LogSettings, during: impl FnOnce()) -> String {
    let buffer = tests::Buffer::default();
    tracing::subscriber::with_default(subscriber(settings, buffer.clone(), false), during);
    buffer.text()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::Masked;

    #[derive(Clone, Default)]
    pub(super) struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Buffer {
        pub(super) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'w> MakeWriter<'w> for Buffer {
        type Writer = Buffer;

        fn make_writer(&'w self) -> Buffer {
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
    fn formats_have_names_and_other_names_are_rejected() {
        for (name, format) in LogFormat::NAMES.into_iter().zip([LogFormat::Text, LogFormat::Json]) {
            assert_eq!(name.parse(), Ok(format));
        }
        let error = "xml".parse::<LogFormat>().unwrap_err();
        assert_eq!(error, "\"xml\" is not a log format: write text or json");
    }
}
