//! Which events are logged.

use std::fmt;
use std::str::FromStr;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// A level for Tollgate, and others for parts: `info`, `warn,tollgate::wire=debug,hyper=info`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    level: LevelFilter,
    parts: Vec<(String, LevelFilter)>,
}

const LEVELS: [(&str, LevelFilter); 6] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

/// The most parts that a filter may name.
const MOST_PARTS: usize = 64;

impl Default for Filter {
    fn default() -> Filter {
        Filter { level: LevelFilter::INFO, parts: Vec::new() }
    }
}

impl Filter {
    /// What decides about an event. Libraries say no more than warnings unless they are named: at `debug` one wants to see what
    /// Tollgate does, not every frame of HTTP/2. The exporter of traces says nothing: its failures are told by us, seldom.
    pub(super) fn targets(&self) -> Targets {
        Targets::new()
            .with_default(self.level.min(LevelFilter::WARN))
            .with_target("opentelemetry", LevelFilter::OFF)
            .with_target("tollgate", self.level)
            .with_targets(self.parts.iter().cloned())
    }
}

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Filter, String> {
        let mut filter = Filter::default();
        if text.split(',').count() > MOST_PARTS + 1 {
            return Err(format!("a log filter names at most {MOST_PARTS} parts"));
        }
        for word in text.split(',').map(str::trim) {
            match word.split_once('=') {
                None => filter.level = level(word)?,
                Some((part, of)) if is_path(part.trim()) => {
                    filter.parts.push((part.trim().to_owned(), level(of.trim())?));
                }
                Some((part, _)) => {
                    return Err(format!("{part:?} names no part: write one like tollgate::wire=debug or hyper=info"));
                }
            }
        }
        Ok(filter)
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.level)?;
        self.parts.iter().try_for_each(|(part, level)| write!(f, ",{part}={level}"))
    }
}

fn level(word: &str) -> Result<LevelFilter, String> {
    let known = LEVELS.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
    known.map(|(_, level)| level).ok_or_else(|| {
        format!("{word:?} is not a log level: write off, error, warn, info, debug or trace; for a part, PART=LEVEL")
    })
}

/// A path of modules: `hyper`, `tollgate::wire`.
fn is_path(text: &str) -> bool {
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
    text.split("::").all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    fn lets(filter: &str, target: &str, level: Level) -> bool {
        filter.parse::<Filter>().unwrap().targets().would_enable(target, &level)
    }

    #[test]
    fn a_level_is_for_tollgate_and_libraries_only_warn() {
        assert!(lets("info", "tollgate::net", Level::INFO));
        assert!(!lets("info", "tollgate::net", Level::DEBUG));
        assert!(lets("debug", "tollgate_rules::load", Level::DEBUG));
        assert!(lets("debug", "h2::codec", Level::WARN));
        assert!(!lets("debug", "h2::codec", Level::INFO));
        assert!(!lets("error", "h2::codec", Level::WARN));
        assert!(!lets("off", "tollgate", Level::ERROR));
        assert!(!lets("trace", "opentelemetry_sdk", Level::ERROR));
    }

    #[test]
    fn parts_have_levels_of_their_own() {
        let filter = "warn, tollgate::wire=debug,hyper=info";
        assert!(lets(filter, "tollgate::wire::http", Level::DEBUG));
        assert!(!lets(filter, "tollgate::net", Level::INFO));
        assert!(lets(filter, "hyper::server", Level::INFO));
        assert!(lets("INFO,opentelemetry=debug", "opentelemetry_sdk", Level::DEBUG));
    }

    #[test]
    fn it_is_shown_as_it_is_read() {
        for text in ["info", "off,tollgate::wire=trace", "warn,a=debug,b=info"] {
            assert_eq!(text.parse::<Filter>().unwrap().to_string(), text);
        }
        assert_eq!(Filter::default().to_string(), "info");
    }

    #[test]
    fn what_is_no_filter_is_told_what_to_write() {
        for (text, told) in [
            ("inof", "\"inof\" is not a log level: write off, error, warn, info, debug or trace"),
            ("", "\"\" is not a log level"),
            ("info,", "\"\" is not a log level"),
            ("tollgate", "for a part, PART=LEVEL"),
            ("hyper=loud", "\"loud\" is not a log level"),
            ("=info", "\"\" names no part"),
            ("a:b=info", "\"a:b\" names no part: write one like tollgate::wire=debug"),
        ] {
            let error = text.parse::<Filter>().unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }

    #[test]
    fn it_has_a_bound() {
        let most = vec!["hyper=info"; MOST_PARTS].join(",");
        assert!(format!("info,{most}").parse::<Filter>().is_ok());
        assert!(format!("info,{most},h2=info").parse::<Filter>().unwrap_err().contains("at most 64 parts"));
    }
}
