//! What somebody sees who started a server by hand: where it listens, and what to try.

use std::io::{self, Write as _};

use super::parts::Parts;
use crate::config::{LogFormat, Settings, Store};

/// Tells where the server listens: to people on standard output, to machines in the log.
pub(super) fn show(settings: &Settings, parts: &Parts) {
    for (listener, address) in &parts.addresses {
        tracing::debug!(%listener, %address, "listening");
    }
    let store = store(settings);
    tracing::debug!(%store, "counters");
    if settings.observe.log_format == LogFormat::Json {
        for (listener, address) in &parts.addresses {
            tracing::info!(%listener, %address, "listening");
        }
        tracing::info!(%store, "counters");
    }
    // A reader that has gone away does not stop the server.
    let _ = write(parts, settings);
}

/// Ready means: all listeners answer.
pub(super) fn ready() {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "ready").and_then(|()| out.flush());
}

/// Where the counters are, without the password.
fn store(settings: &Settings) -> String {
    match &settings.store {
        Store::Memory => "memory".to_owned(),
        Store::Redis(redis) => redis.address.to_string(),
    }
}

fn write(parts: &Parts, settings: &Settings) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "tollgate {}", env!("CARGO_PKG_VERSION"))?;
    for (listener, address) in &parts.addresses {
        let what = match *listener {
            "grpc" => "Envoy's rate limit protocol, health, reflection",
            "http" => "checks as JSON, /openapi.json",
            "admin" => "the dashboard, /metrics, health",
            _ => "CL.THROTTLE for Redis clients",
        };
        writeln!(out, "  {listener:<6} {address:<22} {what}")?;
    }
    let whose = match settings.store {
        Store::Memory => "the counters, this server's own",
        Store::Redis(_) => "the counters, for all servers with this store",
    };
    writeln!(out, "  {:<6} {:<22} {whose}", "store", store(settings))?;
    let http = parts.addresses.iter().find(|(listener, _)| *listener == "http");
    if let Some((_, address)) = http.filter(|_| settings.rules.paths.is_empty()) {
        let body = r#"{"api_key": "k1", "endpoint": "POST /api/v1/orders"}"#;
        writeln!(
            out,
            "\nTry it four times: the fourth is refused.\n  curl -i http://{address}/v1/ratelimit/check -d '{body}'\n"
        )?;
    }
    out.flush()
}
