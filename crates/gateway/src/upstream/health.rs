//! Checks the health of servers in the background.

use std::sync::{Arc, Weak};

use super::{Upstream, UpstreamServer, fetch};
use crate::model::{HealthConfig, Timeouts};

/// The longest body of a check, in bytes.
const MAX_BODY_BYTES: usize = 1 << 20;

/// Checks all servers of an upstream, if it has health checks.
pub(super) async fn check_servers(upstream: Weak<Upstream>) {
    // By address: servers may come and go.
    let mut streaks: Vec<(Arc<UpstreamServer>, Streak)> = Vec::new();
    loop {
        let pause = {
            let Some(upstream) = upstream.upgrade() else { return };
            let Some(config) = upstream.config.health.clone() else { return };
            let servers = upstream.servers();
            streaks.retain(|(server, _)| servers.iter().any(|one| Arc::ptr_eq(one, server)));
            for server in servers.iter() {
                if !streaks.iter().any(|(one, _)| Arc::ptr_eq(one, server)) {
                    streaks.push((server.clone(), Streak::default()));
                }
            }
            let mut checks = tokio::task::JoinSet::new();
            for (number, (server, _)) in streaks.iter().enumerate() {
                let (upstream, server, config) = (upstream.clone(), server.clone(), config.clone());
                checks.spawn(async move { (number, is_healthy(&upstream, &server, &config).await) });
            }
            while let Some(checked) = checks.join_next().await {
                let Ok((number, result)) = checked else { continue };
                if let Some((server, streak)) = streaks.get_mut(number) {
                    streak.count(&upstream, server, &config, result);
                }
            }
            // So that gateways do not check at the same moments.
            config.every.mul_f64(fastrand::f64().mul_add(0.2, 0.9))
        };
        tokio::time::sleep(pause).await;
    }
}

/// The results of the last checks of a server.
#[derive(Debug, Default)]
struct Streak {
    /// How many in a row.
    results: u32,
    passes: bool,
}

impl Streak {
    fn count(
        &mut self,
        upstream: &Upstream,
        server: &UpstreamServer,
        config: &HealthConfig,
        result: Result<(), String>,
    ) {
        let passes = result.is_ok();
        self.results = if self.passes == passes { self.results.saturating_add(1) } else { 1 };
        self.passes = passes;
        let (name, address) = (&upstream.config.name, server.address());
        match result {
            Ok(()) if !server.is_healthy() && self.results >= config.passes => {
                tracing::info!(upstream = name, server = %address, "healthy again");
                server.set_healthy(true);
            }
            Err(reason) if server.is_healthy() && self.results >= config.fails => {
                tracing::warn!(upstream = name, server = %address, reason, "unhealthy: not used until its checks pass");
                server.set_healthy(false);
            }
            _ => {}
        }
    }
}

/// A request on a connection of its own, because the pool's may be old.
async fn is_healthy(upstream: &Upstream, server: &UpstreamServer, config: &HealthConfig) -> Result<(), String> {
    let timeouts =
        Timeouts { connect: config.timeout, tls: config.timeout, response: config.timeout, ..Timeouts::default() };
    let status = fetch::get(upstream, server.address(), &config.path, &timeouts, MAX_BODY_BYTES).await?.status;
    if status.is_success() || status.is_redirection() { Ok(()) } else { Err(format!("status {status}")) }
}
