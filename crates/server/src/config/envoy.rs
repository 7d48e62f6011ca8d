//! envoyproxy/ratelimit's environment, so that a deployment can switch by changing the image.
//!
//! Tollgate's own settings override its variables, and its defaults apply where they are not set. Unsupported variables are
//! reported as warnings.

mod redis;
mod supported;
mod unsupported;

use std::path::{Path, PathBuf};

use tollgate_rules::problem::{TextFault, nearest, quoted};

use super::environment::Environment;
use super::origin::{ConfigProblems, Origin, SettingLayer, SettingValue};
use super::settings::ServerSettings;
use super::text;
use super::values::Values;

pub(super) use supported::{COMPOSED_VARIABLES, DIRECT_VARIABLES, DirectVariable};
pub(super) use unsupported::{UNSUPPORTED, UnsupportedVariables};

/// Prefixes of variables that are probably meant for envoyproxy/ratelimit.
const PREFIXES: [&str; 11] = [
    "REDIS_",
    "MEMCACHE_",
    "RUNTIME_",
    "GRPC_",
    "LIMIT_",
    "CONFIG_GRPC_",
    "XDS_CLIENT_",
    "TRACING_",
    "STATSD_",
    "PROMETHEUS_",
    "DEBUG_",
];

/// Reads the variables, and uses its defaults for the others. `stronger` has the values of Tollgate's own settings.
pub(super) fn read(environment: &Environment, stronger: &Values, problems: &mut ConfigProblems) -> SettingLayer {
    let reader = EnvoyReader { environment };
    let mut layer = SettingLayer::new();
    for DirectVariable { variable, setting, default, convert } in DIRECT_VARIABLES {
        layer.insert(setting, reader.direct(variable, default, *convert));
    }
    layer.insert("http", reader.address("HOST", "PORT", "8080"));
    layer.insert("admin", reader.address("DEBUG_HOST", "DEBUG_PORT", "6070"));
    layer.insert("grpc", reader.socket().unwrap_or_else(|| reader.address("GRPC_HOST", "GRPC_PORT", "8081")));
    layer.insert("rules", reader.rules());
    // Its files may have any name.
    layer.insert("every_file", value_from(&[], Ok("true".to_owned())));
    // Its clients get headers only if they are enabled.
    layer.insert("grpc_responses", value_from(&[], Ok("status".to_owned())));
    reader.tls(&mut layer, problems);
    reader.tracing(&mut layer, problems);
    // A `store` setting of Tollgate replaces its Redis, with the password.
    if stronger.get("store").is_none_or(|value| value.origin == Origin::Default) {
        reader.redis(&mut layer, problems);
    }
    warn_unsupported(environment, problems);
    layer
}

/// Warns about listeners that are open to every network because those of envoyproxy/ratelimit are.
pub(super) fn warn_open_listeners(settings: &ServerSettings, values: &Values, problems: &mut ConfigProblems) {
    let listeners =
        [("grpc", &settings.grpc.listen), ("http", &settings.http.listen), ("admin", &settings.admin.listen)];
    for (name, listen) in listeners {
        let origin = values.get(name).map(|value| &value.origin);
        if let Some(origin @ (Origin::Envoy(_) | Origin::EnvoyDefault)) = origin
            && listen.address.is_unspecified()
        {
            let message =
                format!("`{name}` listens on {}, open to every network, as envoyproxy/ratelimit does", listen.address);
            problems.warning(
                origin.place(),
                message,
                format!("set TOLLGATE_{} to restrict it", name.to_ascii_uppercase()),
            );
        }
    }
}

fn warn_unsupported(environment: &Environment, problems: &mut ConfigProblems) {
    for name in environment.names().filter(|name| is_set(environment, name)) {
        if let Some(UnsupportedVariables { reason, remedy, .. }) =
            UNSUPPORTED.iter().find(|unsupported| unsupported.names.contains(&name))
        {
            problems.warning(name, *reason, *remedy);
        } else if PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            && !all_variables().any(|variable| variable == name)
        {
            let message = format!("{} is not a known variable of envoyproxy/ratelimit", quoted(name));
            let remedy = nearest(name, all_variables())
                .map_or_else(|| "unset it".to_owned(), |near| format!("did you mean {near}?"));
            problems.warning(name, message, remedy);
        }
    }
}

/// All variables of envoyproxy/ratelimit.
fn all_variables() -> impl Iterator<Item = &'static str> {
    let unsupported = UNSUPPORTED.iter().flat_map(|unsupported| unsupported.names.iter().copied());
    DIRECT_VARIABLES
        .iter()
        .map(|direct| direct.variable)
        .chain(COMPOSED_VARIABLES.iter().map(|(name, ..)| *name))
        .chain(unsupported)
}

/// Whether a variable is set. Deployments often leave variables empty, so an empty one counts as not set.
fn is_set(environment: &Environment, name: &str) -> bool {
    environment.text(name).is_some_and(|text| text.map_or(true, |text| !text.trim().is_empty()))
}

struct EnvoyReader<'e> {
    environment: &'e Environment,
}

impl EnvoyReader<'_> {
    /// The value of a variable, if it is set.
    fn get(&self, name: &str) -> Option<Result<String, TextFault>> {
        let text = self.environment.text(name).filter(|_| is_set(self.environment, name))?;
        Some(text.map(|text| text.trim().to_owned()))
    }

    /// A setting with a variable of its own.
    fn direct(&self, variable: &str, default: &str, convert: fn(&str) -> Result<String, TextFault>) -> SettingValue {
        match self.get(variable) {
            Some(text) => value_from(&[variable], text.and_then(|text| convert(&text))),
            None => SettingValue { text: convert(default), origin: Origin::EnvoyDefault },
        }
    }

    /// An address of two variables.
    fn address(&self, host: &'static str, port: &'static str, default_port: &str) -> SettingValue {
        let set: Vec<&str> = [host, port].into_iter().filter(|name| is_set(self.environment, name)).collect();
        let text = || {
            let host = self.get(host).unwrap_or_else(|| Ok("0.0.0.0".to_owned()))?;
            let port = self.get(port).unwrap_or_else(|| Ok(default_port.to_owned()))?;
            Ok(if host.contains(':') && !host.starts_with('[') {
                format!("[{host}]:{port}")
            } else {
                format!("{host}:{port}")
            })
        };
        value_from(&set, text())
    }

    /// The socket, which takes precedence over an address.
    fn socket(&self) -> Option<SettingValue> {
        let text = self.get("GRPC_UDS")?;
        Some(value_from(&["GRPC_UDS"], text.map(|path| format!("unix:{path}"))))
    }

    /// The directory of its rule files.
    fn rules(&self) -> SettingValue {
        const PARTS: [(&str, &str); 3] = [
            ("RUNTIME_ROOT", "/srv/runtime_data/current"),
            ("RUNTIME_SUBDIRECTORY", ""),
            ("RUNTIME_APPDIRECTORY", "config"),
        ];
        let set: Vec<&str> =
            PARTS.iter().map(|(name, _)| *name).filter(|name| is_set(self.environment, name)).collect();
        let mut path = PathBuf::new();
        for (name, default) in PARTS {
            match self.get(name).unwrap_or_else(|| Ok(default.to_owned())) {
                // A part with a leading slash is appended like the others.
                Ok(part) if path.as_os_str().is_empty() => path.push(part),
                Ok(part) => path.push(Path::new(part.trim_start_matches('/'))),
                Err(fault) => return value_from(&set, Err(fault)),
            }
        }
        // An empty part leaves a trailing slash.
        let text: PathBuf = path.components().collect();
        value_from(&set, Ok(text.to_string_lossy().into_owned()))
    }

    /// Certificates take effect only with TLS enabled, and are then required.
    fn tls(&self, layer: &mut SettingLayer, problems: &mut ConfigProblems) {
        const SWITCH: &str = "GRPC_SERVER_USE_TLS";
        const PARTS: [(&str, &str, bool); 4] = [
            ("GRPC_SERVER_TLS_CERT", "grpc_tls_cert", true),
            ("GRPC_SERVER_TLS_KEY", "grpc_tls_key", true),
            ("GRPC_CLIENT_TLS_CACERT", "grpc_tls_client_ca", false),
            ("GRPC_CLIENT_TLS_SAN", "grpc_tls_client_sans", false),
        ];
        let switch =
            self.get(SWITCH).unwrap_or_else(|| Ok("false".to_owned())).and_then(|text| supported::go_bool(&text));
        for (variable, setting, needed) in PARTS {
            match (&switch, self.get(variable)) {
                (Err(fault), _) => {
                    layer.insert(setting, value_from(&[SWITCH], Err(fault.clone())));
                }
                (Ok(true), Some(text)) => {
                    layer.insert(setting, value_from(&[variable], text));
                }
                (Ok(true), None) if needed => {
                    let fault = TextFault::new(
                        format!("{SWITCH} is true and {variable} is not set"),
                        format!("set {variable}"),
                    );
                    layer.insert(setting, value_from(&[SWITCH], Err(fault)));
                }
                (Ok(false), Some(_)) => {
                    problems.warning(
                        variable,
                        format!("it has no effect while {SWITCH} is not true"),
                        "set that, or unset this",
                    );
                }
                (Ok(_), None) => {}
            }
        }
    }

    /// Traces go to the endpoint of OpenTelemetry's variables.
    fn tracing(&self, layer: &mut SettingLayer, problems: &mut ConfigProblems) {
        const SWITCH: &str = "TRACING_ENABLED";
        const PROTOCOL: &str = "TRACING_EXPORTER_PROTOCOL";
        const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
        match self.get(SWITCH).map(|text| text.and_then(|text| supported::go_bool(&text))) {
            None | Some(Ok(false)) => return,
            Some(Err(fault)) => {
                layer.insert("otlp_endpoint", value_from(&[SWITCH], Err(fault)));
                return;
            }
            Some(Ok(true)) => {}
        }
        let endpoint = ENDPOINTS.iter().find_map(|name| self.get(name).map(|text| (*name, text)));
        let is_grpc = matches!(self.get(PROTOCOL), Some(Ok(protocol)) if protocol == "grpc");
        if !is_grpc {
            let (message, remedy) = (
                "traces are sent over gRPC, not over HTTP",
                "set TRACING_EXPORTER_PROTOCOL to grpc and OTEL_EXPORTER_OTLP_ENDPOINT to the collector's gRPC port, often 4317",
            );
            problems.warning(if is_set(self.environment, PROTOCOL) { PROTOCOL } else { SWITCH }, message, remedy);
        }
        let endpoint = match endpoint {
            Some((name, text)) => {
                let with_scheme = |text: String| if text.contains("://") { text } else { format!("http://{text}") };
                value_from(&[name], text.map(with_scheme))
            }
            None => value_from(&[SWITCH], Ok("http://localhost:4317".to_owned())),
        };
        layer.insert("otlp_endpoint", endpoint);
    }
}

/// A value with the variables of its origin.
fn value_from(variables: &[&str], text: Result<String, TextFault>) -> SettingValue {
    let origin = if variables.is_empty() { Origin::EnvoyDefault } else { Origin::Envoy(variables.join(" and ")) };
    SettingValue { text, origin }
}
