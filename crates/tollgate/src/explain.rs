//! Explaining which rules apply to a request, and why.

use tollgate_core::{Algorithm, Limit, Mode, Reading, Settlement, Value};
use tollgate_rules::{ResolvedBy, ResolvedRequest, RuleMatch};

/// The effect of every rule of a domain on a request. Explaining consumes nothing.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The domain of the request.
    pub domain: String,
    /// The rules of the domain, in order.
    pub rules: Vec<ExplainedRule>,
}

/// The effect of one rule.
#[derive(Clone, Debug)]
pub struct ExplainedRule {
    /// The rule's name.
    pub name: String,
    /// Whether the rule applies, and if not, the reason.
    pub fate: RuleMatch,
    /// The counters that the request would charge; several if several descriptors match the rule.
    pub counters: Vec<CounterStatus>,
}

/// The state of one counter.
#[derive(Clone, Debug)]
pub struct CounterStatus {
    /// The values that name the counter.
    pub key: Vec<String>,
    /// The limit that applies to the counter.
    pub limit: Limit,
    /// How the limit was resolved.
    pub by: ResolvedBy,
    /// How many units the request would take.
    pub units: u64,
    /// What would happen if there were no room.
    pub mode: Mode,
    /// The current reading.
    pub reading: Reading,
}

impl CounterStatus {
    /// Whether the counter has room for the request.
    pub fn has_room(&self) -> bool {
        self.reading.admits && self.units <= self.reading.remaining
    }
}

impl Explanation {
    pub(crate) fn new(resolved: &ResolvedRequest<'_>, settlement: &Settlement, fates: Vec<RuleMatch>) -> Explanation {
        let counters = |number: usize| {
            let charges = resolved.claim.charges.iter().zip(&resolved.applied).zip(&settlement.readings);
            let own = charges.filter(|((_, applied), _)| applied.rule == Some(number as u32));
            own.map(|((charge, applied), reading)| CounterStatus {
                key: charge.key.values().iter().map(display_value).collect(),
                limit: charge.limit.clone(),
                by: applied.by,
                units: match charge.limit.algorithm() {
                    // A request takes one slot, whatever it costs.
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

/// A value for display: absent values differ from empty ones, and control characters are escaped.
pub(crate) fn display_value(value: &Value<'_>) -> String {
    match value {
        Value::Absent => "(absent)".to_owned(),
        value => {
            let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
            value.to_string().chars().map(escaped).collect()
        }
    }
}
