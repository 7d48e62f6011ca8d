//! Homes of callers that change: in another region, counters of rules with `region: home` begin anew.

use serde::Serialize;
use serde_json::{Value, json};
use tollgate::Timestamp;
use tollgate_control::{Change, Precondition, RecordName};
use tollgate_records::documents::QuotaDocument;
use tollgate_records::{RecordKind, Rfc3339};
use tollgate_rules::Domain;
use tollgate_rules::pattern::Pattern;

/// A caller's counters begin anew in another region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct HomeMove {
    /// The regions; `None` if it depends on the name of a caller that is not known.
    from: Option<String>,
    to: Option<String>,
    /// When; `None` with the write.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Rfc3339>,
}

/// What a write changes: at once, and with a quota that begins later. A home that ends with its quota is not looked at.
pub(super) fn moves(
    domain: &Domain,
    caller: &str,
    before: Option<&QuotaDocument>,
    after: Option<&QuotaDocument>,
    now: Timestamp,
) -> Vec<HomeMove> {
    let is_one = matches!(Pattern::new(caller), Pattern::Exact(_));
    let home = |recorded: Option<&str>| match is_one {
        true => domain.home_of_caller(caller, recorded).map(str::to_owned),
        false => recorded.map(str::to_owned),
    };
    let (old, new) = (home(recorded_home(before, now)), home(recorded_home(after, now)));
    let mut moves = Vec::new();
    if domain.home_of_caller("", None).is_none() {
        // There is no such rule.
        return moves;
    }
    if old != new {
        moves.push(HomeMove { from: old, to: new.clone(), at: None });
    }
    let stages = after.into_iter().flat_map(|after| std::iter::once(after).chain(after.next.as_deref()));
    for stage in stages {
        let Some(begins) = stage.effective_at.filter(|begins| begins.0 > now) else { continue };
        let later = home(stage.home.as_deref());
        if later != new {
            moves.push(HomeMove { from: new.clone(), to: later, at: Some(begins) });
        }
    }
    moves
}

/// The home that is recorded in the quota in force.
fn recorded_home(quota: Option<&QuotaDocument>, now: Timestamp) -> Option<&str> {
    let quota = quota?;
    let mut stages = quota.next.as_deref().into_iter().chain([quota]);
    stages.find(|stage| stage.during().holds(now))?.home.as_deref()
}

/// Says it in the response.
pub(super) fn add_moves(answer: &mut Value, moves: &[HomeMove]) {
    if !moves.is_empty() {
        answer["counters_begin_anew"] = json!(moves);
    }
}

/// Says it in the audit log.
pub(super) fn audit_changes(domain: &Domain, caller: &str, moves: &[HomeMove]) -> Vec<Change> {
    let change = |one: &HomeMove| Change {
        name: RecordName::new(RecordKind::Counter, domain.name(), caller),
        expect: Precondition::Any,
        document: Some(json!(one).to_string()),
        action: "counter.move".to_owned(),
        reason: "the home of the quota changed: counters of rules with `region: home` begin anew".to_owned(),
    };
    moves.iter().map(change).collect()
}
