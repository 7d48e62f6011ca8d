//! Parts of several pages: servers, decision log counts, sustained use.

use serde_json::{Value, json};
use tollgate_observe::DecisionOutcome;
use tollgate_records::Rfc3339;

use super::{AdminState, hundredths, keys_for, sustained};
use crate::api::RequestContext;
use crate::observe::fleet::{FleetServer, ServerInfo, ServerLoad};

/// All servers of the fleet, this one first.
pub(super) fn servers(state: &AdminState) -> Vec<Value> {
    let servers = state.observability.servers(state.limiter().rules().generation(), state.control.now());
    let items = servers.into_iter().map(|FleetServer { info, seen_at, this }| {
        let ServerLoad { decisions_per_second, deny_per_second } = load(state, this, info.load);
        let ServerInfo { name, region, version, rules_generation, .. } = info;
        json!({
            "name": name,
            "region": region,
            "version": version,
            "seen_at": Rfc3339(seen_at),
            "decisions_per_second": hundredths(decisions_per_second),
            "deny_per_second": hundredths(deny_per_second),
            "rules_generation": rules_generation,
            "this": this,
        })
    });
    items.collect()
}

/// The load of a server. That of this one is known to the second.
pub(super) fn load(state: &AdminState, is_this: bool, reported: ServerLoad) -> ServerLoad {
    if !is_this {
        return reported;
    }
    let rates = state.observability.sampler.history().rates();
    ServerLoad { decisions_per_second: rates.iter().sum(), deny_per_second: rates[DecisionOutcome::Deny as usize] }
}

/// Counts of decision log entries.
pub(super) fn log(state: &AdminState) -> Value {
    let counts = state.observability.decisions.counts();
    json!({"written": counts.written, "dropped": counts.dropped + counts.failed})
}

/// Keys with sustained use, as this caller may see them. Domain, rule and key identify an item.
pub(super) fn sustained(state: &AdminState, context: &RequestContext) -> Vec<Value> {
    let (keys, rules) = (keys_for(context), state.limiter().rules());
    let all = state.observability.observer.heavy_hitters().sustained(state.control.now());
    all.iter().map(|one| sustained::item(&state.observability, &rules, one, keys)).collect()
}
