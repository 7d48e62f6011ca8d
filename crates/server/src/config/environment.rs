//! The environment variables of the process.

use std::collections::BTreeMap;
use std::ffi::OsString;

use tollgate_rules::problem::{TextFault, nearest, quoted};

use super::origin::{ConfigProblems, Origin, SettingLayer, SettingValue};
use super::table::{PREFIX, Setting, SettingScope, table};
use tollgate_cli::ENVIRONMENT_VARIABLES;

/// Environment variables by name.
#[derive(Debug)]
pub(super) struct Environment(BTreeMap<String, OsString>);

impl Environment {
    /// Ignores the variables that Kubernetes adds for a Service called `tollgate` or `redis`, and those of Tollgate's other commands,
    /// which may run in the same shell.
    pub(super) fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Environment {
        let named = variables.into_iter().map(|(name, value)| (name.to_string_lossy().into_owned(), value));
        let is_ignored = |name: &str, value: &OsString| {
            is_service_link(name, &value.to_string_lossy()) || ENVIRONMENT_VARIABLES.contains(&name)
        };
        Environment(named.filter(|(name, value)| !is_ignored(name, value)).collect())
    }

    /// The settings in `TOLLGATE_` variables. An unknown one is an error: it would have no effect.
    pub(super) fn settings(&self, problems: &mut ConfigProblems) -> SettingLayer {
        let mut layer = SettingLayer::new();
        for name in self.names().filter(|name| name.starts_with(PREFIX)) {
            match variables().find(|setting| setting.variable() == name) {
                Some(setting) => {
                    let text = self.text(name).unwrap_or_else(|| Ok(String::new()));
                    layer.insert(&setting.name, SettingValue { text, origin: Origin::Environment(name.to_owned()) });
                }
                None => problems.error(name, unknown_variable(name)),
            }
        }
        layer
    }

    /// The names of all variables.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The value of a variable, if it is set.
    pub(super) fn text(&self, name: &str) -> Option<Result<String, TextFault>> {
        let value = self.0.get(name)?;
        let not_text = || TextFault::new(format!("the value of {name} is not UTF-8"), "use UTF-8 text");
        Some(value.to_str().map(str::to_owned).ok_or_else(not_text))
    }
}

fn variables() -> impl Iterator<Item = &'static Setting> {
    table().iter().filter(|setting| setting.scope != SettingScope::Flag)
}

fn unknown_variable(name: &str) -> TextFault {
    let names: Vec<String> = variables().map(Setting::variable).collect();
    // Without the common prefix, which would make all names similar.
    let similar = name
        .strip_prefix(PREFIX)
        .and_then(|rest| nearest(rest, names.iter().filter_map(|variable| variable.strip_prefix(PREFIX))));
    let message = format!("{} is not a setting", quoted(name));
    match similar {
        Some(near) => TextFault::new(message, format!("did you mean {PREFIX}{near}?")),
        None => TextFault::new(message, "unset it; `tollgate serve --help` lists the settings"),
    }
}

/// Whether Kubernetes sets this variable for a Service: `X_SERVICE_HOST`, `X_SERVICE_PORT_GRPC`, `X_PORT=tcp://…`,
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
