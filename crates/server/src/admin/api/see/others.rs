//! What pages here show of other parts: the other servers, the decision log, callers who are near their limits for long.

use serde_json::{Value, json};
use tollgate::control::Moment;
use tollgate_observe::Ruling;

use super::{See, hundredths, keys_for, sustained};
use crate::admin::api::Asked;
use crate::observe::fleet::{About, Busy, KnownServer};

/// Every server that is known, this one first.
pub(super) fn servers(see: &See) -> Vec<Value> {
    let servers = see.sight.servers(see.limiter().rules().generation(), see.control.now());
    let told = servers.into_iter().map(|KnownServer { about, seen_at, this }| {
        let About { name, region, version, rules_generation, busy } = about;
        // What this one did lately is known to the second.
        let Busy { decisions_per_second, deny_per_second } = if this { busy_now(see) } else { busy };
        json!({
            "name": name,
            "region": region,
            "version": version,
            "seen_at": Moment(seen_at),
            "decisions_per_second": hundredths(decisions_per_second),
            "deny_per_second": hundredths(deny_per_second),
            "rules_generation": rules_generation,
            "this": this,
        })
    });
    told.collect()
}

fn busy_now(see: &See) -> Busy {
    let rates = see.sight.pulse.history().rates();
    Busy { decisions_per_second: rates.iter().sum(), deny_per_second: rates[Ruling::Deny as usize] }
}

/// What became of entries of the decision log.
pub(super) fn log(see: &See) -> Value {
    let counts = see.sight.decisions.counts();
    json!({"written": counts.written, "dropped": counts.dropped + counts.failed})
}

/// Callers who are near a limit for long, as they are told to one who asks. An item is the same as long as its domain, rule and key
/// are.
pub(super) fn sustained(see: &See, asked: &Asked) -> Vec<Value> {
    let (keys, rules) = (keys_for(asked), see.limiter().rules());
    let all = see.sight.observer.hitters().sustained(see.control.now());
    all.iter().map(|one| sustained::item(&see.sight, &rules, one, keys)).collect()
}
