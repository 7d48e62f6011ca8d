//! The filter of log events.

use std::fmt;
use std::str::FromStr;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// A level for Tollgate, and levels for single modules: `info`, `warn,tollgate::wire=debug,hyper=info`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter {
    level: LevelFilter,
    modules: Vec<(String, LevelFilter)>,
}

const LEVELS: [(&str, LevelFilter); 6] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

/// Modules that a filter may name.
const MAX_MODULES: usize = 64;

impl Default for LogFilter {
    fn default() -> LogFilter {
        LogFilter { level: LevelFilter::INFO, modules: Vec::new() }
    }
}

impl LogFilter {
    /// The filter as tracing applies it. Libraries log warnings only, unless they are named: `debug` shows what Tollgate does and not
    /// every HTTP/2 frame. The trace exporter logs nothing: Tollgate reports its failures, throttled.
    pub(super) fn targets(&self) -> Targets {
        Targets::new()
            .with_default(self.level.min(LevelFilter::WARN))
            .with_target("opentelemetry", LevelFilter::OFF)
            .with_target("tollgate", self.level)
            .with_targets(self.modules.iter().cloned())
            .with_targets(self.modules.iter().filter_map(|(module, level)| Some((crate_target(module)?, *level))))
    }
}

/// The target of one of Tollgate's crates: `tollgate_wire::http` for `tollgate::wire::http`.
fn crate_target(module: &str) -> Option<String> {
    module.strip_prefix("tollgate::").map(|module| format!("tollgate_{module}"))
}

impl FromStr for LogFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<LogFilter, String> {
        let mut filter = LogFilter::default();
        if text.split(',').count() > MAX_MODULES + 1 {
            return Err(format!("a log filter names at most {MAX_MODULES} modules"));
        }
        for word in text.split(',').map(str::trim) {
            match word.split_once('=') {
                None => filter.level = level(word)?,
                Some((module, word)) if is_path(module.trim()) => {
                    filter.modules.push((module.trim().to_owned(), level(word.trim())?));
                }
                Some((module, _)) => {
                    return Err(format!(
                        "{module:?} is not a module: write one like tollgate::wire=debug or hyper=info"
                    ));
                }
            }
        }
        Ok(filter)
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.level)?;
        self.modules.iter().try_for_each(|(module, level)| write!(f, ",{module}={level}"))
    }
}

fn level(word: &str) -> Result<LevelFilter, String> {
    let entry = LEVELS.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
    entry.map(|(_, level)| level).ok_or_else(|| {
        format!("{word:?} is not a log level: write off, error, warn, info, debug or trace; for a module, MODULE=LEVEL")
    })
}

/// Whether this is a module path: `hyper`, `tollgate::wire`.
fn is_path(text: &str) -> bool {
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
    text.split("::").all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    fn allows(filter: &str, target: &str, level: Level) -> bool {
        filter.parse::<LogFilter>().unwrap().targets().would_enable(target, &level)
    }

    #[test]
    fn a_level_is_for_tollgate_and_libraries_only_warn() {
        assert!(allows("info", "tollgate::net", Level::INFO));
        assert!(!allows("info", "tollgate::net", Level::DEBUG));
        assert!(allows("debug", "tollgate_rules::load", Level::DEBUG));
        assert!(allows("debug", "h2::codec", Level::WARN));
        assert!(!allows("debug", "h2::codec", Level::INFO));
        assert!(!allows("error", "h2::codec", Level::WARN));
        assert!(!allows("off", "tollgate", Level::ERROR));
        assert!(!allows("trace", "opentelemetry_sdk", Level::ERROR));
    }

    #[test]
    fn modules_have_levels_of_their_own() {
        let filter = "warn, tollgate::wire=debug,hyper=info";
        assert!(allows(filter, "tollgate::wire::http", Level::DEBUG));
        assert!(allows(filter, "tollgate_wire::http", Level::DEBUG));
        assert!(!allows(filter, "tollgate_net::tls", Level::INFO));
        assert!(!allows(filter, "tollgate::net", Level::INFO));
        assert!(allows(filter, "hyper::server", Level::INFO));
        assert!(allows("INFO,opentelemetry=debug", "opentelemetry_sdk", Level::DEBUG));
    }

    #[test]
    fn display_round_trips() {
        for text in ["info", "off,tollgate::wire=trace", "warn,a=debug,b=info"] {
            assert_eq!(text.parse::<LogFilter>().unwrap().to_string(), text);
        }
        assert_eq!(LogFilter::default().to_string(), "info");
    }

    #[test]
    fn invalid_filters_are_rejected_with_a_remedy() {
        for (text, expected) in [
            ("inof", "\"inof\" is not a log level: write off, error, warn, info, debug or trace"),
            ("", "\"\" is not a log level"),
            ("info,", "\"\" is not a log level"),
            ("tollgate", "for a module, MODULE=LEVEL"),
            ("hyper=loud", "\"loud\" is not a log level"),
            ("=info", "\"\" is not a module"),
            ("a:b=info", "\"a:b\" is not a module: write one like tollgate::wire=debug"),
        ] {
            let error = text.parse::<LogFilter>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn the_number_of_modules_is_bounded() {
        let full = vec!["hyper=info"; MAX_MODULES].join(",");
        assert!(format!("info,{full}").parse::<LogFilter>().is_ok());
        assert!(format!("info,{full},h2=info").parse::<LogFilter>().unwrap_err().contains("at most 64 modules"));
    }
}
