//! `tollgate block`: blocked callers and address ranges.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use tollgate_rules::model::Network;
use tollgate_rules::{quoted, resembles_address};

use super::client::{AdminClient, ApiRequest};
use super::expiry::ExpiryArgs;
use super::path::ApiPath;
use super::resource::{Action, RequestBody, Resource};
use super::show;
use super::{CommandError, CommandResult};

#[derive(Debug, Subcommand)]
pub(crate) enum BlockAction {
    /// Block a caller, callers whose names match a pattern, or an address range
    #[command(after_help = "Examples:\n  \
        tollgate block add ada --reason 'leaked key' --for 1h\n  \
        tollgate block add 192.0.2.0/24 --status 429 --reason scraping")]
    Add {
        /// A caller, a name with *, an address or a network
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        who: String,
        #[command(flatten)]
        subject: SubjectArgs,
        /// The status of its responses: 403 or 429; 403 by default
        #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(403..=429), conflicts_with = "shadow")]
        status: Option<u16>,
        /// Let it pass, and mark it for the gateway
        #[arg(long)]
        shadow: bool,
        /// The reason
        #[arg(long, value_name = "TEXT")]
        reason: String,
        #[command(flatten)]
        expiry: ExpiryArgs,
    },
    /// List blocks
    #[command(after_help = "Example:\n  tollgate block list")]
    List {
        /// Only names with this prefix
        #[arg(long, value_name = "TEXT")]
        prefix: Option<String>,
        /// Only bans: blocks that servers began because too many requests were refused
        #[arg(long)]
        bans: bool,
        /// The maximum number; all by default
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
    },
    /// Show a block
    #[command(after_help = "Example:\n  tollgate block show ada")]
    Show {
        /// A caller, a name with *, an address or a network
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        who: String,
        #[command(flatten)]
        subject: SubjectArgs,
    },
    /// Remove a block
    #[command(after_help = "Example:\n  tollgate block remove 192.0.2.0/24")]
    Remove {
        /// A caller, a name with *, an address or a network
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        who: String,
        #[command(flatten)]
        subject: SubjectArgs,
    },
}

/// The option that tells callers from addresses.
#[derive(Debug, Args)]
pub(crate) struct SubjectArgs {
    /// It is the name of a caller, even if it looks like an address
    #[arg(long)]
    caller: bool,
}

impl SubjectArgs {
    /// Rejects a misspelt address, which would block a caller of that name.
    fn check(&self, who: &str) -> CommandResult {
        if self.caller || !resembles_address(who) || who.parse::<Network>().is_ok() {
            return Ok(());
        }
        Err(CommandError::Usage(format!(
            "{} looks like an address or a network, and is none; write for instance 203.0.113.7 or 203.0.113.0/24, or add --caller \
             if it is the name of a caller",
            quoted(who)
        )))
    }

    fn path(&self, who: &str, domain: Option<&str>) -> ApiPath {
        BLOCKS.path(&[who], domain).with("range", self.caller.then_some("false"))
    }
}

const BLOCKS: Resource = Resource {
    path: &["admin", "v1", "blocks"],
    columns: &[
        ("WHO", |item| show::text(&item["name"])),
        ("DOMAIN", |item| item["domain"].as_str().unwrap_or("all").to_owned()),
        (
            "RESPONSE",
            |item| if item["shadow"] == true { "200, marked".to_owned() } else { show::text(&item["status"]) },
        ),
        ("IN FORCE", show::in_force),
        ("UNTIL", |item| show::expiry(&item["expires_at"])),
        ("BY", |item| show::text(&item["updated_by"])),
        ("REASON", |item| show::text(&item["reason"])),
    ],
    empty: "nobody is blocked",
};

impl Action for BlockAction {
    fn run(&self, client: &AdminClient, domain: Option<&str>) -> CommandResult {
        match self {
            BlockAction::Add { who, subject, status, shadow, reason, expiry } => {
                subject.check(who)?;
                let body = RequestBody::new().with("status", *status).with("shadow", shadow.then_some(true));
                let body = expiry.add_to(body.with("reason", Some(reason.as_str())));
                let response = client.send(ApiRequest::put(subject.path(who, domain)).json(body))?;
                show::print(client, &response, |block| {
                    let (who, end) = (show::clean(&show::text(&block["name"])), show::expiry(&block["expires_at"]));
                    format!("{who} is blocked; until: {end}; `tollgate block remove` ends it\n")
                })
            }
            BlockAction::List { prefix, bans, limit } => {
                let path = BLOCKS.path(&[], domain).with("prefix", prefix.as_deref());
                BLOCKS.list(client, &path.with("bans", bans.then_some("true")), *limit)
            }
            BlockAction::Show { who, subject } => BLOCKS.show(client, subject.path(who, domain)),
            BlockAction::Remove { who, subject } => {
                let done = format!("{} is no longer blocked", show::clean(who));
                Resource::delete(client, subject.path(who, domain), &done)
            }
        }
    }
}
