//! `tollgate switch`: modes of rules that override the rule files.

use clap::{Subcommand, ValueEnum};

use super::client::{AdminClient, ApiRequest};
use super::expiry::ExpiryArgs;
use super::path::ApiPath;
use super::resource::{Action, RequestBody, Resource};
use super::{CommandError, CommandResult, in_force, show};

#[derive(Debug, Subcommand)]
pub(crate) enum SwitchAction {
    /// List the switches that are set
    #[command(after_help = "Example:\n  tollgate switch list")]
    List {
        /// Only of this domain
        #[arg(long, value_name = "NAME")]
        domain: Option<String>,
    },
    /// Set a switch
    #[command(after_help = "Examples:\n  \
        tollgate switch set everything shadow --for 30m --reason 'incident 12'\n  \
        tollgate switch set shop/orders off --reason 'refuses the wrong ones'")]
    Set {
        /// everything, DOMAIN, or DOMAIN/RULE
        target: String,
        /// The mode
        mode: SwitchMode,
        #[command(flatten)]
        expiry: ExpiryArgs,
        /// The reason, for the audit log
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Clear a switch: the modes of the rule files apply again
    #[command(after_help = "Example:\n  tollgate switch clear shop/orders")]
    Clear {
        /// everything, DOMAIN, or DOMAIN/RULE
        target: String,
    },
}

/// The mode of rules.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SwitchMode {
    /// They are skipped: the kill switch
    Off,
    /// They count and deny nothing
    Shadow,
    /// They report callers beyond the limit, and deny nothing
    Soft,
    /// They deny
    Enforce,
}

const SWITCHES: Resource = Resource {
    path: &["admin", "v1", "switches"],
    columns: &[
        ("WHAT", |item| match (item["domain"].as_str(), item["rule"].as_str()) {
            (Some(domain), Some(rule)) => format!("{domain}/{rule}"),
            (Some(domain), None) => domain.to_owned(),
            (None, _) => "everything".to_owned(),
        }),
        ("MODE", |item| show::text(&item["mode"])),
        ("IN FORCE", show::in_force),
        ("UNTIL", |item| show::expiry(&item["expires_at"])),
        ("BY", |item| show::text(&item["updated_by"])),
        ("REASON", |item| show::text(&item["reason"])),
    ],
    empty: "no switch is set: all rules have the modes of their files",
};

impl Action for SwitchAction {
    fn run(&self, client: &AdminClient, _: Option<&str>) -> CommandResult {
        match self {
            SwitchAction::List { domain } => SWITCHES.list(client, &SWITCHES.path(&[], domain.as_deref()), None),
            SwitchAction::Set { target, mode, expiry, reason } => {
                let body = RequestBody::new().with("mode", Some(mode.name())).with("reason", reason.as_deref());
                let request = ApiRequest::put(switch_path(target)?).json(expiry.add_to(body));
                let response = client.send(request).map_err(|error| name_rule(client, target, error))?;
                show::print(client, &response, |switch| {
                    let end = if switch["expires_at"].is_null() {
                        format!("`tollgate switch clear {}` clears it", show::clean(target))
                    } else {
                        format!("it ends {}", show::time(&switch["expires_at"]))
                    };
                    format!("{} is {}; {end}\n", show::clean(target), mode.name())
                })
            }
            SwitchAction::Clear { target } => {
                let done = format!("{} follows the rule files again", show::clean(target));
                Resource::delete(client, switch_path(target)?, &done)
            }
        }
    }
}

impl SwitchMode {
    fn name(self) -> &'static str {
        match self {
            SwitchMode::Off => "off",
            SwitchMode::Shadow => "shadow",
            SwitchMode::Soft => "soft",
            SwitchMode::Enforce => "enforce",
        }
    }
}

/// The error for an unknown domain, with the rule of that name if there is one.
fn name_rule(client: &AdminClient, target: &str, error: CommandError) -> CommandError {
    let CommandError::Rejected(response) = &error else { return error };
    if response.code() != "unknown_domain" || client.json {
        return error;
    }
    let rules = in_force::find(client, None, target).unwrap_or_default();
    match rules.first().and_then(|rule| rule["domain"].as_str()) {
        Some(domain) => CommandError::Failed(format!(
            "there is no domain `{target}`; did you mean {domain}/{target}?",
            target = show::clean(target),
            domain = show::clean(domain)
        )),
        None => error,
    }
}

/// The path of the switch for a target.
fn switch_path(target: &str) -> Result<ApiPath, CommandError> {
    let parts = match target.split_once('/') {
        None if target == "everything" => vec!["everything"],
        None => vec!["domains", target],
        Some((domain, rule)) => vec!["domains", domain, "rules", rule],
    };
    if parts.contains(&"") {
        let message = format!("{} is not a target; write everything, DOMAIN or DOMAIN/RULE", show::clean(target));
        return Err(CommandError::Usage(message));
    }
    Ok(SWITCHES.path(&parts, None))
}
