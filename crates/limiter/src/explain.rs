//! What a request would meet, and why.

use tollgate_core::{Algorithm, Limit, Mode, Reading, Settlement, Value};
use tollgate_rules::{Fate, Resolved, ResolvedBy};

/// What every rule of a domain makes of a request. Nothing was consumed.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The domain.
    pub domain: String,
    /// Its rules, in their order.
    pub rules: Vec<ExplainedRule>,
}

/// What one rule makes of it.
#[derive(Clone, Debug)]
pub struct ExplainedRule {
    /// Its name.
    pub name: String,
    /// Whether it applies, and if not, why.
    pub fate: Fate,
    /// The counters that the request would be charged on; several where several descriptors lead to the rule.
    pub counters: Vec<Counter>,
}

/// One counter as it stands.
#[derive(Clone, Debug)]
pub struct Counter {
    /// The values that name it.
    pub key: Vec<String>,
    /// What it is held to.
    pub limit: Limit,
    /// How that came to be.
    pub by: ResolvedBy,
    /// How many units the request would ask for.
    pub units: u64,
    /// What would follow if there were no room.
    pub mode: Mode,
    /// What it says to a look.
    pub reading: Reading,
}

impl Counter {
    /// Whether there is room for the request now.
    pub fn has_room(&self) -> bool {
        self.reading.admits && self.units <= self.reading.remaining
    }
}

impl Explanation {
    pub(crate) fn new(resolved: &Resolved<'_>, settlement: &Settlement, fates: Vec<Fate>) -> Explanation {
        let counters = |number: usize| {
            let charges = resolved.claim.charges.iter().zip(&resolved.applied).zip(&settlement.readings);
            let own = charges.filter(|((_, applied), _)| applied.rule as usize == number);
            own.map(|((charge, applied), reading)| Counter {
                key: charge.key.values().iter().map(shown).collect(),
                limit: charge.limit.clone(),
                by: applied.by,
                units: match charge.limit.algorithm() {
                    // Whatever a request costs, it is one request in flight.
                    Algorithm::Concurrency => charge.units.min(1),
                    _ => charge.units,
                },
                mode: applied.mode,
                reading: *reading,
            })
            .collect()
        };
        let rules = resolved.domain.rules().iter().zip(fates).enumerate();
        Explanation {
            domain: resolved.domain.name().to_owned(),
            rules: rules
                .map(|(number, (rule, fate))| ExplainedRule {
                    name: rule.name().to_owned(),
                    fate,
                    counters: counters(number),
                })
                .collect(),
        }
    }
}

/// A value for people: one that is absent is told from an empty one, and none can steer a terminal.
pub(crate) fn shown(value: &Value<'_>) -> String {
    match value {
        Value::Absent => "(absent)".to_owned(),
        value => {
            let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
            value.to_string().chars().map(escaped).collect()
        }
    }
}
