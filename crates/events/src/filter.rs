//! Which events a sink gets.

use crate::event::EventType;

/// Patterns of names: `store.level`, or `rules.*` for all that begin so. A later pattern adds to the earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFilter(Option<Vec<String>>);

impl EventFilter {
    /// All events.
    pub const ALL: EventFilter = EventFilter(None);

    /// Those that match one of these patterns.
    ///
    /// # Errors
    /// The first pattern that matches no event that exists.
    pub fn new(patterns: Vec<String>) -> Result<EventFilter, String> {
        let matches_none = |pattern: &&String| !EventType::ALL.iter().any(|kind| matches(pattern, kind.name()));
        match patterns.iter().find(matches_none) {
            Some(pattern) => Err(pattern.clone()),
            None => Ok(EventFilter(Some(patterns))),
        }
    }

    /// Whether the event of a line is one of them. Lines of a type that only another version knows are matched by name.
    pub(crate) fn has(&self, kind: &str) -> bool {
        let name = kind.strip_prefix("tollgate.").unwrap_or(kind);
        self.0.as_ref().is_none_or(|patterns| patterns.iter().any(|pattern| matches(pattern, name)))
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names_and_beginnings() {
        let filter = EventFilter::new(vec!["rules.*".to_owned(), "store.level".to_owned()]).unwrap();
        let rows = [("rules.rejected", true), ("store.level", true), ("store.levels", false), ("signal.raised", false)];
        for (name, expected) in rows {
            assert_eq!(filter.has(&format!("tollgate.{name}")), expected, "{name}");
            assert!(EventFilter::ALL.has(name));
        }
        let everything = EventFilter::new(vec!["*".to_owned()]).unwrap();
        assert!(everything.has("tollgate.of.a.newer.version"));
        assert_eq!(EventFilter::new(vec!["*".to_owned(), "rule".to_owned()]), Err("rule".to_owned()));
    }
}
