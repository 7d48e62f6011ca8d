//! The banner on standard output: addresses of the listeners, and a first request to try.

use std::io::{self, Write as _};
use std::net::SocketAddr;

use super::parts::Components;
use crate::config::{LogFormat, ServerSettings, StoreSettings};

/// Shows the addresses of the listeners: as text on standard output, and in the log.
pub(super) fn show(settings: &ServerSettings, components: &Components) {
    for (listener, address) in &components.addresses {
        tracing::debug!(%listener, %address, "listening");
    }
    let store = store(settings);
    tracing::debug!(%store, "counters");
    if settings.observe.log_format == LogFormat::Json {
        for (listener, address) in &components.addresses {
            tracing::info!(%listener, %address, "listening");
        }
        tracing::info!(%store, "counters");
    }
    // A closed standard output does not stop the server.
    let _ = write(components, settings);
}

/// Reports that all listeners accept connections.
pub(super) fn ready() {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "ready").and_then(|()| out.flush());
}

/// The address of the store, without its password.
fn store(settings: &ServerSettings) -> String {
    match &settings.store {
        StoreSettings::Memory => "memory".to_owned(),
        StoreSettings::Redis(redis) => redis.address.to_string(),
    }
}

/// The address of the admin listener as a browser takes it. A socket in the file system has none.
fn admin_url(address: &str, settings: &ServerSettings) -> String {
    let scheme = if settings.admin.listen.tls.is_some() { "https" } else { "http" };
    match address.parse::<SocketAddr>() {
        Ok(address) => format!("{scheme}://{address}/"),
        Err(_) => address.to_owned(),
    }
}

fn write(components: &Components, settings: &ServerSettings) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "tollgate {}", env!("CARGO_PKG_VERSION"))?;
    for (listener, address) in &components.addresses {
        let purpose = match *listener {
            "grpc" => "Envoy's rate limit protocol, health, reflection",
            "http" if cfg!(feature = "openapi") => "checks as JSON, /openapi.json",
            "http" => "checks as JSON",
            "admin" if tollgate_admin::has_dashboard() => "the dashboard, /metrics, health",
            "admin" => "/metrics, health; no dashboard in this binary",
            "gateway" => "requests to the upstreams",
            _ => "CL.THROTTLE for Redis clients",
        };
        let address = match *listener {
            "admin" => admin_url(address, settings),
            _ => address.clone(),
        };
        writeln!(out, "  {listener:<7} {address:<22} {purpose}")?;
    }
    let sharing = match settings.store {
        StoreSettings::Memory => "the counters, this server's own",
        StoreSettings::Redis(_) => "the counters, for all servers with this store",
    };
    writeln!(out, "  {:<7} {:<22} {sharing}", "store", store(settings))?;
    let http = components.addresses.iter().find(|(listener, _)| *listener == "http");
    if let Some((_, address)) = http.filter(|_| settings.rules.paths.is_empty()) {
        let body = r#"{"api_key": "k1", "endpoint": "POST /api/v1/orders"}"#;
        writeln!(
            out,
            "\nTry it four times: the fourth is refused.\n  curl -i http://{address}/v1/ratelimit/check -d '{body}'\n"
        )?;
    }
    out.flush()
}
