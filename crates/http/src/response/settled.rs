//! Responses to settlements.

use http::StatusCode;
use tollgate_rules::model::Headers;

use super::respond::signed_receipt;
use super::{JSON, REPLAYED, SignedReceipt};
use crate::writer::{ResponseWriter, WrittenResponse, bool_member, json_text, member, number_member};
use tollgate::{CounterChange, RequestOutcome, SettledReceipt, SettledRule};

/// The response to a settlement, with a renewed receipt if the request is still running.
///
/// A replay has the same response with an additional header. While the store is unavailable the status is 202: the
/// settlement is deferred, and the readings of deferred counters are omitted.
pub fn respond_settled(
    settled: &SettledReceipt,
    outcome: RequestOutcome,
    renewed: Option<SignedReceipt<'_>>,
) -> WrittenResponse {
    let mut writer = ResponseWriter::new();
    if settled.is_replay() {
        writer.field(&REPLAYED, |out| out.extend_from_slice(b"true"));
    }
    let is_stored = settled.is_stored();
    let status = if is_stored { StatusCode::OK } else { StatusCode::ACCEPTED };
    writer.finish(status, Some(&JSON), |out| {
        let is_settled = is_stored && outcome != RequestOutcome::Running;
        out.extend_from_slice(if is_settled { br#"{"settled":true"# } else { br#"{"settled":false"# });
        if !is_stored {
            bool_member(out, "deferred", true);
        }
        member(out, "outcome", outcome.name());
        if let Some(receipt) = renewed {
            signed_receipt(out, receipt);
        }
        rules(out, settled);
        out.push(b'}');
    })
}

/// Writes the changes of the visible rules' counters.
fn rules(out: &mut Vec<u8>, settled: &SettledReceipt) {
    out.extend_from_slice(br#","rules":["#);
    let shown = settled.rules().filter(|one| one.rule.headers() != Headers::Hidden);
    for (at, one) in shown.enumerate() {
        out.extend_from_slice(if at > 0 { br#",{"rule":"# } else { br#"{"rule":"# });
        json_text(out, one.rule.name());
        rule(out, &one);
        out.push(b'}');
    }
    out.push(b']');
}

fn rule(out: &mut Vec<u8>, one: &SettledRule<'_>) {
    if !one.reading.source.is_recorded() {
        return bool_member(out, "deferred", true);
    }
    match one.change {
        // A slot that had expired was not released.
        CounterChange::Released => bool_member(out, "released", one.reading.taken > 0),
        CounterChange::Extended => bool_member(out, "extended", true),
        CounterChange::Lost => bool_member(out, "extended", false),
        CounterChange::Returned(units) => number_member(out, "returned", units),
        CounterChange::Debited(units) => number_member(out, "debited", units),
    }
    number_member(out, "limit", one.limit.quota());
    number_member(out, "remaining", one.reading.remaining);
}
