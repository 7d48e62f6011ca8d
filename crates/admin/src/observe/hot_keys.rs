//! Hot keys as events: keys in a shared store of which the requests of this server take very many units a second.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use serde_json::json;
use tollgate::Timestamp;
use tollgate_events::{CloudEvent, EventSeverity, EventType};
use tollgate_observe::KeyName;
use tollgate_store::Counters;
use tollgate_store::leased::HotKey;

use super::Observability;

/// The keys that are hot.
#[derive(Debug, Default)]
pub(super) struct HotKeys(Mutex<HashSet<KeyName>>);

/// Units a second from which on a key is hot.
const HOT_RATE: f64 = 1_000.0;
/// Below that it no longer is.
const COOL_RATE: f64 = 500.0;
/// The busiest keys, which are looked at.
const MAX_KEYS: usize = 20;

impl HotKeys {
    /// The keys that became hot. Those that are not among the busiest any more are not hot.
    fn update(&self, busiest: Vec<(KeyName, f64)>) -> Vec<(KeyName, f64)> {
        let mut hot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *hot);
        let mut new = Vec::new();
        for (name, rate) in busiest {
            let was_hot = before.contains(&name);
            if rate < if was_hot { COOL_RATE } else { HOT_RATE } {
                continue;
            }
            if !was_hot {
                new.push((name.clone(), rate));
            }
            hot.insert(name);
        }
        new
    }
}

impl Observability {
    /// Looks at the busiest keys of a shared store.
    pub(super) fn evaluate_hot_keys(&self, counters: &Counters, now: Timestamp) {
        let Some(store) = counters.shared() else { return };
        let name = |key: &HotKey| self.observer.heavy_hitters().name_of(&key.key.key());
        let busiest = store.leases(MAX_KEYS).hot_keys.iter().map(|key| (name(key), key.rate)).collect();
        for (name, rate) in self.hot_keys.update(busiest) {
            self.sampler.events.stream().emit(self.hot_key_event(&name, rate, now));
        }
    }

    fn hot_key_event(&self, name: &KeyName, rate: f64, now: Timestamp) -> CloudEvent {
        let (domain, rule, rate) = (name.domain(), name.rule(), rate.round());
        let text = format!("a key of the rule {rule} of {domain} is hot: {rate} units a second on this server");
        let stream = self.sampler.events.stream();
        let mut event = stream.event(now, EventType::KeyHot, EventSeverity::Info, text);
        event.subject = Some(rule.to_owned());
        let data = [
            ("domain", json!(domain)),
            ("rule", json!(rule)),
            ("key", json!(name.key())),
            ("units_per_second", json!(rate)),
        ];
        event.data.extend(data.map(|(name, value)| (name.to_owned(), value)));
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_hot_once_until_it_has_cooled() {
        let hot = HotKeys::default();
        let name = |key: &str| KeyName::new("shop", "per-key", key, None);
        let update = |rates: &[(&str, f64)]| -> Vec<String> {
            let new = hot.update(rates.iter().map(|(key, rate)| (name(key), *rate)).collect());
            new.iter().map(|(name, _)| name.key().to_owned()).collect()
        };
        assert_eq!(update(&[("a", 999.0), ("b", 1_000.0)]), ["b"]);
        assert_eq!(update(&[("a", 1_500.0), ("b", 501.0)]), ["a"]);
        assert_eq!(update(&[("a", 700.0), ("b", 499.0)]), [""; 0]);
        assert_eq!(update(&[("a", 700.0), ("b", 1_100.0)]), ["b"]);
        // Among the busiest no more.
        assert_eq!(update(&[("b", 5_000.0)]), [""; 0]);
        assert_eq!(update(&[("a", 5_000.0)]), ["a"]);
    }

    #[test]
    fn the_event_has_the_key_and_the_text_does_not() {
        let observability = Observability::for_tests();
        let name = KeyName::new("shop", "per-key", "203.0.113.7", None);
        let event = observability.hot_key_event(&name, 1_234.5, Timestamp::from_secs(1));
        assert_eq!(event.text, "a key of the rule per-key of shop is hot: 1235 units a second on this server");
        assert_eq!((&event.data["key"], &event.data["units_per_second"]), (&json!("203.0.113.7"), &json!(1_235.0)));
    }
}
