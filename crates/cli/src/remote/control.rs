//! `tollgate control`: the store of record.

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use serde_json::Value;

use super::CommandResult;
use super::client::{AdminClient, ApiRequest};
use super::path::ApiPath;
use super::resource::{Action, RequestBody};
use super::show;

#[derive(Debug, Subcommand)]
pub(crate) enum ControlAction {
    /// Show whether the store of record is the known one, and what differs if it is not
    #[command(after_help = "Example:\n  tollgate control status")]
    Status,
    /// Accept a store of record that is empty, older or another one than the known one, on all servers
    #[command(after_help = "Example:\n  \
        tollgate control confirm 4f0c2a… --reason 'restored from the backup of Monday'")]
    Confirm {
        /// Its identity, which `tollgate control status` shows
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        identity: String,
        /// The reason
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
}

/// The kinds of records, in the order of the report.
const KINDS: [&str; 6] = ["tokens", "blocks", "quotas", "rules", "switches", "emergencies"];

impl Action for ControlAction {
    fn run(&self, client: &AdminClient, _: Option<&str>) -> CommandResult {
        let request = match self {
            ControlAction::Status => ApiRequest::get(ApiPath::new(&["admin", "v1", "control"])),
            ControlAction::Confirm { identity, reason } => {
                let body =
                    RequestBody::new().with("identity", Some(identity.as_str())).with("reason", Some(reason.as_str()));
                ApiRequest::post(ApiPath::new(&["admin", "v1", "control", "confirm"])).json(body)
            }
        };
        show::print(client, &client.send(request)?, report)
    }
}

/// The state of the store of record, for people.
fn report(state: &Value) -> String {
    let text = |value: &Value| show::clean(&show::text(value));
    let generation = text(&state["in_force"]["generation"]);
    let waiting = &state["unconfirmed"];
    if waiting.is_null() {
        return format!("the store of record ({}) is in force at generation {generation}\n", text(&state["kind"]));
    }
    let found = &waiting["found"];
    let (identity, at) = (text(&found["identity"]), text(&found["generation"]));
    let mut report = format!(
        "the store of record is empty, older or another one than before: generation {at} of {identity}\n\
         the known state stays in force, at generation {generation}; nothing is written\n"
    );
    for kind in KINDS {
        let counts = &waiting["differences"][kind];
        let [missing, changed, added] = ["missing", "changed", "added"].map(|name| counts[name].as_u64().unwrap_or(0));
        if missing + changed + added > 0 {
            report.push_str(&format!("{kind}: {missing} missing, {changed} changed, {added} added\n"));
        }
    }
    report
        .push_str(&format!("restore the database, or accept it: tollgate control confirm {identity} --reason TEXT\n"));
    report
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_report_says_what_differs_and_how_to_accept_it() {
        let known = json!({"kind": "postgres", "in_force": {"identity": "a", "generation": 7}, "unconfirmed": null});
        assert_eq!(report(&known), "the store of record (postgres) is in force at generation 7\n");
        let waiting = json!({
            "kind": "postgres",
            "in_force": {"identity": "a", "generation": 7},
            "unconfirmed": {
                "found": {"identity": "b", "generation": 2},
                "differences": {"tokens": {"missing": 3, "changed": 0, "added": 1}, "rules": {"missing": 0}},
            },
        });
        let report = report(&waiting);
        assert!(report.contains("tokens: 3 missing, 0 changed, 1 added\n") && !report.contains("rules"), "{report}");
        assert!(report.contains("tollgate control confirm b --reason"), "{report}");
    }
}
