//! Tells operators how a shared store is: in the health page always, in the log when it changes.

use std::sync::Arc;
use std::time::Duration;

use tollgate_store::guarded::{Circuit, GuardStatus, Level};

use super::redis::InRedis;
use crate::health::Health;
use crate::net::Closing;

/// The part of the server that is degraded while the store does not answer as it should.
pub(crate) const PART: &str = "store";
/// And while a Redis that answers is set up so that counters may get lost.
pub(crate) const WARNING: &str = "store_config";

/// How often is looked.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The most shards that are named.
const MOST_NAMED: usize = 16;

/// What was told last.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    level: Level,
    /// Whether nothing is heard of a store that nobody asks anything.
    unheard: bool,
    warning: Option<String>,
}

/// Looks until the server is about to stop.
pub(crate) async fn watch(store: Arc<InRedis>, health: Arc<Health>, mut closing: Closing) {
    let mut told = Told::default();
    loop {
        told = tell(&store.look().guard, &told, &health);
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = closing.begun() => return,
        }
    }
}

fn tell(status: &GuardStatus, before: &Told, health: &Health) -> Told {
    let unheard = status.unheard.as_ref().filter(|_| status.level == Level::Normal);
    let now = Told { level: status.level, unheard: unheard.is_some(), warning: warning(status) };
    let trouble = match unheard {
        Some(why) => Some(format!("{}: nothing is heard of it: {why}", Level::Degraded.name())),
        None => (status.level != Level::Normal).then(|| format!("{}: {}", status.level.name(), away(status))),
    };
    let changed = (now.level, now.unheard) != (before.level, before.unheard);
    match &trouble {
        Some(trouble) if changed => tracing::warn!("the store is {trouble}"),
        None if changed => tracing::info!("the store is well again"),
        _ => {}
    }
    condition(health, PART, trouble);
    if now.warning != before.warning
        && let Some(warning) = &now.warning
    {
        tracing::warn!("the store may lose counters: {warning}");
    }
    condition(health, WARNING, now.warning.clone());
    now
}

fn condition(health: &Health, part: &'static str, reason: Option<String>) {
    match reason {
        Some(reason) => health.degrade(part, reason),
        None => health.restore(part),
    }
}

/// The shards that are left alone, and why.
fn away(status: &GuardStatus) -> String {
    let away = status.shards.iter().filter(|shard| shard.circuit != Circuit::Closed);
    let why = |error: &Option<String>| error.clone().unwrap_or_else(|| "it failed".to_owned());
    let named = away.clone().take(MOST_NAMED);
    let named: Vec<_> = named.map(|shard| format!("{} ({})", shard.name, why(&shard.last_error))).collect();
    match (named.len(), away.count().saturating_sub(MOST_NAMED)) {
        (0, _) => "no node of it is known".to_owned(),
        (_, 0) => format!("left alone: {}", named.join(", ")),
        (_, more) => format!("left alone: {}, and {more} more", named.join(", ")),
    }
}

/// What is not as it should be with shards that answer.
fn warning(status: &GuardStatus) -> Option<String> {
    let told = status.shards.iter().filter_map(|shard| Some(format!("{}: {}", shard.name, shard.warning.as_ref()?)));
    let told: Vec<_> = told.take(MOST_NAMED).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

#[cfg(test)]
mod tests {
    use tollgate_store::guarded::ShardStatus;

    use super::*;

    fn shard(name: &str, circuit: Circuit, error: Option<&str>) -> ShardStatus {
        let last_error = error.map(str::to_owned);
        ShardStatus { name: name.to_owned(), circuit, errors: Vec::new(), last_error, warning: None }
    }

    fn conditions(health: &Health) -> Vec<(&'static str, String)> {
        health.conditions()
    }

    #[test]
    fn what_is_wrong_is_told_with_shards_and_reasons_until_it_is_over() {
        let health = Health::default();
        let mut status = GuardStatus {
            level: Level::Degraded,
            shards: vec![
                shard("a:1", Circuit::Closed, Some("an old one")),
                shard("b:1", Circuit::Open, Some("refused")),
                shard("c:1", Circuit::HalfOpen, None),
            ],
            ..GuardStatus::default()
        };
        let told = tell(&status, &Told::default(), &health);
        assert_eq!(told.level, Level::Degraded);
        let expected = "degraded: left alone: b:1 (refused), c:1 (it failed)";
        assert_eq!(conditions(&health), [(PART, expected.to_owned())]);
        status.shards = (0..20).map(|at| shard(&at.to_string(), Circuit::Open, None)).collect();
        status.level = Level::Open;
        let told = tell(&status, &told, &health);
        let (_, reason) = &conditions(&health)[0];
        assert!(
            reason.starts_with("open: left alone: 0 (it failed), 1 ") && reason.ends_with("and 4 more"),
            "{reason}"
        );
        status = GuardStatus::default();
        assert_eq!(tell(&status, &told, &health), Told::default());
        assert_eq!(conditions(&health), []);
    }

    #[test]
    fn a_store_that_is_not_heard_of_is_missed_by_those_who_have_nothing_to_ask() {
        let health = Health::default();
        let status = GuardStatus { unheard: Some("nobody there".to_owned()), ..GuardStatus::default() };
        let told = tell(&status, &Told::default(), &health);
        assert!(told.unheard);
        assert_eq!(conditions(&health), [(PART, "degraded: nothing is heard of it: nobody there".to_owned())]);
        // Once shards are left alone, that says more.
        let status = GuardStatus { level: Level::LocalOnly, ..status };
        assert!(!tell(&status, &told, &health).unheard);
        assert_eq!(conditions(&health), [(PART, "local-only: no node of it is known".to_owned())]);
    }

    #[test]
    fn a_warning_is_a_condition_of_its_own() {
        let health = Health::default();
        let mut one = shard("a:1", Circuit::Closed, None);
        one.warning = Some("it may evict".to_owned());
        let status = GuardStatus { shards: vec![one], ..GuardStatus::default() };
        tell(&status, &Told::default(), &health);
        assert_eq!(conditions(&health), [(WARNING, "a:1: it may evict".to_owned())]);
    }
}
