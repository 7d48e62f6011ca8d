//! `tollgate token`: tokens of the admin API.

use clap::Subcommand;
use clap::builder::{NonEmptyStringValueParser, PossibleValue, PossibleValuesParser};

use super::client::{AdminClient, ApiRequest, ApiResponse};
use super::expiry::ExpiryArgs;
use super::resource::{Action, RequestBody, Resource};
use super::show;
use super::{CommandError, CommandResult, print_error, write_stdout};

#[derive(Debug, Subcommand)]
pub(crate) enum TokenAction {
    /// Create a token; its secret is written to standard output, once
    #[command(after_help = "Examples:\n  \
        tollgate token create root --scope read --scope quota --scope rules --scope emergency --scope audit > root.token\n  \
        tollgate token create billing --scope read --scope quota --for 30d > billing.token")]
    Create {
        /// A name for it
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// What it may do; may be repeated
        #[arg(long, value_name = "SCOPE", required = true, value_parser = scopes())]
        scope: Vec<String>,
        #[command(flatten)]
        expiry: ExpiryArgs,
        /// The reason, for the audit log
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// List tokens, without their secrets
    #[command(after_help = "Example:\n  tollgate token list")]
    List,
    /// Give a token a new secret; the old one stays valid for a while
    #[command(after_help = "Example:\n  tollgate token rotate billing --grace 1h > billing.token")]
    Rotate {
        /// The name of the token
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// How long the old secret stays valid
        #[arg(long, value_name = "TIME")]
        grace: Option<String>,
        /// The reason, for the audit log
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Revoke a token, at once
    #[command(after_help = "Example:\n  tollgate token revoke billing")]
    Revoke {
        /// The name of the token
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
    },
}

const TOKENS: Resource = Resource {
    path: &["admin", "v1", "tokens"],
    columns: &[
        ("NAME", |item| show::text(&item["name"])),
        ("SCOPES", |item| show::text(&item["scopes"])),
        ("UNTIL", |item| match item["expired"] == true {
            true => "over".to_owned(),
            false => show::expiry(&item["expires_at"]),
        }),
        ("CREATED", |item| show::time(&item["created_at"])),
        ("BY", |item| show::text(&item["created_by"])),
        ("OLD SECRET UNTIL", |item| show::time(&item["old_until"])),
    ],
    empty: "no tokens: only this machine has access; `tollgate token create` creates one",
};

/// The scopes of the admin API, as values of `--scope`. The server checks what they allow.
fn scopes() -> PossibleValuesParser {
    let scopes = [
        ("read", "Read quotas, usage, rules, switches"),
        ("quota", "Change quotas, tiers and counters"),
        ("rules", "Change rules and switches"),
        ("emergency", "Emergencies, kill switches and blocks"),
        ("audit", "Read the audit log"),
        ("check", "Make checks"),
    ];
    PossibleValuesParser::new(scopes.map(|(name, help)| PossibleValue::new(name).help(help)))
}

impl Action for TokenAction {
    fn run(&self, client: &AdminClient, _: Option<&str>) -> CommandResult {
        let request = match self {
            TokenAction::Create { name, scope, expiry, reason } => {
                let body = RequestBody::new().with("name", Some(name.as_str())).with("scopes", Some(scope.clone()));
                let body = expiry.add_to(body.with("reason", reason.as_deref()));
                ApiRequest::post(TOKENS.path(&[], None)).json(body)
            }
            TokenAction::Rotate { name, grace, reason } => {
                let body = RequestBody::new().with_texts(&[("grace", grace), ("reason", reason)]);
                ApiRequest::post(TOKENS.path(&[name, "rotate"], None)).json(body)
            }
            TokenAction::List => return TOKENS.list(client, &TOKENS.path(&[], None), None),
            TokenAction::Revoke { name } => {
                let done = format!("{} is revoked", show::clean(name));
                return Resource::delete(client, TOKENS.path(&[name], None), &done);
            }
        };
        print_secret(client, &client.send(request)?)
    }
}

/// Writes the secret alone to standard output, and everything else to standard error.
fn print_secret(client: &AdminClient, response: &ApiResponse) -> CommandResult {
    if client.json {
        return show::print_json(response);
    }
    let token = response.value()?;
    let no_secret = || CommandError::Failed("the server did not return the secret; rotate the token".to_owned());
    let secret = token["token"].as_str().ok_or_else(no_secret)?;
    let (name, scopes) = (show::clean(&show::text(&token["name"])), show::clean(&show::text(&token["scopes"])));
    print_error(format_args!("token {name}: {scopes}; until: {}", show::expiry(&token["expires_at"])));
    if !token["old_until"].is_null() {
        print_error(format_args!("the old secret is valid until {}", show::time(&token["old_until"])));
    }
    print_error("this is its secret; it is not shown again:");
    write_stdout(format!("{secret}\n"))
}
