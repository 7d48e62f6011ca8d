//! Checks of domains that have no rules.
//!
//! A typing error in a gateway, or a rule file that is gone, would go unnoticed: nothing is limited there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tollgate_rules::quoted;
use tollgate_telemetry::{Health, LogThrottle};

/// What all wires know of such checks.
#[derive(Debug, Default)]
pub struct UnknownDomains {
    checks: AtomicU64,
    /// The domain that was logged last.
    last: Mutex<String>,
    log: LogThrottle,
}

/// How often their number is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long the server is degraded after the last one.
const MEMORY: Duration = Duration::from_secs(60);

impl UnknownDomains {
    /// Records a check of this domain, on this wire.
    #[cold]
    pub(crate) fn report(&self, wire: &'static str, domain: &str) {
        self.log.log(|suppressed| {
            let domain = quoted(domain);
            tracing::warn!(
                wire,
                domain,
                suppressed,
                "checks name a domain that has no rules, so nothing is limited; compare the gateway's domain with the rules"
            );
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = domain;
        });
        self.checks.fetch_add(1, Ordering::Release);
    }

    /// Reports them to the health of the server, until it ends.
    pub async fn follow(self: Arc<UnknownDomains>, health: Arc<Health>) {
        let (mut seen, mut quiet_for) = (0, MEMORY);
        loop {
            let checks = self.checks.load(Ordering::Acquire);
            if checks != seen {
                let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let reason = format!("checks name domain {last}, which has no rules: nothing is limited there");
                health.degrade("domains", reason);
                (seen, quiet_for) = (checks, Duration::ZERO);
            } else if quiet_for < MEMORY {
                quiet_for += LOOK_INTERVAL;
                if quiet_for >= MEMORY {
                    health.restore("domains");
                }
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_server_is_degraded_until_a_minute_after_the_last_one() {
        let (unknown, health) = (Arc::new(UnknownDomains::default()), Arc::new(Health::default()));
        tokio::spawn(unknown.clone().follow(health.clone()));
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(health.conditions(), []);
        unknown.report("grpc", "egde");
        tokio::time::sleep(Duration::from_secs(2)).await;
        let reason = "checks name domain `egde`, which has no rules: nothing is limited there".to_owned();
        assert_eq!(health.conditions(), [("domains", reason.clone())]);
        tokio::time::sleep(Duration::from_secs(50)).await;
        unknown.report("grpc", "egde");
        tokio::time::sleep(Duration::from_secs(50)).await;
        assert_eq!(health.conditions(), [("domains", reason)]);
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert_eq!(health.conditions(), []);
    }
}
