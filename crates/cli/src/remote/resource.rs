//! What the commands for blocks, emergencies, quotas, rules, switches and tokens share: arguments, requests and lists.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use super::client::{AdminClient, ApiRequest};
use super::path::ApiPath;
use super::server::ServerArgs;
use super::show::{self, Columns, TextTable};
use super::{CommandResult, DomainArgs};

/// The subcommands of a command that calls the admin API.
pub(crate) trait Action {
    /// Runs the chosen subcommand, in the domain of `--domain`.
    fn run(&self, client: &AdminClient, domain: Option<&str>) -> CommandResult;
}

/// A command whose subcommands take `--domain`.
#[derive(Debug, Args)]
pub(crate) struct DomainCommand<A: Action + Subcommand> {
    #[command(subcommand)]
    action: A,
    #[command(flatten)]
    domain: DomainArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// A command whose subcommands do not take `--domain`.
#[derive(Debug, Args)]
pub(crate) struct GlobalCommand<A: Action + Subcommand> {
    #[command(subcommand)]
    action: A,
    #[command(flatten)]
    server: ServerArgs,
}

/// A collection of the admin API, and how its items are listed.
pub(super) struct Resource {
    pub(super) path: &'static [&'static str],
    pub(super) columns: Columns,
    /// The text for an empty list.
    pub(super) empty: &'static str,
}

/// The JSON object of a request.
#[derive(Default)]
pub(super) struct RequestBody(Map<String, Value>);

impl<A: Action + Subcommand> DomainCommand<A> {
    pub(crate) fn run(&self) -> ExitCode {
        super::run(&self.server, |client| self.action.run(client, self.domain.domain.as_deref()))
    }
}

impl<A: Action + Subcommand> GlobalCommand<A> {
    pub(crate) fn run(&self) -> ExitCode {
        super::run(&self.server, |client| self.action.run(client, None))
    }
}

impl Resource {
    /// The path of the collection, or of an item or a part of it.
    pub(super) fn path(&self, parts: &[&str], domain: Option<&str>) -> ApiPath {
        ApiPath::new(&[self.path, parts].concat()).with("domain", domain)
    }

    /// Lists all pages, or up to `limit` items.
    pub(super) fn list(&self, client: &AdminClient, path: &ApiPath, limit: Option<u64>) -> CommandResult {
        show::list(client, path, limit, self.columns, self.empty)
    }

    /// Shows one item as a table.
    pub(super) fn show(&self, client: &AdminClient, path: ApiPath) -> CommandResult {
        let row = |item: &Value| TextTable::new(self.columns).lines(std::slice::from_ref(item));
        show::print(client, &client.send(ApiRequest::get(path))?, row)
    }

    /// Deletes an item; `done` is the message for people.
    pub(super) fn delete(client: &AdminClient, path: ApiPath, done: &str) -> CommandResult {
        show::print(client, &client.send(ApiRequest::delete(path))?, |_| format!("{done}\n"))
    }
}

impl RequestBody {
    pub(super) fn new() -> RequestBody {
        RequestBody::default()
    }

    /// Adds a member, if it has a value.
    pub(super) fn with(mut self, name: &str, value: Option<impl Into<Value>>) -> RequestBody {
        if let Some(value) = value {
            self.0.insert(name.to_owned(), value.into());
        }
        self
    }

    /// Adds several optional texts.
    pub(super) fn with_texts(self, texts: &[(&str, &Option<String>)]) -> RequestBody {
        texts.iter().fold(self, |body, (name, value)| body.with(name, value.as_deref()))
    }
}

impl From<RequestBody> for Value {
    fn from(RequestBody(members): RequestBody) -> Value {
        Value::Object(members)
    }
}
