//! What the configuration of a gateway and the rules do not agree on.

use std::fmt;

use tollgate::Ruleset;
use tollgate_rules::Domain;
use tollgate_rules::problem::choose;

use crate::model::GatewayConfig;

/// Something that the configuration names, and the rules do not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disagreement {
    /// Nothing is limited.
    UnknownDomain { domain: String, known: Vec<String> },
    /// The configuration names no domain, and the rules have none or several: nothing is limited.
    NoDomain { known: Vec<String> },
    /// Nobody has the reserve.
    UnknownTier { upstream: String, tier: String, known: Vec<String> },
    /// No rule has the cost.
    UnusedCost { route: String, attribute: String },
    /// No rule with the cost settles it.
    UnsettledCost { route: String, attribute: String },
}

/// The most names that a remedy lists.
const MAX_NAMES: usize = 10;

impl Disagreement {
    /// Compares a configuration with rules.
    pub fn find(config: &GatewayConfig, rules: &Ruleset) -> Vec<Disagreement> {
        match rules.domain(config.domain.as_deref()) {
            Ok(domain) => {
                let mut found = unknown_tiers(config, domain);
                found.extend(costs(config, domain));
                found
            }
            Err(_) => {
                let known = rules.domains().iter().take(MAX_NAMES).map(|domain| domain.name().to_owned()).collect();
                vec![match &config.domain {
                    Some(domain) => Disagreement::UnknownDomain { domain: domain.clone(), known },
                    None => Disagreement::NoDomain { known },
                }]
            }
        }
    }

    /// Whether limits or shedders do not do what the configuration says. The others are probable mistakes.
    pub fn is_error(&self) -> bool {
        match self {
            // A proxy without limits may be what is meant.
            Disagreement::NoDomain { known } => !known.is_empty(),
            Disagreement::UnknownDomain { .. } | Disagreement::UnknownTier { .. } => true,
            Disagreement::UnusedCost { .. } | Disagreement::UnsettledCost { .. } => false,
        }
    }

    /// What to write instead.
    pub fn remedy(&self) -> String {
        let choice =
            |given: &str, known: &[String]| choose(given, known.iter().map(String::as_str).collect::<Vec<_>>());
        match self {
            Disagreement::UnknownDomain { domain, known } if !known.is_empty() => choice(domain, known),
            Disagreement::NoDomain { known } if !known.is_empty() => {
                format!("write `domain` with one of {}", known.join(", "))
            }
            Disagreement::UnknownDomain { .. } | Disagreement::NoDomain { .. } => "write rules".to_owned(),
            Disagreement::UnknownTier { tier, known, .. } => choice(tier, known),
            Disagreement::UnusedCost { attribute, .. } => {
                format!("write `cost: {attribute}` to a rule, or remove it from the route")
            }
            Disagreement::UnsettledCost { attribute, .. } => {
                format!("write `settle: true` to the rule with `cost: {attribute}`")
            }
        }
    }
}

fn unknown_tiers(config: &GatewayConfig, domain: &Domain) -> Vec<Disagreement> {
    let known: Vec<String> = domain.tiers().iter().map(|tier| tier.name.clone()).collect();
    let reserved = config
        .upstreams
        .iter()
        .flat_map(|upstream| upstream.adaptive.reserve.iter().map(|(tier, _)| (upstream.name.clone(), tier.clone())));
    let unknown = reserved.filter(|(_, tier)| !known.contains(tier));
    unknown.map(|(upstream, tier)| Disagreement::UnknownTier { upstream, tier, known: known.clone() }).collect()
}

/// The costs that no rule of the domain uses, or settles.
fn costs(config: &GatewayConfig, domain: &Domain) -> Vec<Disagreement> {
    let mut found = Vec::new();
    for (route, cost) in config.routes.iter().flat_map(|route| route.costs.iter().map(move |cost| (route, cost))) {
        let (route, attribute) = (route.name.clone(), cost.attribute.clone());
        if !domain.used_attributes().any(|used| used == attribute) {
            found.push(Disagreement::UnusedCost { route, attribute });
        } else if cost.settle.is_some() && !domain.rules_of_cost(&attribute).any(|rule| rule.ending().settle) {
            found.push(Disagreement::UnsettledCost { route, attribute });
        }
    }
    found
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Disagreement::UnknownDomain { domain, .. } => {
                write!(f, "the rules have no domain `{domain}`, so nothing is limited")
            }
            Disagreement::NoDomain { known } if known.is_empty() => {
                f.write_str("there are no rules, so nothing is limited")
            }
            Disagreement::NoDomain { .. } => {
                f.write_str("the rules have several domains, and the gateway names none, so nothing is limited")
            }
            Disagreement::UnknownTier { upstream, tier, .. } => {
                write!(f, "upstream `{upstream}` reserves for the tier `{tier}`, which the rules do not have")
            }
            Disagreement::UnusedCost { route, attribute } => {
                write!(f, "no rule uses the cost `{attribute}` of the route `{route}`")
            }
            Disagreement::UnsettledCost { route, attribute } => {
                write!(f, "no rule settles the cost `{attribute}` of the route `{route}`")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const CONFIG: &str = "
listen: 127.0.0.1:8000
domain: api
upstreams:
  app: {servers: [10.0.0.1:80], adaptive: {reserve: {pro: 20%}}}
routes:
  - {name: all, match: \"/*\", upstream: app, cost: {tokens: {reserve: 7, settle: llm}, points: {reserve: 1}}}
";
    const RULES: &str = "
domain: api
rules:
  - {name: tokens, key: [], cost: tokens, settle: true, limit: 9/hour}
  - {name: points, key: [], cost: points, limit: 9/hour}
";

    fn found(config: &str, rules: &str) -> Vec<String> {
        let config = GatewayConfig::read("gateway.yaml", config, Path::new("")).unwrap().config;
        let (rules, _) = Ruleset::from_text(rules, 1).unwrap();
        let found = Disagreement::find(&config, &rules);
        found.iter().map(|one| format!("{}: {one}; {}", one.is_error(), one.remedy())).collect()
    }

    #[test]
    fn what_the_rules_do_not_have_is_found() {
        assert_eq!(found(CONFIG, RULES), [""; 0]);
        let rows = [
            (
                CONFIG.replace("domain: api", "domain: apis"),
                RULES.to_owned(),
                "true: the rules have no domain `apis`, so nothing is limited; did you mean `api`?",
            ),
            (
                CONFIG.replace("domain: api\n", ""),
                format!("{RULES}---\n{}", RULES.replace("domain: api", "domain: other")),
                "true: the rules have several domains, and the gateway names none, so nothing is limited; write `domain` with one of api, other",
            ),
            (
                CONFIG.replace("pro:", "pr:"),
                RULES.to_owned(),
                "true: upstream `app` reserves for the tier `pr`, which the rules do not have; did you mean `pro`?",
            ),
            (
                CONFIG.replace("points:", "pionts:"),
                RULES.to_owned(),
                "false: no rule uses the cost `pionts` of the route `all`; write `cost: pionts` to a rule, or remove it from the route",
            ),
            (
                CONFIG.to_owned(),
                RULES.replace("settle: true, ", ""),
                "false: no rule settles the cost `tokens` of the route `all`; write `settle: true` to the rule with `cost: tokens`",
            ),
        ];
        for (config, rules, expected) in rows {
            assert_eq!(found(&config, &rules), [expected]);
        }
    }
}
