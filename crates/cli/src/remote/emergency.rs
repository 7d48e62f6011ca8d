//! `tollgate emergency`: limits that override all others for a while.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use serde_json::Value;

use super::CommandResult;
use super::client::{AdminClient, ApiRequest};
use super::expiry::ExpiryArgs;
use super::resource::{Action, RequestBody, Resource};
use super::show;

#[derive(Debug, Subcommand)]
pub(crate) enum EmergencyAction {
    /// List emergencies, including those that have ended
    #[command(after_help = "Example:\n  tollgate emergency list")]
    List,
    /// Put an emergency in force, for an hour by default
    #[command(after_help = "Examples:\n  \
        tollgate emergency set halve --percent 50 --reason 'database overloaded'\n  \
        tollgate emergency set flood --rule orders --limit 10/second --reason flood --for 15m")]
    Set(SetEmergency),
    /// Extend an emergency
    #[command(after_help = "Example:\n  tollgate emergency renew halve --for 2h")]
    Renew {
        /// The name of the emergency
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        #[command(flatten)]
        expiry: ExpiryArgs,
        /// The reason, for the audit log
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// End an emergency
    #[command(after_help = "Example:\n  tollgate emergency end halve")]
    End {
        /// The name of the emergency
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SetEmergency {
    /// A name for it
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    name: String,
    /// The limit: 10/second, '5 concurrent'
    #[arg(long, value_name = "LIMIT", required_unless_present = "percent", conflicts_with = "percent")]
    limit: Option<String>,
    /// Or a percentage of the limits that would apply
    #[arg(long, value_name = "N")]
    percent: Option<u32>,
    /// The burst of buckets
    #[arg(long, value_name = "N", requires = "limit")]
    burst: Option<u64>,
    /// Only for these callers: a name, or a pattern with *; all by default
    #[arg(long, value_name = "WHO")]
    callers: Option<String>,
    /// Only for this rule; every rule by default
    #[arg(long, value_name = "RULE", conflicts_with = "descriptor")]
    rule: Option<String>,
    /// Only for rules with this descriptor: 'endpoint:POST /orders'
    #[arg(long, value_name = "DESCRIPTOR")]
    descriptor: Option<String>,
    /// The reason
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    expiry: ExpiryArgs,
}

const EMERGENCIES: Resource = Resource {
    path: &["admin", "v1", "emergencies"],
    columns: &[
        ("NAME", |item| show::text(&item["name"])),
        ("DOMAIN", |item| item["domain"].as_str().unwrap_or("all").to_owned()),
        ("CALLERS", |item| show::text(&item["callers"])),
        ("OF", |item| match (item["rule"].as_str(), item["descriptor"].as_str()) {
            (Some(rule), _) => format!("rule {rule}"),
            (None, Some(descriptor)) => descriptor.to_owned(),
            (None, None) => "every rule".to_owned(),
        }),
        ("LIMIT", show::limit),
        ("IN FORCE", show::in_force),
        ("UNTIL", |item| show::expiry(&item["expires_at"])),
        ("REASON", |item| show::text(&item["reason"])),
    ],
    empty: "no emergencies",
};

impl Action for EmergencyAction {
    fn run(&self, client: &AdminClient, domain: Option<&str>) -> CommandResult {
        let request = match self {
            EmergencyAction::List => return EMERGENCIES.list(client, &EMERGENCIES.path(&[], domain), None),
            EmergencyAction::End { name } => {
                let done = format!("{} has ended", show::clean(name));
                return Resource::delete(client, EMERGENCIES.path(&[name], domain), &done);
            }
            EmergencyAction::Set(set) => ApiRequest::put(EMERGENCIES.path(&[&set.name], domain)).json(set.body()),
            EmergencyAction::Renew { name, expiry, reason } => {
                let body = expiry.add_to(RequestBody::new()).with("reason", reason.as_deref());
                ApiRequest::post(EMERGENCIES.path(&[name, "renew"], domain)).json(body)
            }
        };
        show::print(client, &client.send(request)?, |emergency: &Value| {
            let (name, end) = (show::clean(&show::text(&emergency["name"])), show::time(&emergency["expires_at"]));
            format!("{name} is in force until {end}; `tollgate emergency renew {name}` extends it\n")
        })
    }
}

impl SetEmergency {
    fn body(&self) -> RequestBody {
        let body = RequestBody::new().with_texts(&[
            ("callers", &self.callers),
            ("rule", &self.rule),
            ("descriptor", &self.descriptor),
            ("limit", &self.limit),
        ]);
        let body = body.with("percent", self.percent).with("burst", self.burst);
        self.expiry.add_to(body.with("reason", Some(self.reason.as_str())))
    }
}
