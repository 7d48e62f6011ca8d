//! The health of the gateway: upstreams without a server that may be used, and what is protected from overload.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tollgate_gateway::{Disagreement, Gateway, GatewayStatus, UpstreamStatus, WorkerSheddingStatus};
use tollgate_net::Closing;
use tollgate_shed::{ShedMode, Shedder};
use tollgate_telemetry::Health;

/// What the last looks at a gateway have shown.
#[derive(Debug, Default)]
pub struct GatewayHealth {
    /// By the name of the upstream.
    caps: HashMap<String, CapHistory>,
    /// What the configuration and the rules did not agree on.
    disagreements: Vec<Disagreement>,
    /// Of the rules that shed.
    fleet: Option<CapHistory>,
}

/// The reason while the worker shedder refuses requests.
const OVERLOADED: &str = "this server is overloaded: a part of its requests is refused, the least important first";
/// The reason while a rule sheds.
const FLEET_FULL: &str = "the fleet is at its capacity: a rule with `shed: true` refuses requests";

/// The refusals of a cap, or of rules that shed.
#[derive(Clone, Copy, Debug)]
struct CapHistory {
    refused: u64,
    /// Looks since a request was refused; `None` if none was.
    quiet: Option<u32>,
}

/// The component that is degraded while an upstream has no usable server.
const UPSTREAMS: &str = "gateway_upstreams";
/// The component that is degraded while a shedder refuses requests.
const SHEDDING: &str = "gateway_shedding";
/// The component that is degraded while the rules do not have what the configuration names.
const RULES: &str = "gateway_rules";
/// The component that is degraded while keys of tokens can't be loaded.
const KEYS: &str = "gateway_keys";
/// How often the gateway is looked at.
const INTERVAL: Duration = Duration::from_secs(1);
/// Looks without a refusal after which a cap no longer sheds: refusals come and go in an overload.
const QUIET: u32 = 10;
/// Upstreams that a reason names.
const MAX_REASONS: usize = 5;

/// Follows the health of a gateway until shutdown.
pub async fn follow_health(gateway: Arc<Gateway>, health: Arc<Health>, mut closing: Closing) {
    let mut seen = GatewayHealth::default();
    loop {
        seen.look(&gateway.status(), &health);
        seen.compare(&gateway.disagreements(), &health);
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = closing.begun() => return,
        }
    }
}

impl GatewayHealth {
    /// Compares a status with the one of a second ago.
    pub fn look(&mut self, status: &GatewayStatus, health: &Health) {
        let unusable = status.upstreams.iter().filter(|upstream| !upstream.servers.iter().any(|one| one.is_usable()));
        let unusable = unusable.map(|upstream| {
            let servers = upstream.servers.len();
            let state = match servers {
                0 => "no server is known".to_owned(),
                1 => "its server is unhealthy or ejected".to_owned(),
                _ => format!("all {servers} servers are unhealthy or ejected"),
            };
            format!("upstream `{}`: {state}", upstream.name)
        });
        set(health, UPSTREAMS, unusable.collect());
        set(health, SHEDDING, self.shedding(status));
        let failed = status.keys.iter().filter_map(|keys| {
            let error = keys.error.as_ref()?;
            let state = if keys.keys == 0 { "no token of theirs is valid" } else { "the last ones stay in use" };
            Some(format!("keys {}: {state}: {error}", keys.source))
        });
        set(health, KEYS, failed.collect());
    }

    /// Compares the configuration with the rules. What they do not agree on is logged when that changes.
    fn compare(&mut self, disagreements: &[Disagreement], health: &Health) {
        let describe = |one: &Disagreement| format!("{one}; {}", one.remedy());
        for new in disagreements.iter().filter(|one| !self.disagreements.contains(one)) {
            tracing::warn!("the gateway and the rules do not agree: {}", describe(new));
        }
        self.disagreements = disagreements.to_vec();
        set(health, RULES, disagreements.iter().filter(|one| one.is_error()).map(describe).collect());
    }

    /// Why requests are refused to protect upstreams, one reason each.
    fn shedding(&mut self, status: &GatewayStatus) -> Vec<String> {
        let mut caps = HashMap::new();
        let mut reasons = Vec::new();
        for upstream in &status.upstreams {
            let refused = upstream.cap.refused.total();
            let before = self.caps.remove(&upstream.name);
            // In mode `shadow` nothing is refused.
            let is_enforced = upstream.cap.mode == ShedMode::Enforce.name();
            let history = CapHistory::following(before.filter(|_| is_enforced), refused);
            if history.quiet.is_some() {
                let limit = upstream.cap.limit;
                reasons.push(format!(
                    "upstream `{}` is overloaded: requests are refused beyond {limit} in flight",
                    upstream.name
                ));
            }
            reasons.extend(lowered(upstream));
            caps.insert(upstream.name.clone(), history);
        }
        self.caps = caps;
        let sheds = |worker: &WorkerSheddingStatus| worker.mode == ShedMode::Enforce.name() && worker.amount > 0.0;
        reasons.extend(status.worker.as_ref().filter(|worker| sheds(worker)).map(|_| OVERLOADED.to_owned()));
        let by_rules = status.shed.iter().filter(|shed| shed.by == Shedder::Fleet.name());
        let fleet = CapHistory::following(self.fleet, by_rules.map(|shed| shed.refused.total()).sum());
        self.fleet = Some(fleet);
        reasons.extend(fleet.quiet.map(|_| FLEET_FULL.to_owned()));
        reasons
    }
}

impl CapHistory {
    /// The refusals after another look. A changed upstream begins at zero.
    fn following(before: Option<CapHistory>, refused: u64) -> CapHistory {
        let quiet = match before {
            Some(before) if refused > before.refused => Some(0),
            Some(before) => before.quiet.map(|quiet| quiet + 1).filter(|quiet| *quiet < QUIET),
            None => None,
        };
        CapHistory { refused, quiet }
    }
}

/// That callers of an upstream are lowered, if they are.
fn lowered(upstream: &UpstreamStatus) -> Option<String> {
    let fairness = upstream.fairness.as_ref().filter(|fairness| fairness.mode == ShedMode::Enforce.name())?;
    let tiers: Vec<_> = fairness.tiers.iter().filter(|tier| tier.ceiling.is_some()).map(|tier| &*tier.tier).collect();
    let name = &upstream.name;
    (!tiers.is_empty())
        .then(|| format!("upstream `{name}` is overloaded: its busiest callers are lowered ({})", tiers.join(", ")))
}

fn set(health: &Health, part: &'static str, reasons: Vec<String>) {
    if reasons.is_empty() {
        return health.restore(part);
    }
    let more = reasons.len().saturating_sub(MAX_REASONS);
    let named = reasons[..reasons.len() - more].join("; ");
    health.degrade(part, if more > 0 { format!("{named}; and {more} more") } else { named });
}

/// A gateway that serves no clients.
#[cfg(test)]
pub(crate) fn for_tests(config: &str) -> Arc<Gateway> {
    use tollgate::{Limiter, MemoryConfig, Ruleset};
    use tollgate_gateway::model::GatewayConfig;
    use tollgate_gateway::{GatewayParts, GatewayPlan};
    use tollgate_http::request_target::PathNormalization;
    use tollgate_http::response::ResponseStyle;
    use tollgate_telemetry::metrics::Metrics;

    let read = GatewayConfig::read("gateway.yaml", config, std::path::Path::new("/")).unwrap();
    let rules = "domain: api\nrules: [{name: all, key: [], limit: 1/s}]\n";
    let (rules, _) = Ruleset::from_text(rules, 1).unwrap();
    let limiter = Arc::new(Limiter::new(rules, MemoryConfig::default().build().into()));
    let gate = tollgate_wire::Gate::new(limiter, false, 100, Metrics::new().wire("gateway"));
    let parts = GatewayParts {
        gate: Arc::new(gate),
        style: ResponseStyle::default(),
        normalization: PathNormalization::default(),
        workers: tollgate_net::workers::BusyTimes::default(),
    };
    Arc::new(Gateway::new(parts, GatewayPlan::new(read.config, None).unwrap()))
}

#[cfg(test)]
mod tests {
    use tollgate_gateway::{FairnessStatusOf, KeysStatus, TierStatusOf};

    use super::*;

    /// Two upstreams, the first with two servers.
    fn status() -> GatewayStatus {
        for_tests(
            "listen: 127.0.0.1:0\n\
             upstreams:\n  orders: {servers: [10.0.0.1:80, 10.0.0.2:80], adaptive: enforce}\n  users: {servers: [10.0.1.1:80], adaptive: enforce}\n\
             routes:\n  - {name: orders, match: \"/orders/*\", upstream: orders}\n  \
             - {name: users, match: \"/users/*\", upstream: users}\n",
        )
        .status()
    }

    fn conditions(seen: &mut GatewayHealth, status: &GatewayStatus, health: &Health) -> Vec<(&'static str, String)> {
        seen.look(status, health);
        health.conditions()
    }

    #[test]
    fn an_upstream_without_a_usable_server_is_a_condition() {
        let (mut seen, health, mut status) = (GatewayHealth::default(), Health::default(), status());
        assert_eq!(conditions(&mut seen, &status, &health), []);
        status.upstreams[0].servers[0].is_healthy = false;
        assert_eq!(conditions(&mut seen, &status, &health), [], "the other one can be used");
        status.upstreams[0].servers[1].is_ejected = true;
        let all = "upstream `orders`: all 2 servers are unhealthy or ejected";
        assert_eq!(conditions(&mut seen, &status, &health), [(UPSTREAMS, all.to_owned())]);
        status.upstreams[1].servers.clear();
        let both = format!("{all}; upstream `users`: no server is known");
        assert_eq!(conditions(&mut seen, &status, &health), [(UPSTREAMS, both)]);
        assert_eq!(conditions(&mut seen, &super::tests::status(), &health), []);
    }

    #[test]
    fn a_cap_that_refuses_is_a_condition_until_it_was_quiet_for_a_while() {
        let (mut seen, health, mut status) = (GatewayHealth::default(), Health::default(), status());
        status.upstreams[1].cap.refused.get = 40;
        status.upstreams[1].cap.limit = 24;
        assert_eq!(conditions(&mut seen, &status, &health), [], "refusals of the past");
        status.upstreams[1].cap.refused.get = 41;
        let reason = "upstream `users` is overloaded: requests are refused beyond 24 in flight";
        for _ in 0..QUIET {
            assert_eq!(conditions(&mut seen, &status, &health), [(SHEDDING, reason.to_owned())]);
        }
        assert_eq!(conditions(&mut seen, &status, &health), []);
    }

    #[test]
    fn a_server_that_sheds_for_itself_is_a_condition() {
        let (mut seen, health, mut status) = (GatewayHealth::default(), Health::default(), status());
        for (mode, amount, is_condition) in [
            (ShedMode::Enforce, 0.0, false),
            (ShedMode::Enforce, 0.1, true),
            (ShedMode::Shadow, 0.1, false),
            (ShedMode::Off, 0.1, false),
        ] {
            let worker = status.worker.as_mut().unwrap();
            (worker.mode, worker.amount) = (mode.name(), amount);
            let expected: Vec<_> = is_condition.then(|| (SHEDDING, OVERLOADED.to_owned())).into_iter().collect();
            assert_eq!(conditions(&mut seen, &status, &health), expected, "{mode} {amount}");
        }
    }

    #[test]
    fn a_rule_that_sheds_is_a_condition_until_it_was_quiet_for_a_while() {
        let (mut seen, health, mut status) = (GatewayHealth::default(), Health::default(), status());
        assert_eq!(conditions(&mut seen, &status, &health), []);
        let fleet = status.shed.iter_mut().find(|shed| shed.by == "fleet").unwrap();
        fleet.refused.post = 3;
        for _ in 0..QUIET {
            assert_eq!(conditions(&mut seen, &status, &health), [(SHEDDING, FLEET_FULL.to_owned())]);
        }
        assert_eq!(conditions(&mut seen, &status, &health), []);
    }

    #[test]
    fn callers_that_are_lowered_are_a_condition() {
        let (mut seen, health, mut status) = (GatewayHealth::default(), Health::default(), status());
        let tier = |name: &str, ceiling| TierStatusOf { tier: name.to_owned(), lowered: 1.0, ceiling, refused: 9 };
        let fairness = |mode: ShedMode| FairnessStatusOf {
            mode: mode.name(),
            pressure: 1.5,
            lowered: 1.2,
            fair_rate: Some(20.0),
            callers: 7,
            tiers: vec![tier("free", Some(20.0)), tier("pro", Some(80.0)), tier("enterprise", None)],
        };
        status.upstreams[0].fairness = Some(fairness(ShedMode::Enforce));
        let reason = "upstream `orders` is overloaded: its busiest callers are lowered (free, pro)";
        assert_eq!(conditions(&mut seen, &status, &health), [(SHEDDING, reason.to_owned())]);
        status.upstreams[0].fairness = Some(fairness(ShedMode::Shadow));
        assert_eq!(conditions(&mut seen, &status, &health), []);
    }

    #[test]
    fn keys_that_cannot_be_loaded_are_a_condition() {
        let (mut seen, health, mut status) = (GatewayHealth::default(), Health::default(), status());
        let keys = |keys, error: Option<&str>| KeysStatus {
            source: "jwks.json".to_owned(),
            keys,
            failures: 3,
            error: error.map(str::to_owned),
            refused: Default::default(),
        };
        for (keys, expected) in [
            (keys(0, Some("no such file")), Some("keys jwks.json: no token of theirs is valid: no such file")),
            (keys(2, Some("status 503")), Some("keys jwks.json: the last ones stay in use: status 503")),
            (keys(2, None), None),
        ] {
            status.keys = vec![keys];
            let expected: Vec<_> = expected.map(|reason| (KEYS, reason.to_owned())).into_iter().collect();
            assert_eq!(conditions(&mut seen, &status, &health), expected);
        }
    }

    #[test]
    fn what_the_rules_do_not_have_is_a_condition() {
        let (mut seen, health) = (GatewayHealth::default(), Health::default());
        let tier = Disagreement::UnknownTier {
            upstream: "orders".to_owned(),
            tier: "gold".to_owned(),
            known: vec!["golden".to_owned()],
        };
        let cost = Disagreement::UnusedCost { route: "orders".to_owned(), attribute: "tokens".to_owned() };
        seen.compare(&[tier, cost], &health);
        let reason =
            "upstream `orders` reserves for the tier `gold`, which the rules do not have; did you mean `golden`?";
        assert_eq!(health.conditions(), [(RULES, reason.to_owned())]);
        seen.compare(&[], &health);
        assert_eq!(health.conditions(), []);
    }

    #[test]
    fn a_cap_in_shadow_mode_sheds_nothing() {
        let (mut seen, health, mut status) = (GatewayHealth::default(), Health::default(), status());
        conditions(&mut seen, &status, &health);
        status.upstreams[0].cap.mode = ShedMode::Shadow.name();
        status.upstreams[0].cap.refused.post = 9;
        assert_eq!(conditions(&mut seen, &status, &health), []);
    }
}
