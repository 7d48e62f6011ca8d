//! From records to what a limiter decides by.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use tollgate_core::Timestamp;
use tollgate_rules::model::Network;
use tollgate_rules::tenants::Blocked;
use tollgate_rules::{Layer, LayerMode, LayerRule, Switch, Tenants};

use super::documents::{
    self, BlockDocument, EmergencyDocument, Faults, QuotaDocument, RuleDocument, RuleState, SwitchDocument,
};
use super::{Kind, Record};

/// All records that are in force, as far as they must be kept.
#[derive(Debug, Default)]
pub struct Controls {
    tenants: Arc<Tenants>,
    rules: BTreeMap<(String, String), LayerRule>,
    switches: BTreeMap<(String, String), SwitchDocument>,
    generation: u64,
}

/// What a record changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// What is known of callers: it is in force.
    Tenants,
    /// Rules or switches: the layer above the files is another one.
    Layer,
    /// Nothing: it is of a kind that only a newer Tollgate knows.
    Nothing,
}

impl Controls {
    /// What is known of callers. It changes as records are applied.
    pub fn tenants(&self) -> &Arc<Tenants> {
        &self.tenants
    }

    /// The generation of the latest record.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Says that everything up to a generation has been applied.
    pub fn reached(&mut self, generation: u64) {
        self.generation = self.generation.max(generation);
    }

    /// Applies a record.
    ///
    /// # Errors
    /// If its document makes no sense: a newer program may have written it. Nothing is changed then.
    pub fn apply(&mut self, record: &Record) -> Result<Applied, String> {
        let Record { kind, domain, name, document, generation } = record;
        let document = document.as_deref().map(|document| document.get());
        self.reached(*generation);
        let applied = match kind {
            Kind::Quota => self.quota(domain, name, document),
            Kind::Emergency => self.emergency(domain, name, document),
            Kind::Block => self.block(domain, name, document),
            Kind::Rule => self.rule(domain, name, document),
            Kind::Switch => self.switch(domain, name, document),
            Kind::Unknown => Ok(Applied::Nothing),
        };
        applied.map_err(|why| format!("the {kind} {name:?} of domain {domain:?} can't be read: {why}"))
    }

    /// Rules and switches as of a moment.
    pub fn layer(&self, now: Timestamp) -> Layer {
        let in_force = self.switches.iter().filter(|(_, switch)| documents::during(None, switch.expires_at).holds(now));
        let some = |text: &String| (!text.is_empty()).then(|| text.clone());
        let switch = |((domain, rule), switch): (&(String, String), &SwitchDocument)| Switch {
            domain: some(domain),
            rule: some(rule),
            mode: switch.mode.mode(),
        };
        Layer { rules: self.rules.values().cloned().collect(), switches: in_force.map(switch).collect() }
    }

    /// When the layer changes by itself, if it does: a switch ends.
    pub fn layer_changes_at(&self, now: Timestamp) -> Option<Timestamp> {
        let ends = self.switches.values().filter_map(|switch| switch.expires_at);
        ends.map(|end| end.0).filter(|end| *end > now).min()
    }

    fn quota(&self, domain: &str, caller: &str, document: Option<&str>) -> Result<Applied, String> {
        let quota = document.map(|document| {
            let document: QuotaDocument = parse(document)?;
            let mut faults = Faults::default();
            let quota = document.meaning(&mut faults);
            understood(faults, quota)
        });
        self.tenants.set_quota(domain, caller, quota.transpose()?.as_ref());
        Ok(Applied::Tenants)
    }

    fn emergency(&self, domain: &str, name: &str, document: Option<&str>) -> Result<Applied, String> {
        let emergency = document.map(|document| {
            let document: EmergencyDocument = parse(document)?;
            let mut faults = Faults::default();
            let emergency = document.meaning(domain, &mut faults);
            understood(faults, emergency)
        });
        // Two domains may have emergencies of the same name.
        let name = format!("{domain}/{name}");
        self.tenants.set_emergency(&name, emergency.transpose()?.flatten().as_ref());
        Ok(Applied::Tenants)
    }

    fn block(&self, domain: &str, name: &str, document: Option<&str>) -> Result<Applied, String> {
        let Some(document) = document else {
            // Which of the two it was is not known any more.
            let caller = Blocked::Caller { domain: domain.to_owned(), caller: name.to_owned() };
            self.tenants.set_block(&caller, None);
            if let Ok(network) = name.parse::<Network>() {
                let domain = (!domain.is_empty()).then(|| domain.to_owned());
                self.tenants.set_block(&Blocked::Range { domain, network }, None);
            }
            return Ok(Applied::Tenants);
        };
        let document: BlockDocument = parse(document)?;
        let mut faults = Faults::default();
        let meant = document.meaning(domain, name, &mut faults);
        if let Some((who, block)) = understood(faults, meant)? {
            // One that was the other of the two before is so no more.
            let other = BlockDocument { range: !document.range, ..document };
            if let Some(other) = other.who(domain, name, &mut Faults::default()) {
                self.tenants.set_block(&other, None);
            }
            self.tenants.set_block(&who, Some(block));
        }
        Ok(Applied::Tenants)
    }

    fn rule(&mut self, domain: &str, name: &str, document: Option<&str>) -> Result<Applied, String> {
        let key = (domain.to_owned(), name.to_owned());
        let document: Option<RuleDocument> = document.map(parse).transpose()?;
        let mode = match document.as_ref().map(|document| document.state) {
            None | Some(RuleState::Draft | RuleState::Pending) => {
                self.rules.remove(&key);
                return Ok(Applied::Layer);
            }
            Some(RuleState::Active) => None,
            Some(RuleState::Shadow) => Some(LayerMode::Shadow),
            Some(RuleState::Off) => Some(LayerMode::Off),
        };
        let version = document.as_ref().map(|document| document.version);
        let rule = document.map(|document| document.rule.get().to_owned()).unwrap_or_default();
        let rule = LayerRule { domain: domain.to_owned(), name: name.to_owned(), rule, mode, version };
        self.rules.insert(key, rule);
        Ok(Applied::Layer)
    }

    fn switch(&mut self, domain: &str, name: &str, document: Option<&str>) -> Result<Applied, String> {
        let key = (domain.to_owned(), name.to_owned());
        match document {
            Some(document) => self.switches.insert(key, parse(document)?),
            None => self.switches.remove(&key),
        };
        Ok(Applied::Layer)
    }
}

fn parse<T: DeserializeOwned>(document: &str) -> Result<T, String> {
    serde_json::from_str(document).map_err(|error| error.to_string())
}

fn understood<T>(faults: Faults, meant: T) -> Result<T, String> {
    faults.unless(meant).map_err(|faults| faults.first().map(ToString::to_string).unwrap_or_default())
}
