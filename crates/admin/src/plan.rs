//! What a change would do to recent traffic.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use tollgate::tenants::{Emergency, Override, Quota, QuotaStage, TimeRange};
use tollgate::{KeyPrivacy, Layer, Ruleset, Severity, Tenants, Timestamp};
use tollgate_observe::{TrafficExcerpt, truncate_attribute};
use tollgate_plan::{PlanReport, World, compare, tenants_of};
use tollgate_records::documents::{EmergencyDocument, FieldFaults, QuotaDocument};
use tollgate_records::{Controls, FieldFault, Record, RecordKind};
use tollgate_rules::pattern::Pattern;
use tollgate_rules::{RuleFile, quoted};

use crate::problem::{ApiProblem, rule_fault};
use crate::store_of_record::ControlPlane;

/// A change, as an operator would make it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlannedChange {
    /// The rule files after it; by default those in force.
    #[serde(default)]
    pub files: Option<Vec<PlannedFile>>,
    /// Records that it writes.
    #[serde(default)]
    pub records: Vec<PlannedRecord>,
}

/// A rule file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlannedFile {
    pub name: String,
    pub text: String,
}

/// A record of the control plane.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlannedRecord {
    /// `rule`, `quota`, `switch` or `emergency`.
    pub kind: RecordKind,
    #[serde(default)]
    pub domain: String,
    #[serde(default)]
    pub name: String,
    /// Its document; `null` deletes it.
    #[serde(default)]
    pub document: Option<Box<RawValue>>,
}

/// Which stage of a quota is tried, if it is to change at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TriedStage {
    First,
    Last,
}

/// What a change would do, and to what traffic.
#[derive(Debug)]
pub(crate) struct TrafficPlan {
    pub report: PlanReport,
    /// Whether all requests of that time were recorded.
    pub is_complete: bool,
    /// What could not be tried.
    pub omitted: Vec<String>,
}

/// The records of a plan.
const MAX_RECORDS: usize = 10_000;

impl PlannedChange {
    /// Fails if there are too many records.
    pub(crate) fn check_size(&self) -> Result<(), ApiProblem> {
        if self.records.len() <= MAX_RECORDS {
            return Ok(());
        }
        let detail = format!("a plan has at most {MAX_RECORDS} records; plan an import in parts");
        Err(ApiProblem::bad_request("too_many", detail))
    }

    /// Tries the change on recorded requests. It takes up to seconds: not on an async thread.
    pub(crate) fn plan(
        &self,
        control: &ControlPlane,
        traffic: &TrafficExcerpt,
        privacy: &KeyPrivacy,
        stage: TriedStage,
    ) -> Result<TrafficPlan, ApiProblem> {
        let TrafficExcerpt { records, is_complete } = traffic;
        let now = control.now();
        let before = control.limiter().rules();
        let changed_rules = self.changes_rules().then(|| self.rules(control, now)).transpose()?;
        let after = changed_rules.as_ref().unwrap_or(&before);
        let (tenants, changed) = (tenants_of(records, &before), tenants_of(records, after));
        let mut omitted = Vec::new();
        for record in &self.records {
            record.change_tenants(&changed, after, privacy, stage, &mut omitted)?;
        }
        let (first, second) = (World { rules: &before, tenants: &tenants }, World { rules: after, tenants: &changed });
        let report = compare(&first, &second, records, *is_complete, &mut |_| ());
        Ok(TrafficPlan { report, is_complete: *is_complete, omitted })
    }

    fn changes_rules(&self) -> bool {
        self.files.is_some() || self.records.iter().any(PlannedRecord::changes_rules)
    }

    /// The rules after the change.
    fn rules(&self, control: &ControlPlane, now: Timestamp) -> Result<Ruleset, ApiProblem> {
        let layer = self.layer(control.current_layer(), now)?;
        let compiled = match &self.files {
            None => control.rules().validate(&layer),
            Some(files) => {
                let file = |file: &PlannedFile| RuleFile { name: file.name.clone(), text: file.text.clone() };
                control.rules().validate_files(files.iter().map(file).collect(), &layer)
            }
        };
        compiled.map(|(rules, _)| rules).map_err(|problems| {
            let errors = problems.iter().filter(|problem| problem.severity == Severity::Error);
            ApiProblem::invalid(errors.map(rule_fault).collect())
        })
    }

    /// The rules and switches above the files after the change.
    fn layer(&self, mut layer: Layer, now: Timestamp) -> Result<Layer, ApiProblem> {
        let mut controls = Controls::default();
        for record in self.records.iter().filter(|one| one.changes_rules()) {
            let document = record.versioned_document()?;
            let PlannedRecord { kind, domain, name, .. } = record;
            let as_record = Record {
                generation: 0,
                kind: *kind,
                domain: domain.into(),
                name: name.into(),
                document: document.map(Into::into),
            };
            controls.apply(&as_record).map_err(|error| record.invalid(error))?;
            match kind {
                RecordKind::Rule => layer.rules.retain(|rule| rule.domain != *domain || rule.name != *name),
                _ => layer.switches.retain(|switch| {
                    let is = |part: &Option<String>, text: &str| part.as_deref().unwrap_or_default() == text;
                    !is(&switch.domain, domain) || !is(&switch.rule, name)
                }),
            }
        }
        let Layer { rules, switches, .. } = controls.layer(now);
        layer.rules.extend(rules);
        layer.switches.extend(switches);
        Ok(layer)
    }
}

impl PlannedRecord {
    /// A record with this document; without one it is deleted.
    pub(crate) fn new(kind: RecordKind, domain: &str, name: &str, document: Option<&str>) -> PlannedRecord {
        // Documents that are written are JSON.
        let document = document.and_then(|text| RawValue::from_string(text.to_owned()).ok());
        PlannedRecord { kind, domain: domain.to_owned(), name: name.to_owned(), document }
    }

    /// Whether it is a quota that changes at a time.
    pub(crate) fn has_stages(&self) -> bool {
        let quota = self.document.as_ref().filter(|_| self.kind == RecordKind::Quota);
        let quota: Option<QuotaDocument> = quota.and_then(|document| serde_json::from_str(document.get()).ok());
        quota.is_some_and(|quota| quota.next.is_some())
    }

    fn changes_rules(&self) -> bool {
        matches!(self.kind, RecordKind::Rule | RecordKind::Switch)
    }

    /// The document; a rule needs no version here.
    fn versioned_document(&self) -> Result<Option<String>, ApiProblem> {
        let Some(document) = &self.document else { return Ok(None) };
        if self.kind != RecordKind::Rule {
            return Ok(Some(document.get().to_owned()));
        }
        let mut rule: Value = serde_json::from_str(document.get()).map_err(|error| self.invalid(error.to_string()))?;
        if let Some(members) = rule.as_object_mut() {
            members.entry("version").or_insert(0.into());
            members.entry("state").or_insert("active".into());
        }
        Ok(Some(rule.to_string()))
    }

    /// Changes what is known of callers.
    fn change_tenants(
        &self,
        tenants: &Tenants,
        rules: &Ruleset,
        privacy: &KeyPrivacy,
        stage: TriedStage,
        omitted: &mut Vec<String>,
    ) -> Result<(), ApiProblem> {
        let recorded = |name: &str| recorded_name(name, &self.domain, rules, privacy);
        match self.kind {
            RecordKind::Rule | RecordKind::Switch => {}
            RecordKind::Quota => {
                let quota = self.parsed::<QuotaDocument, _>(|document, faults| Some(document.to_quota(faults)))?;
                let domain = self.domain_with_callers(rules)?;
                match recorded_name(&self.name, domain, rules, privacy) {
                    Some(name) => tenants.set_quota(domain, &name, quota.map(|quota| tried(quota, stage)).as_ref()),
                    None => omitted.push(self.omission()),
                }
            }
            RecordKind::Emergency => {
                let emergency = self.parsed(|document: &EmergencyDocument, faults| document.to_emergency(faults))?;
                let domain = (!self.domain.is_empty()).then_some(self.domain.as_str());
                let emergency = match emergency {
                    None => None,
                    Some(Emergency { callers, limit }) => match recorded(&callers.to_string()) {
                        Some(name) => {
                            let limit = Override { during: TimeRange::ALWAYS, ..limit };
                            Some(Emergency { callers: Pattern::new(&name), limit })
                        }
                        None => {
                            omitted.push(self.omission());
                            return Ok(());
                        }
                    },
                };
                tenants.set_emergency(domain, &self.name, emergency.as_ref());
            }
            kind => {
                let detail =
                    format!("a plan has rules, quotas, switches and emergencies, and no record of kind {kind}");
                return Err(ApiProblem::bad_request("not_planned", detail));
            }
        }
        Ok(())
    }

    /// The domain of a quota: the named one, or the only one with callers.
    fn domain_with_callers<'r>(&self, rules: &'r Ruleset) -> Result<&'r str, ApiProblem> {
        let mut with_callers = rules.domains().iter().filter(|domain| domain.entity().is_some());
        match (&*self.domain, with_callers.next(), with_callers.next()) {
            ("", Some(only), None) => Ok(only.name()),
            ("", ..) => Err(self.invalid("it has no `domain`, and not exactly one domain has callers".to_owned())),
            (name, ..) => {
                let found = rules.domains().iter().find(|domain| domain.name() == name);
                let found = found.ok_or_else(|| self.invalid(format!("there is no domain {}", quoted(name))))?;
                Ok(found.name())
            }
        }
    }

    /// What the document means, or all of its faults.
    fn parsed<D: DeserializeOwned, T>(
        &self,
        read: impl FnOnce(&D, &mut FieldFaults) -> Option<T>,
    ) -> Result<Option<T>, ApiProblem> {
        let Some(document) = &self.document else { return Ok(None) };
        let document: D = serde_json::from_str(document.get()).map_err(|error| self.invalid(error.to_string()))?;
        let mut faults = FieldFaults::default();
        let read = read(&document, &mut faults);
        faults.into_result(read).map_err(ApiProblem::invalid)
    }

    fn invalid(&self, what: String) -> ApiProblem {
        ApiProblem::invalid(vec![FieldFault { at: format!("{} {}", self.kind, self.name), what }])
    }

    fn omission(&self) -> String {
        let PlannedRecord { kind, name, .. } = self;
        format!(
            "the {kind} {name:?} is for callers that match a pattern, and recorded callers are masked: it was not tried"
        )
    }
}

/// One stage of the quota, as if it had begun before all recorded requests. Of overrides of the same rules the last one applies,
/// which is the one that begins last.
fn tried(mut quota: Quota, stage: TriedStage) -> Quota {
    let tried = match stage {
        TriedStage::First => quota.stages.drain(..).next(),
        TriedStage::Last => quota.stages.pop(),
    };
    let stages = tried.into_iter().map(|mut stage| {
        stage.overrides.sort_by_key(|one| one.during.from);
        stage.overrides.iter_mut().for_each(|one| one.during = TimeRange::ALWAYS);
        QuotaStage { during: TimeRange::ALWAYS, ..stage }
    });
    Quota { stages: stages.collect() }
}

/// The name of a caller as it is recorded; `None` if that can't be known.
pub(crate) fn recorded_name(name: &str, domain: &str, rules: &Ruleset, privacy: &KeyPrivacy) -> Option<String> {
    let domain = rules.domains().iter().find(|one| one.name() == domain);
    let is_private = domain.is_some_and(|domain| domain.entity().is_some_and(|entity| domain.is_private(entity)));
    let secret = privacy.log_secret().filter(|_| is_private);
    match (Pattern::new(name), secret) {
        (Pattern::Exact(_), Some(secret)) => Some(truncate_attribute(&secret.mask(name).to_string())),
        (Pattern::Exact(_), None) => Some(truncate_attribute(name)),
        // Everybody, masked or not.
        (_, _) if name.chars().all(|c| c == '*') => Some(name.to_owned()),
        (_, Some(_)) => None,
        (_, None) => Some(name.to_owned()),
    }
}
