//! Explaining which rules apply to a request, and why.

use tollgate_core::{Algorithm, Charge, Limit, Mode, Reading, Settlement, Value};
use tollgate_rules::{RegionMode, ResolvedBy, ResolvedRequest, Rule, RuleMatch};

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
    /// What its limits mean in several regions, as the rule file has it. `None` if each region counts by itself.
    pub region: Option<String>,
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
    /// How many units are used. While limits of `region: global` are lowered, the reading says what remains of the lowered
    /// one.
    pub used: u64,
    /// The region that owns the counter, if one of them does.
    pub region: Option<String>,
    /// With `region: global`, and if the counters of all regions were read: them, this region's first. Otherwise none.
    pub regions: Vec<RegionCounter>,
}

/// A counter in one region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionCounter {
    /// The region's name.
    pub region: String,
    /// How many units an adjustment cleared, gave back or took there.
    pub units: u64,
    /// The reading. If the region did not answer, its source is not the store.
    pub reading: Reading,
}

impl CounterStatus {
    /// Whether the counter has room for the request.
    pub fn has_room(&self) -> bool {
        self.reading.admits && self.units <= self.reading.remaining
    }
}

impl RegionCounter {
    pub(crate) fn new(region: &str, reading: Reading) -> RegionCounter {
        let units = if reading.source.is_recorded() { reading.taken } else { 0 };
        RegionCounter { region: region.to_owned(), units, reading }
    }

    /// Whether the region answered.
    pub fn is_stored(&self) -> bool {
        self.reading.source.is_recorded()
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
                used: settlement.used(charge, reading),
                region: owner(resolved.domain.rule(applied), charge),
                regions: Vec::new(),
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
                    region: (*rule.region() != RegionMode::Each).then(|| rule.region().text().into_owned()),
                    counters: counters(number),
                })
                .collect(),
        }
    }
}

/// The region that owns the counter of a charge, if one of them does.
pub(crate) fn owner(rule: Option<&Rule>, charge: &Charge<'_>) -> Option<String> {
    rule?.owner(charge.key.region()).map(str::to_owned)
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
