//! Reports the health of a shared store: on the health page, and in the log when it changes.

use std::sync::Arc;
use std::time::Duration;

use tollgate_net::Closing;
use tollgate_store::SharedStore;
use tollgate_store::guarded::{Circuit, GuardStatus, Level};
use tollgate_telemetry::Health;

/// The component whose health is degraded while the store has problems.
pub(crate) const COMPONENT: &str = "store";
/// The component for a Redis whose configuration may lose counters.
pub(crate) const CONFIG_COMPONENT: &str = "store_config";

/// The time between polls.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Shards that a message names.
const MAX_NAMED: usize = 16;

/// The state of the last report.
#[derive(Debug, Default, PartialEq, Eq)]
struct StoreReport {
    level: Level,
    /// Whether an idle store does not answer.
    unresponsive: bool,
    warning: Option<String>,
}

/// Polls until shutdown.
pub(crate) async fn watch(store: Arc<dyn SharedStore>, health: Arc<Health>, mut closing: Closing) {
    let mut last = StoreReport::default();
    loop {
        last = report(&store.refresh().guard, &last, &health);
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = closing.begun() => return,
        }
    }
}

fn report(status: &GuardStatus, before: &StoreReport, health: &Health) -> StoreReport {
    let unresponsive = status.heartbeat_error.as_ref().filter(|_| status.level == Level::Normal);
    let now = StoreReport { level: status.level, unresponsive: unresponsive.is_some(), warning: warning(status) };
    let trouble = match unresponsive {
        Some(why) => Some(format!("{}: it does not answer: {why}", Level::Degraded.name())),
        None => (status.level != Level::Normal).then(|| format!("{}: {}", status.level.name(), open_circuits(status))),
    };
    let changed = (now.level, now.unresponsive) != (before.level, before.unresponsive);
    match &trouble {
        Some(trouble) if changed => tracing::warn!("the store is {trouble}"),
        None if changed => tracing::info!("the store is healthy again"),
        _ => {}
    }
    set_condition(health, COMPONENT, trouble);
    if now.warning != before.warning
        && let Some(warning) = &now.warning
    {
        tracing::warn!("the store may lose counters: {warning}");
    }
    set_condition(health, CONFIG_COMPONENT, now.warning.clone());
    now
}

fn set_condition(health: &Health, component: &'static str, reason: Option<String>) {
    match reason {
        Some(reason) => health.degrade(component, reason),
        None => health.restore(component),
    }
}

/// The shards whose circuit is not closed, with their errors.
fn open_circuits(status: &GuardStatus) -> String {
    let open = status.shards.iter().filter(|shard| shard.circuit != Circuit::Closed);
    let why = |error: &Option<String>| error.clone().unwrap_or_else(|| "it failed".to_owned());
    let named = open.clone().take(MAX_NAMED);
    let named: Vec<_> = named.map(|shard| format!("{} ({})", shard.name, why(&shard.last_error))).collect();
    match (named.len(), open.count().saturating_sub(MAX_NAMED)) {
        (0, _) => "no node is known".to_owned(),
        (_, 0) => format!("unavailable: {}", named.join(", ")),
        (_, more) => format!("unavailable: {}, and {more} more", named.join(", ")),
    }
}

/// The warnings of shards that answer.
fn warning(status: &GuardStatus) -> Option<String> {
    let warnings =
        status.shards.iter().filter_map(|shard| Some(format!("{}: {}", shard.name, shard.warning.as_ref()?)));
    let warnings: Vec<_> = warnings.take(MAX_NAMED).collect();
    (!warnings.is_empty()).then(|| warnings.join("; "))
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
    fn problems_are_reported_with_shards_and_reasons_until_they_are_over() {
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
        let last = report(&status, &StoreReport::default(), &health);
        assert_eq!(last.level, Level::Degraded);
        let expected = "degraded: unavailable: b:1 (refused), c:1 (it failed)";
        assert_eq!(conditions(&health), [(COMPONENT, expected.to_owned())]);
        status.shards = (0..20).map(|at| shard(&at.to_string(), Circuit::Open, None)).collect();
        status.level = Level::Open;
        let last = report(&status, &last, &health);
        let (_, reason) = &conditions(&health)[0];
        assert!(
            reason.starts_with("open: unavailable: 0 (it failed), 1 ") && reason.ends_with("and 4 more"),
            "{reason}"
        );
        status = GuardStatus::default();
        assert_eq!(report(&status, &last, &health), StoreReport::default());
        assert_eq!(conditions(&health), []);
    }

    #[test]
    fn an_idle_store_that_does_not_answer_is_reported() {
        let health = Health::default();
        let status = GuardStatus { heartbeat_error: Some("nobody there".to_owned()), ..GuardStatus::default() };
        let last = report(&status, &StoreReport::default(), &health);
        assert!(last.unresponsive);
        assert_eq!(conditions(&health), [(COMPONENT, "degraded: it does not answer: nobody there".to_owned())]);
        // Open circuits are more specific.
        let status = GuardStatus { level: Level::LocalOnly, ..status };
        assert!(!report(&status, &last, &health).unresponsive);
        assert_eq!(conditions(&health), [(COMPONENT, "local-only: no node is known".to_owned())]);
    }

    #[test]
    fn a_warning_is_a_condition_of_its_own() {
        let health = Health::default();
        let mut one = shard("a:1", Circuit::Closed, None);
        one.warning = Some("it may evict".to_owned());
        let status = GuardStatus { shards: vec![one], ..GuardStatus::default() };
        report(&status, &StoreReport::default(), &health);
        assert_eq!(conditions(&health), [(CONFIG_COMPONENT, "a:1: it may evict".to_owned())]);
    }
}
