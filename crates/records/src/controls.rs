//! From records to the state that a limiter decides by.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use tollgate_core::Timestamp;
use tollgate_rules::model::Network;
use tollgate_rules::tenants::{BlockSubject, DifferenceCount, TenantsDifference};
use tollgate_rules::{Layer, LayerMode, LayerRule, LayerShares, MovingShares, Switch, Tenants};

use crate::documents::{
    self, BlockDocument, EmergencyDocument, FieldFaults, FilesDocument, FilesState, QuotaDocument, RuleDocument,
    RuleState, SharesDocument, SwitchDocument, masked_name,
};
use crate::{Record, RecordKind};

/// The control plane's state: what all records applied so far mean to a limiter.
#[derive(Debug, Default)]
pub struct Controls {
    tenants: Arc<Tenants>,
    /// By domain and name.
    rules: BTreeMap<(String, String), LayerRule>,
    /// By domain and rule, each of them empty for all.
    switches: BTreeMap<(String, String), SwitchDocument>,
    /// By domain and rule, with the generation of the write.
    shares: BTreeMap<(String, String), (u64, MovingShares)>,
    /// Whether other shares may be in force by now.
    are_shares_unknown: bool,
    /// The versions of rule files that were held and released.
    released_files: BTreeSet<String>,
    generation: u64,
}

/// What a record changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The [tenants](Controls::tenants). The change is in force already.
    Tenants {
        /// Whether the write asks for the caller's counters to start afresh. Only a quota can.
        reset: bool,
    },
    /// The [layer](Controls::layer) of rules and switches above the files. It has to be compiled.
    Layer,
    /// No decision: limiters do not decide by records of this kind.
    Nothing,
}

/// How many records of each kind differ between two states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlsDifference {
    /// Quotas, emergencies and blocks.
    pub tenants: TenantsDifference,
    /// Rules that are in force.
    pub rules: DifferenceCount,
    /// Switches.
    pub switches: DifferenceCount,
}

impl Effect {
    const TENANTS: Effect = Effect::Tenants { reset: false };
}

impl Controls {
    /// What is known of callers. It changes as records are applied.
    pub fn tenants(&self) -> &Arc<Tenants> {
        &self.tenants
    }

    /// Without records, for a state that will be [compared](Controls::difference) with this one.
    pub fn empty_like(&self) -> Controls {
        Controls { tenants: Arc::new(self.tenants.empty_like()), ..Controls::default() }
    }

    /// How another state, which began as [`Controls::empty_like`] of this one, differs from it.
    pub fn difference(&self, found: &Controls) -> ControlsDifference {
        ControlsDifference {
            tenants: self.tenants.difference(&found.tenants),
            rules: DifferenceCount::between(&self.rules, &found.rules),
            switches: DifferenceCount::between(&self.switches, &found.switches),
        }
    }

    /// The highest generation that was applied.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Notes that everything up to a generation has been applied.
    pub fn advance_to(&mut self, generation: u64) {
        self.generation = self.generation.max(generation);
    }

    /// Applies a record.
    ///
    /// # Errors
    /// If its document is invalid; a newer version may have written it. The record changes nothing then.
    pub fn apply(&mut self, record: &Record<'_>) -> Result<Effect, String> {
        let Record { kind, domain, name, generation, .. } = record;
        let document = record.document.as_deref();
        self.advance_to(*generation);
        let applied = match kind {
            RecordKind::Quota => self.apply_quota(domain, name, document),
            RecordKind::Emergency => self.apply_emergency(domain, name, document),
            RecordKind::Block => self.apply_block(domain, name, document),
            RecordKind::Rule => self.apply_rule(domain, name, document),
            RecordKind::Switch => self.apply_switch(domain, name, document),
            RecordKind::Files => self.apply_files(name, document),
            RecordKind::Shares => self.apply_shares(domain, name, document, *generation),
            RecordKind::RuleVersion
            | RecordKind::Plan
            | RecordKind::Token
            | RecordKind::Counter
            | RecordKind::Lease
            | RecordKind::Gateway
            | RecordKind::Access
            | RecordKind::Control
            | RecordKind::Unknown => Ok(Effect::Nothing),
        };
        applied.map_err(|error| format!("the {kind} {name:?} of domain {domain:?} can't be read: {error}"))
    }

    /// The rules and the switches in force at a time.
    pub fn layer(&self, now: Timestamp) -> Layer {
        let in_force = self.switches.iter().filter(|(_, switch)| documents::during(None, switch.expires_at).holds(now));
        let some = |text: &String| (!text.is_empty()).then(|| text.clone());
        let switch = |((domain, rule), switch): (&(String, String), &SwitchDocument)| Switch {
            domain: some(domain),
            rule: some(rule),
            mode: switch.mode.mode(),
        };
        let shares = self.shares.iter().map(|((domain, rule), (generation, shares))| LayerShares {
            domain: domain.clone(),
            rule: rule.clone(),
            generation: *generation,
            shares: shares.clone(),
        });
        Layer {
            rules: self.rules.values().cloned().collect(),
            switches: in_force.map(switch).collect(),
            shares: shares.collect(),
            are_shares_unknown: self.are_shares_unknown,
            released_files: self.released_files.iter().cloned().collect(),
        }
    }

    /// The shares of a rule, with the generation of their write.
    pub fn shares(&self, domain: &str, rule: &str) -> Option<&(u64, MovingShares)> {
        self.shares.get(&(domain.to_owned(), rule.to_owned()))
    }

    /// Whether other shares than these may be in force by now.
    pub fn are_shares_unknown(&self) -> bool {
        self.are_shares_unknown
    }

    /// Says whether other shares than these may be in force by now: they come from a copy, or other servers do not know of
    /// this one. Returns whether that changes the layer.
    pub fn set_shares_unknown(&mut self, are_unknown: bool) -> bool {
        std::mem::replace(&mut self.are_shares_unknown, are_unknown) != are_unknown
    }

    /// When the next switch expires, which changes the layer without a record.
    pub fn layer_changes_at(&self, now: Timestamp) -> Option<Timestamp> {
        let ends = self.switches.values().filter_map(|switch| switch.expires_at);
        ends.map(|end| end.0).filter(|end| *end > now).min()
    }

    fn apply_files(&mut self, version: &str, document: Option<&str>) -> Result<Effect, String> {
        match document.map(parse::<FilesDocument>).transpose()? {
            Some(FilesDocument { state: FilesState::Released, .. }) => self.released_files.insert(version.to_owned()),
            None => self.released_files.remove(version),
        };
        Ok(Effect::Layer)
    }

    fn apply_quota(&self, domain: &str, caller: &str, document: Option<&str>) -> Result<Effect, String> {
        let document: Option<QuotaDocument> = document.map(parse).transpose()?;
        let quota = document.as_ref().map(|document| {
            let mut faults = FieldFaults::default();
            let quota = document.to_quota(&mut faults);
            unless_faulty(faults, quota)
        });
        self.tenants.set_quota(domain, caller, quota.transpose()?.as_ref());
        Ok(Effect::Tenants { reset: document.is_some_and(|document| document.reset_by.is_some()) })
    }

    fn apply_emergency(&self, domain: &str, name: &str, document: Option<&str>) -> Result<Effect, String> {
        let emergency = document.map(|document| {
            let document: EmergencyDocument = parse(document)?;
            let mut faults = FieldFaults::default();
            let emergency = document.to_emergency(&mut faults);
            unless_faulty(faults, emergency)
        });
        let domain = (!domain.is_empty()).then_some(domain);
        self.tenants.set_emergency(domain, name, emergency.transpose()?.flatten().as_ref());
        Ok(Effect::TENANTS)
    }

    fn apply_block(&self, domain: &str, name: &str, document: Option<&str>) -> Result<Effect, String> {
        let Some(document) = document else {
            // A deleted record does not say whether it blocked a caller or a range: end both.
            let caller = BlockSubject::Caller { domain: domain.to_owned(), caller: name.to_owned() };
            self.tenants.set_block(&caller, None);
            if let Ok(network) = name.parse::<Network>() {
                let domain = (!domain.is_empty()).then(|| domain.to_owned());
                self.tenants.set_block(&BlockSubject::Range { domain, network }, None);
            }
            self.end_masked(domain, name);
            return Ok(Effect::TENANTS);
        };
        let document: BlockDocument = parse(document)?;
        let mut faults = FieldFaults::default();
        let block = document.to_block(domain, name, &mut faults);
        if let Some((blocked, block)) = unless_faulty(faults, block)? {
            // The record may have turned from a caller to a range, or back: end the other block.
            if !document.masked {
                self.end_masked(domain, name);
            }
            let other = BlockDocument { range: !document.range, masked: false, ..document };
            if let Some(other) = other.blocked(domain, name, &mut FieldFaults::default()) {
                self.tenants.set_block(&other, None);
            }
            self.tenants.set_block(&blocked, Some(block));
        }
        Ok(Effect::TENANTS)
    }

    /// Ends the block of the private name whose digest is this name, if it is one.
    fn end_masked(&self, domain: &str, name: &str) {
        if let Some(digest) = masked_name(name) {
            self.tenants.set_block(&BlockSubject::Masked { domain: domain.to_owned(), digest }, None);
        }
    }

    fn apply_rule(&mut self, domain: &str, name: &str, document: Option<&str>) -> Result<Effect, String> {
        let key = (domain.to_owned(), name.to_owned());
        let document: Option<RuleDocument> = document.map(parse).transpose()?;
        let mode = match document.as_ref().map(|document| document.state) {
            None | Some(RuleState::Draft | RuleState::Pending) => {
                self.rules.remove(&key);
                return Ok(Effect::Layer);
            }
            Some(RuleState::Active) => None,
            Some(RuleState::Shadow) => Some(LayerMode::Shadow),
            Some(RuleState::Off) => Some(LayerMode::Off),
        };
        let version = document.as_ref().map(|document| document.version);
        let rule = document.map(|document| document.rule.get().to_owned()).unwrap_or_default();
        let rule = LayerRule { domain: domain.to_owned(), name: name.to_owned(), rule, mode, version };
        self.rules.insert(key, rule);
        Ok(Effect::Layer)
    }

    fn apply_shares(
        &mut self,
        domain: &str,
        name: &str,
        document: Option<&str>,
        generation: u64,
    ) -> Result<Effect, String> {
        let key = (domain.to_owned(), name.to_owned());
        match document {
            Some(document) => {
                self.shares.insert(key, (generation, parse::<SharesDocument>(document)?.to_shares()));
            }
            None => drop(self.shares.remove(&key)),
        }
        Ok(Effect::Layer)
    }

    fn apply_switch(&mut self, domain: &str, name: &str, document: Option<&str>) -> Result<Effect, String> {
        let key = (domain.to_owned(), name.to_owned());
        match document {
            Some(document) => self.switches.insert(key, parse(document)?),
            None => self.switches.remove(&key),
        };
        Ok(Effect::Layer)
    }
}

fn parse<T: DeserializeOwned>(document: &str) -> Result<T, String> {
    serde_json::from_str(document).map_err(|error| error.to_string())
}

/// The value, or the first fault.
fn unless_faulty<T>(faults: FieldFaults, value: T) -> Result<T, String> {
    faults.into_result(value).map_err(|faults| faults.first().map(ToString::to_string).unwrap_or_default())
}
