//! `tollgate plans`: changes that a server holds until they are confirmed.

use clap::Subcommand;
use serde_json::Value;

use super::client::{AdminClient, ApiRequest};
use super::resource::{Action, RequestBody, Resource};
use super::show::{self, TextTable};
use super::{CommandResult, plan, write_stdout};

#[derive(Debug, Subcommand)]
pub(crate) enum PlansAction {
    /// List the changes that wait
    List,
    /// Show what a change would do, and who approved it
    #[command(after_help = "Example:\n  tollgate plans show 3f2a9c01d4e5b6a7")]
    Show {
        /// The id of the plan
        id: String,
    },
    /// Approve a change of somebody else; it is made when it is sent again with --confirm ID
    #[command(after_help = "Example:\n  tollgate plans approve 3f2a9c01d4e5b6a7 --reason 'as agreed in ticket 4711'")]
    Approve {
        /// The id of the plan
        id: String,
        /// The reason, for the audit log
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Drop a change: it can't be confirmed any more
    Drop {
        /// The id of the plan
        id: String,
    },
}

const PLANS: Resource = Resource {
    path: &["admin", "v1", "plans"],
    columns: &[
        ("PLAN", |item| show::text(&item["id"])),
        ("NEEDS", needs),
        ("CHANGE", |item| show::text(&item["action"])),
        ("OF", |item| [&item["domain"], &item["name"]].map(show::text).join("/")),
        ("NEWLY REFUSED", |item| format!("{} %", show::text(&item["report"]["newly_refused_percent"]))),
        ("BY", |item| show::text(&item["by"])),
        ("UNTIL", |item| show::time(&item["expires_at"])),
    ],
    empty: "no changes wait for a confirmation",
};

impl Action for PlansAction {
    fn run(&self, client: &AdminClient, _: Option<&str>) -> CommandResult {
        match self {
            PlansAction::List => {
                let response = client.send(ApiRequest::get(PLANS.path(&[], None)))?;
                match show::print_items(client, &mut TextTable::new(PLANS.columns), &response)? {
                    0 if !client.json => write_stdout(format!("{}\n", PLANS.empty)),
                    _ => Ok(()),
                }
            }
            PlansAction::Show { id } => {
                let response = client.send(ApiRequest::get(PLANS.path(&[id], None)))?;
                show::print(client, &response, report)
            }
            PlansAction::Approve { id, reason } => {
                let body = RequestBody::new().with_texts(&[("reason", reason)]);
                let request = ApiRequest::post(PLANS.path(&[id, "approve"], None)).json(body);
                let done = format!("approved; it is made when it is sent again with --confirm {id}\n");
                show::print(client, &client.send(request)?, |_| done)
            }
            PlansAction::Drop { id } => Resource::delete(client, PLANS.path(&[id], None), &format!("{id} dropped")),
        }
    }
}

fn needs(item: &Value) -> String {
    match (item["needs"].as_str(), item["approved"].as_bool()) {
        (Some("approval"), Some(true)) => "approval (given)".to_owned(),
        (needs, _) => needs.unwrap_or_default().to_owned(),
    }
}

fn report(item: &Value) -> String {
    let mut text = TextTable::new(PLANS.columns).lines(std::slice::from_ref(item));
    for approval in item["approvals"].as_array().into_iter().flatten() {
        let (by, at) = (show::text(&approval["by"]), show::time(&approval["at"]));
        text.push_str(&format!("approved by {by} at {at}\n"));
    }
    text.push('\n');
    text.push_str(&plan::report(&item["report"]));
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plans_are_shown_with_what_they_need_and_what_they_do() {
        let impact = json!({"requests": 40, "refused_before": 0, "refused_after": 30, "newly_refused": 30,
            "newly_admitted": 0, "newly_refused_percent": 75.0});
        let mut inner = impact;
        inner["records"] = json!(40);
        let item = json!({"id": "3f2a", "needs": "approval", "approved": true, "action": "quota.put", "domain": "shop",
            "name": "ada", "by": "token ann", "expires_at": "2026-11-16T09:00:00Z", "report": inner,
            "approvals": [{"by": "token bob", "at": "2026-11-16T08:30:00Z"}]});
        let text = report(&item);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("3f2a  approval (given)  quota.put  shop/ada  75"), "{text}");
        assert!(lines[2].starts_with("approved by token bob at "), "{text}");
        assert!(text.contains("NEWLY REFUSED"), "{text}");
    }
}
