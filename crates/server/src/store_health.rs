//! Reports the health of a shared store: on the health page, and in the log when it changes.

use std::sync::Arc;
use std::time::Duration;

use tollgate::RegionLink;
use tollgate_net::Closing;
use tollgate_store::guarded::{Circuit, GuardStatus, Level, ShardStatus};
use tollgate_store::{DebitStatus, SharedStatus, SharedStore, SummedStatus};
use tollgate_telemetry::Health;

/// The component whose health is degraded while the store has problems.
pub(crate) const COMPONENT: &str = "store";
/// The component for other regions that can't be reached.
pub(crate) const REGIONS_COMPONENT: &str = "regions";
/// The component for a Redis whose configuration may lose counters.
pub(crate) const CONFIG_COMPONENT: &str = "store_config";

/// The component for limits whose requests in flight each server counts by itself.
pub(crate) const SUMS_COMPONENT: &str = "sums";

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
    /// The number of unavailable nodes of other regions.
    elsewhere: usize,
    /// How the debits of each other region are doing.
    links: Vec<RegionLink>,
    warning: Option<String>,
}

/// Polls until shutdown.
pub(crate) async fn watch(store: Arc<dyn SharedStore>, health: Arc<Health>, mut closing: Closing) {
    let mut last = StoreReport::default();
    loop {
        let SharedStatus { guard, debits, sums, .. } = store.refresh();
        last = report(&guard, &debits, &last, &health);
        set_condition(&health, SUMS_COMPONENT, stale_sums(&sums));
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = closing.begun() => return,
        }
    }
}

fn report(status: &GuardStatus, debits: &[DebitStatus], before: &StoreReport, health: &Health) -> StoreReport {
    let unresponsive = status.heartbeat_error.as_ref().filter(|_| status.level == Level::Normal);
    let elsewhere = open(status, false).count();
    let unresponsive_here = unresponsive.is_some();
    let links: Vec<_> = debits.iter().map(|debit| debit.link).collect();
    let now = StoreReport {
        level: status.level,
        unresponsive: unresponsive_here,
        elsewhere,
        links,
        warning: warning(status),
    };
    let trouble = match unresponsive {
        Some(why) => Some(format!("{}: it does not answer: {why}", Level::Degraded.name())),
        None => {
            (status.level != Level::Normal).then(|| format!("{}: {}", status.level.name(), open_circuits(status, true)))
        }
    };
    let changed = (now.level, now.unresponsive) != (before.level, before.unresponsive);
    match &trouble {
        Some(trouble) if changed => tracing::warn!("the store is {trouble}"),
        None if changed => tracing::info!("the store is healthy again"),
        _ => {}
    }
    set_condition(health, COMPONENT, trouble);
    let unavailable = (elsewhere > 0).then(|| open_circuits(status, false));
    let late = late_debits(debits);
    match &unavailable {
        Some(regions) if elsewhere != before.elsewhere => tracing::warn!("other regions are {regions}"),
        None if before.elsewhere > 0 => tracing::info!("all other regions are available again"),
        _ => {}
    }
    match &late {
        Some(late) if now.links != before.links => tracing::warn!("limits of all regions are not together: {late}"),
        None if before.links.iter().any(|link| *link != RegionLink::Together) => {
            tracing::info!("limits of all regions are together again");
        }
        _ => {}
    }
    let regions: Vec<String> = unavailable.into_iter().chain(late).collect();
    set_condition(health, REGIONS_COMPONENT, (!regions.is_empty()).then(|| regions.join("; ")));
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

/// Why the requests in flight of other servers are not known, where a rule needs them.
fn stale_sums(sums: &SummedStatus) -> Option<String> {
    // A server that has just started knows nothing yet.
    let age = sums.age.filter(|_| sums.is_stale)?;
    let (seconds, tenths) = (age.as_micros() / 1_000_000, age.as_micros() / 100_000 % 10);
    Some(format!(
        "the requests in flight of other servers are unknown since {seconds}.{tenths} s: this server enforces its share of \
         {} limits with `count: summed`",
        sums.counters.len()
    ))
}

/// The shards of this region, or of others, whose circuit is not closed.
fn open(status: &GuardStatus, is_here: bool) -> impl Iterator<Item = &ShardStatus> + Clone {
    let open = status.shards.iter().filter(|shard| shard.circuit != Circuit::Closed);
    open.filter(move |shard| shard.region.is_here() == is_here)
}

/// The same with their errors.
fn open_circuits(status: &GuardStatus, is_here: bool) -> String {
    let open = open(status, is_here);
    let why = |error: &Option<String>| error.clone().unwrap_or_else(|| "it failed".to_owned());
    let named = open.clone().take(MAX_NAMED);
    let named: Vec<_> = named.map(|shard| format!("{} ({})", shard.name, why(&shard.last_error))).collect();
    match (named.len(), open.count().saturating_sub(MAX_NAMED)) {
        (0, _) => "no node is known".to_owned(),
        (_, 0) => format!("unavailable: {}", named.join(", ")),
        (_, more) => format!("unavailable: {}, and {more} more", named.join(", ")),
    }
}

/// The regions that do not get debits in time.
fn late_debits(debits: &[DebitStatus]) -> Option<String> {
    let late = debits.iter().filter(|debit| debit.link != RegionLink::Together);
    let late = late.map(|DebitStatus { region, link, oldest, .. }| {
        format!("{region} is {} (debits of {:.1} s)", link.name(), oldest.as_micros() as f64 / 1e6)
    });
    let late: Vec<_> = late.collect();
    (!late.is_empty()).then(|| late.join(", "))
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
    use tollgate::{RegionId, Span};

    use super::*;

    fn shard(name: &str, circuit: Circuit, error: Option<&str>) -> ShardStatus {
        let last_error = error.map(str::to_owned);
        let region = RegionId::HERE;
        ShardStatus { name: name.to_owned(), region, circuit, errors: Vec::new(), last_error, warning: None }
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
        let last = report(&status, &[], &StoreReport::default(), &health);
        assert_eq!(last.level, Level::Degraded);
        let expected = "degraded: unavailable: b:1 (refused), c:1 (it failed)";
        assert_eq!(conditions(&health), [(COMPONENT, expected.to_owned())]);
        status.shards = (0..20).map(|at| shard(&at.to_string(), Circuit::Open, None)).collect();
        status.level = Level::Open;
        let last = report(&status, &[], &last, &health);
        let (_, reason) = &conditions(&health)[0];
        assert!(
            reason.starts_with("open: unavailable: 0 (it failed), 1 ") && reason.ends_with("and 4 more"),
            "{reason}"
        );
        status = GuardStatus::default();
        assert_eq!(report(&status, &[], &last, &health), StoreReport::default());
        assert_eq!(conditions(&health), []);
    }

    #[test]
    fn an_idle_store_that_does_not_answer_is_reported() {
        let health = Health::default();
        let status = GuardStatus { heartbeat_error: Some("nobody there".to_owned()), ..GuardStatus::default() };
        let last = report(&status, &[], &StoreReport::default(), &health);
        assert!(last.unresponsive);
        assert_eq!(conditions(&health), [(COMPONENT, "degraded: it does not answer: nobody there".to_owned())]);
        // Open circuits are more specific.
        let status = GuardStatus { level: Level::LocalOnly, ..status };
        assert!(!report(&status, &[], &last, &health).unresponsive);
        assert_eq!(conditions(&health), [(COMPONENT, "local-only: no node is known".to_owned())]);
    }

    #[test]
    fn late_debits_are_a_condition_of_the_regions() {
        let (health, status) = (Health::default(), GuardStatus::default());
        let debit = |region: &str, link, millis: u64| DebitStatus {
            region: region.to_owned(),
            link,
            oldest: Span::from_micros(millis * 1_000),
            ..DebitStatus::default()
        };
        let debits = [
            debit("eu", RegionLink::Lagging, 740),
            debit("us", RegionLink::Apart, 12_345),
            debit("ap", RegionLink::Together, 99),
        ];
        let last = report(&status, &debits, &StoreReport::default(), &health);
        let expected = "eu is lagging (debits of 0.7 s), us is apart (debits of 12.3 s)";
        assert_eq!(conditions(&health), [(REGIONS_COMPONENT, expected.to_owned())]);
        let down = ShardStatus { region: RegionId::new(2), ..shard("us/b:1", Circuit::Open, Some("refused")) };
        let status = GuardStatus { shards: vec![down], ..status };
        report(&status, &debits, &last, &health);
        let expected = format!("unavailable: us/b:1 (refused); {expected}");
        assert_eq!(conditions(&health), [(REGIONS_COMPONENT, expected)]);
        report(&GuardStatus::default(), &debits[2..], &last, &health);
        assert_eq!(conditions(&health), []);
    }

    #[test]
    fn a_warning_is_a_condition_of_its_own() {
        let health = Health::default();
        let mut one = shard("a:1", Circuit::Closed, None);
        one.warning = Some("it may evict".to_owned());
        let status = GuardStatus { shards: vec![one], ..GuardStatus::default() };
        report(&status, &[], &StoreReport::default(), &health);
        assert_eq!(conditions(&health), [(CONFIG_COMPONENT, "a:1: it may evict".to_owned())]);
    }
}
