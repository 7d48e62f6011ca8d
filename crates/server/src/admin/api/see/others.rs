//! What pages here show of other parts: the other servers, the decision log, callers who are near their limits for long.

use serde_json::{Value, json};
use tollgate::control::Moment;
use tollgate_observe::Ruling;

use super::{See, hundredths};
use crate::admin::api::Asked;

/// Every server that is known, this one among them.
pub(super) fn servers(see: &See) -> Vec<Value> {
    let rates = see.sight.pulse.history().rates();
    vec![json!({
        "name": see.sight.name,
        "region": see.sight.region,
        "version": env!("CARGO_PKG_VERSION"),
        "seen_at": Moment(see.control.now()),
        "decisions_per_second": hundredths(rates.iter().sum()),
        "deny_per_second": hundredths(rates[Ruling::Deny as usize]),
        "rules_generation": see.limiter().rules().generation(),
        "this": true,
    })]
}

/// What became of entries of the decision log.
pub(super) fn log(_: &See) -> Value {
    json!({"written": 0, "dropped": 0})
}

/// Callers who are near a limit for long, as they are told to one who asks. An item is the same as long as its domain, rule and key
/// are.
pub(super) fn sustained(_: &See, _: &Asked) -> Vec<Value> {
    Vec::new()
}
