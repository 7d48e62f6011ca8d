//! envoyproxy/ratelimit's environment, read as its users have it, so that a deployment switches by changing the image.
//!
//! Its variables are weaker than every setting of Tollgate's own, and its defaults hold where they are not set. What means
//! nothing here is named in a warning, never ignored in silence.

mod meaning;
mod redis;
mod unneeded;

use std::path::{Path, PathBuf};

use tollgate_rules::problem::{Fault, nearest, quoted};

use super::environment::Environment;
use super::origin::{Given, Layer, Origin, Problems};
use super::settings::Settings;
use super::text;
use super::values::Values;

pub(super) use meaning::{COMPOSED, DIRECT, Direct};
pub(super) use unneeded::{UNNEEDED, Unneeded};

/// How variables begin that are probably meant for envoyproxy/ratelimit.
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

/// Reads what is set, and takes its defaults for the rest. `stronger` is what was said in Tollgate's own words.
pub(super) fn read(environment: &Environment, stronger: &Values, problems: &mut Problems) -> Layer {
    let reader = Reader { environment };
    let mut layer = Layer::new();
    for Direct { variable, setting, default, convert } in DIRECT {
        layer.insert(setting, reader.direct(variable, default, *convert));
    }
    layer.insert("http", reader.address("HOST", "PORT", "8080"));
    layer.insert("admin", reader.address("DEBUG_HOST", "DEBUG_PORT", "6070"));
    layer.insert("grpc", reader.socket().unwrap_or_else(|| reader.address("GRPC_HOST", "GRPC_PORT", "8081")));
    layer.insert("rules", reader.rules());
    // Its files may have any name.
    layer.insert("every_file", given(&[], Ok("true".to_owned())));
    reader.tls(&mut layer, problems);
    reader.tracing(&mut layer, problems);
    // Who says otherwise where counters are does not mean its Redis, nor the password for it.
    if stronger.given("store").is_none_or(|given| given.origin == Origin::Default) {
        reader.redis(&mut layer, problems);
    }
    tell_of_unneeded(environment, problems);
    layer
}

/// Says which listeners are open to every network because envoyproxy/ratelimit's are.
pub(super) fn tell_of_open_listeners(settings: &Settings, values: &Values, problems: &mut Problems) {
    let listeners =
        [("grpc", &settings.grpc.listen), ("http", &settings.http.listen), ("admin", &settings.admin.listen)];
    for (name, listen) in listeners {
        let origin = values.given(name).map(|given| &given.origin);
        if let Some(origin @ (Origin::Envoy(_) | Origin::EnvoyDefault)) = origin
            && listen.address.is_everywhere()
        {
            let message =
                format!("`{name}` listens on {}, for every network, as envoyproxy/ratelimit does", listen.address);
            problems.warning(
                origin.place(),
                message,
                format!("set TOLLGATE_{} to keep it to fewer", name.to_ascii_uppercase()),
            );
        }
    }
}

fn tell_of_unneeded(environment: &Environment, problems: &mut Problems) {
    for name in environment.names().filter(|name| is_set(environment, name)) {
        if let Some(Unneeded { why, instead, .. }) = UNNEEDED.iter().find(|unneeded| unneeded.names.contains(&name)) {
            problems.warning(name, *why, *instead);
        } else if PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !known().any(|known| known == name) {
            let message = format!("{} is not a variable of envoyproxy/ratelimit's that is known here", quoted(name));
            let remedy =
                nearest(name, known()).map_or_else(|| "unset it".to_owned(), |near| format!("did you mean {near}?"));
            problems.warning(name, message, remedy);
        }
    }
}

/// All variables of envoyproxy/ratelimit.
fn known() -> impl Iterator<Item = &'static str> {
    let unneeded = UNNEEDED.iter().flat_map(|unneeded| unneeded.names.iter().copied());
    DIRECT.iter().map(|direct| direct.variable).chain(COMPOSED.iter().map(|(name, ..)| *name)).chain(unneeded)
}

/// An empty variable is one that is not set: deployments have such for what they leave as it is.
fn is_set(environment: &Environment, name: &str) -> bool {
    environment.text(name).is_some_and(|text| text.map_or(true, |text| !text.trim().is_empty()))
}

struct Reader<'e> {
    environment: &'e Environment,
}

impl Reader<'_> {
    /// The value of a variable that is set.
    fn get(&self, name: &str) -> Option<Result<String, Fault>> {
        let text = self.environment.text(name).filter(|_| is_set(self.environment, name))?;
        Some(text.map(|text| text.trim().to_owned()))
    }

    /// A setting that has a variable for itself.
    fn direct(&self, variable: &str, default: &str, convert: fn(&str) -> Result<String, Fault>) -> Given {
        match self.get(variable) {
            Some(text) => given(&[variable], text.and_then(|text| convert(&text))),
            None => Given { text: convert(default), origin: Origin::EnvoyDefault },
        }
    }

    /// Two variables that make one address.
    fn address(&self, host: &'static str, port: &'static str, default_port: &str) -> Given {
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
        given(&set, text())
    }

    /// The socket that it prefers to an address.
    fn socket(&self) -> Option<Given> {
        let text = self.get("GRPC_UDS")?;
        Some(given(&["GRPC_UDS"], text.map(|path| format!("unix:{path}"))))
    }

    /// The directory with its rule files.
    fn rules(&self) -> Given {
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
                // A part that begins with a slash continues the path there, and does not replace it.
                Ok(part) if path.as_os_str().is_empty() => path.push(part),
                Ok(part) => path.push(Path::new(part.trim_start_matches('/'))),
                Err(fault) => return given(&set, Err(fault)),
            }
        }
        // A part that is empty leaves a slash at the end.
        let text: PathBuf = path.components().collect();
        given(&set, Ok(text.to_string_lossy().into_owned()))
    }

    /// Certificates count only if TLS is switched on, and must be there if it is.
    fn tls(&self, layer: &mut Layer, problems: &mut Problems) {
        const SWITCH: &str = "GRPC_SERVER_USE_TLS";
        const PARTS: [(&str, &str, bool); 4] = [
            ("GRPC_SERVER_TLS_CERT", "grpc_tls_cert", true),
            ("GRPC_SERVER_TLS_KEY", "grpc_tls_key", true),
            ("GRPC_CLIENT_TLS_CACERT", "grpc_tls_client_ca", false),
            ("GRPC_CLIENT_TLS_SAN", "grpc_tls_client_sans", false),
        ];
        let switch =
            self.get(SWITCH).unwrap_or_else(|| Ok("false".to_owned())).and_then(|text| meaning::go_bool(&text));
        for (variable, setting, needed) in PARTS {
            match (&switch, self.get(variable)) {
                (Err(fault), _) => {
                    layer.insert(setting, given(&[SWITCH], Err(fault.clone())));
                }
                (Ok(true), Some(text)) => {
                    layer.insert(setting, given(&[variable], text));
                }
                (Ok(true), None) if needed => {
                    let fault =
                        Fault::new(format!("{SWITCH} is true and {variable} is not set"), format!("set {variable}"));
                    layer.insert(setting, given(&[SWITCH], Err(fault)));
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

    /// Traces go where OpenTelemetry's own variables say.
    fn tracing(&self, layer: &mut Layer, problems: &mut Problems) {
        const SWITCH: &str = "TRACING_ENABLED";
        const PROTOCOL: &str = "TRACING_EXPORTER_PROTOCOL";
        const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
        match self.get(SWITCH).map(|text| text.and_then(|text| meaning::go_bool(&text))) {
            None | Some(Ok(false)) => return,
            Some(Err(fault)) => {
                layer.insert("otlp_endpoint", given(&[SWITCH], Err(fault)));
                return;
            }
            Some(Ok(true)) => {}
        }
        let endpoint = ENDPOINTS.iter().find_map(|name| self.get(name).map(|text| (*name, text)));
        let is_grpc = matches!(self.get(PROTOCOL), Some(Ok(protocol)) if protocol == "grpc");
        if !is_grpc {
            let (message, remedy) = (
                "traces are sent over gRPC, and not over HTTP",
                "set TRACING_EXPORTER_PROTOCOL to grpc and OTEL_EXPORTER_OTLP_ENDPOINT to the collector's gRPC port, often 4317",
            );
            problems.warning(if is_set(self.environment, PROTOCOL) { PROTOCOL } else { SWITCH }, message, remedy);
        }
        let endpoint = match endpoint {
            Some((name, text)) => {
                let with_scheme = |text: String| if text.contains("://") { text } else { format!("http://{text}") };
                given(&[name], text.map(with_scheme))
            }
            None => given(&[SWITCH], Ok("http://localhost:4317".to_owned())),
        };
        layer.insert("otlp_endpoint", endpoint);
    }
}

/// A value and the variables that it came from.
fn given(variables: &[&str], text: Result<String, Fault>) -> Given {
    let origin = if variables.is_empty() { Origin::EnvoyDefault } else { Origin::Envoy(variables.join(" and ")) };
    Given { text, origin }
}
