//! Plans that are held: a write that waits for a confirmation, with what it would do.

use std::hash::Hasher as _;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use siphasher::sip::SipHasher13;
use tollgate::{Span, Timestamp};
use tollgate_plan::{NameForm, PlanReport, report_json};
use tollgate_records::{RecordKind, Rfc3339};

use super::PlanNeed;

/// A write that was held. It is the document of a record, named by the plan's id.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct HeldPlan {
    /// Of the request: only the same request can be confirmed.
    pub digest: String,
    /// The action of the write: `quota.put`.
    pub action: String,
    /// What it writes.
    pub kind: RecordKind,
    #[serde(default)]
    pub domain: String,
    #[serde(default)]
    pub name: String,
    /// Who sent it.
    pub by: String,
    /// The reason of the write.
    #[serde(default)]
    pub reason: String,
    pub needs: PlanNeed,
    #[serde(default)]
    pub approvals: Vec<Approval>,
    pub held_at: Rfc3339,
    pub expires_at: Rfc3339,
    pub report: HeldReport,
}

/// Somebody's approval.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Approval {
    pub by: String,
    pub at: Rfc3339,
    #[serde(default)]
    pub reason: String,
}

/// What a write would do to recent traffic: a report as JSON, with the first of its lists' items.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct HeldReport(Value);

/// How long a plan can be confirmed.
pub(crate) const PLAN_LIFETIME: Span = Span::from_secs(3_600);
/// Rules, tiers and callers of a plan.
const MAX_LISTED: usize = 20;
/// Not a secret.
const ID_KEYS: (u64, u64) = (0x746f_6c6c_6761_7465, 0x706c_616e_2f69_6431);

/// The id of a plan for a request. It need not be secret: it confirms only the same request of somebody who may send it.
pub(crate) fn plan_id(digest: &str, by: &str, needs: PlanNeed, now: Timestamp) -> String {
    let mut hasher = SipHasher13::new_with_keys(ID_KEYS.0, ID_KEYS.1);
    for part in [digest.as_bytes(), by.as_bytes(), needs.code().as_bytes(), &now.as_micros().to_le_bytes()] {
        hasher.write(part);
        hasher.write_u8(0xff);
    }
    format!("{:016x}", hasher.finish())
}

impl HeldPlan {
    /// Whether it can still be confirmed.
    pub(crate) fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at.0 > now
    }

    /// Whether somebody else than the sender approved it.
    pub(crate) fn is_approved(&self) -> bool {
        self.approvals.iter().any(|approval| approval.by != self.by)
    }
}

impl HeldReport {
    /// A report of the requests that the write is for, among `all` requests.
    pub(super) fn new(report: &PlanReport, all: u64, is_complete: bool) -> HeldReport {
        let mut report = report.clone();
        report.all.requests = report.all.requests.max(all);
        report.rules.truncate(MAX_LISTED);
        report.tiers.truncate(MAX_LISTED);
        report.worst.truncate(MAX_LISTED);
        report.uncertain.truncate(MAX_LISTED);
        report.rules.iter_mut().for_each(|rule| rule.examples.clear());
        let mut json = report_json(&report, NameForm::Recorded);
        json["complete"] = json!(is_complete);
        HeldReport(json)
    }

    /// With the names of callers in another form.
    pub(crate) fn hidden(&self, form: impl Fn(&str) -> String) -> HeldReport {
        let mut json = self.0.clone();
        let hide = |caller: &mut Value| {
            if let Some(name) = caller["caller"].as_str().map(&form) {
                caller["caller"] = json!(name);
            }
        };
        json["worst_callers"].as_array_mut().into_iter().flatten().for_each(hide);
        if json["worst_paid_caller"].is_object() {
            hide(&mut json["worst_paid_caller"]);
        }
        HeldReport(json)
    }

    /// What it says, in a sentence without names of callers.
    pub(crate) fn sentence(&self) -> String {
        self.sentence_of("it")
    }

    /// The same of rule files.
    pub(crate) fn sentence_of(&self, what: &str) -> String {
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        let percent = |value: &Value| value["newly_refused_percent"].as_f64().unwrap_or_default();
        let report = &self.0;
        let (refused, requests) = (number(&report["newly_refused"]), number(&report["requests"]));
        let mut text =
            format!("{what} would newly refuse {refused} of {requests} recent requests ({} %)", percent(report));
        let paid = &report["worst_paid_caller"];
        if paid.is_object() {
            text.push_str(&format!(", and {} % of those of a caller who pays", percent(paid)));
        }
        text
    }
}
