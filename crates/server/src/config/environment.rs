//! The environment, as it was given to the process.

use std::collections::BTreeMap;
use std::ffi::OsString;

use tollgate_rules::problem::{Fault, nearest, quoted};

use super::origin::{Given, Layer, Origin, Problems};
use super::table::{PREFIX, Said, Setting, table};
use crate::cli::VARIABLES;

/// Variables by name.
#[derive(Debug)]
pub(super) struct Environment(BTreeMap<String, OsString>);

impl Environment {
    /// Without what Kubernetes adds by itself: a Service called `tollgate` or `redis` gives every pod variables that begin
    /// like settings. And without what other commands are told: they may be run in the same shell.
    pub(super) fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Environment {
        let named = variables.into_iter().map(|(name, value)| (name.to_string_lossy().into_owned(), value));
        let is_other =
            |name: &str, value: &OsString| is_service_link(name, &value.to_string_lossy()) || VARIABLES.contains(&name);
        Environment(named.filter(|(name, value)| !is_other(name, value)).collect())
    }

    /// Settings in variables of Tollgate's own. An unknown one is an error: it would otherwise be said in vain.
    pub(super) fn own(&self, problems: &mut Problems) -> Layer {
        let mut layer = Layer::new();
        for name in self.names().filter(|name| name.starts_with(PREFIX)) {
            match settings().find(|setting| setting.variable() == name) {
                Some(setting) => {
                    let text = self.text(name).unwrap_or_else(|| Ok(String::new()));
                    layer.insert(&setting.name, Given { text, origin: Origin::Environment(name.to_owned()) });
                }
                None => problems.error(name, unknown(name)),
            }
        }
        layer
    }

    /// The names of all variables.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The value of a variable, if it is set.
    pub(super) fn text(&self, name: &str) -> Option<Result<String, Fault>> {
        let value = self.0.get(name)?;
        let not_text = || Fault::new(format!("the value of {name} is not UTF-8"), "write a text");
        Some(value.to_str().map(str::to_owned).ok_or_else(not_text))
    }
}

fn settings() -> impl Iterator<Item = &'static Setting> {
    table().iter().filter(|setting| setting.said != Said::Flag)
}

fn unknown(name: &str) -> Fault {
    let variables: Vec<String> = settings().map(Setting::variable).collect();
    // The part that all have in common would make everything seem near.
    let meant = name
        .strip_prefix(PREFIX)
        .and_then(|rest| nearest(rest, variables.iter().filter_map(|variable| variable.strip_prefix(PREFIX))));
    let message = format!("{} is not a setting", quoted(name));
    match meant {
        Some(near) => Fault::new(message, format!("did you mean {PREFIX}{near}?")),
        None => Fault::new(message, "unset it; `tollgate serve --help` lists the settings"),
    }
}

/// Whether Kubernetes made this variable for a Service: `X_SERVICE_HOST`, `X_SERVICE_PORT_GRPC`, `X_PORT=tcp://…`,
/// `X_PORT_8081_TCP_ADDR`.
fn is_service_link(name: &str, value: &str) -> bool {
    let is_url = || ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || (name.ends_with("_PORT") && is_url())
        || name.split_once("_PORT_").is_some_and(|(_, rest)| is_port_of_service(rest))
}

/// `8081_TCP`, `8081_TCP_ADDR`
fn is_port_of_service(text: &str) -> bool {
    let mut parts = text.split('_');
    let port = parts.next().is_some_and(|port| port.parse::<u16>().is_ok());
    let protocol = parts.next().is_some_and(|protocol| ["TCP", "UDP", "SCTP"].contains(&protocol));
    let what = parts.next().is_none_or(|what| ["PROTO", "ADDR", "PORT"].contains(&what));
    port && protocol && what && parts.next().is_none()
}
