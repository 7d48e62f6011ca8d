//! From a receipt that was settled to an answer.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use tollgate_core::Source;
use tollgate_rules::model::Headers;

use super::answer::carried;
use super::sheet::{Sheet, json_text, member, number_member, truth_member};
use super::{Carried, JSON, REPLAYED};
use crate::{Ending, Moved, Settled, SettledRule};

/// The answer to one who told how a request stands, with the receipt that lasts from now on if the request goes on.
///
/// What is the same is answered alike, but for the header that says so. While the store is away the status is 202: it is not
/// settled yet, and the numbers of what the store has not heard of are not known.
pub fn settled(settled: &Settled, ending: Ending, renewed: Option<Carried<'_>>) -> Response<Full<Bytes>> {
    let mut sheet = Sheet::new();
    if settled.is_replay() {
        sheet.field(&REPLAYED, |out| out.extend_from_slice(b"true"));
    }
    let is_stored = settled.is_stored();
    let status = if is_stored { StatusCode::OK } else { StatusCode::ACCEPTED };
    sheet.finish(status, Some(&JSON), |out| {
        let is_settled = is_stored && ending != Ending::Running;
        out.extend_from_slice(if is_settled { br#"{"settled":true"# } else { br#"{"settled":false"# });
        if !is_stored {
            truth_member(out, "deferred", true);
        }
        member(out, "outcome", ending.name());
        if let Some(receipt) = renewed {
            carried(out, receipt);
        }
        rules(out, settled);
        out.push(b'}');
    })
}

/// What became of what each rule took, as far as it may be seen.
fn rules(out: &mut Vec<u8>, settled: &Settled) {
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
    if one.reading.source != Source::Store {
        return truth_member(out, "deferred", true);
    }
    match one.moved {
        // One that had ended by itself was not there to be released.
        Moved::Released => truth_member(out, "released", one.reading.taken > 0),
        Moved::Extended => truth_member(out, "extended", true),
        Moved::Lost => truth_member(out, "extended", false),
        Moved::Returned(units) => number_member(out, "returned", units),
        Moved::Debited(units) => number_member(out, "debited", units),
    }
    number_member(out, "limit", one.limit.amount());
    number_member(out, "remaining", one.reading.remaining);
}
