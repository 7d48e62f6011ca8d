//! Finds the servers of upstreams while the gateway runs, and checks their health.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{Upstream, health};
use crate::model::{ServerAddress, ServerSource};

/// How often connections that were not used for too long are closed.
const CLOSE_INTERVAL: Duration = Duration::from_secs(1);

/// The background work of an upstream. It ends when the upstream is not used any more.
pub(crate) async fn run(upstream: Weak<Upstream>) {
    let parts = async {
        tokio::join!(find_servers(upstream.clone()), health::check_servers(upstream.clone()), close_idle(upstream));
    };
    parts.await;
}

async fn find_servers(upstream: Weak<Upstream>) {
    loop {
        let pause = {
            let Some(upstream) = upstream.upgrade() else { return };
            match &upstream.config.servers {
                ServerSource::Static(_) => return,
                ServerSource::Dns { host, port, every } => {
                    update(&upstream, look_up(host, *port).await);
                    *every
                }
                ServerSource::File { path, every } => {
                    update(&upstream, read_file(path).await);
                    *every
                }
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Uses what was found. The last servers stay in use while nothing is.
fn update(upstream: &Arc<Upstream>, found: Result<Vec<ServerAddress>, String>) {
    let name = &upstream.config.name;
    match found {
        Ok(addresses) if addresses.is_empty() => {
            tracing::warn!(upstream = name, "no servers were found: the last ones stay in use");
        }
        Ok(addresses) => {
            let before = upstream.servers();
            let is_same = before.len() == addresses.len()
                && addresses.iter().all(|address| before.iter().any(|server| server.address() == address));
            if !is_same {
                tracing::info!(upstream = name, servers = addresses.len(), "servers have changed");
                upstream.set_servers(addresses);
            }
        }
        Err(error) => tracing::warn!(upstream = name, error, "servers could not be found: the last ones stay in use"),
    }
}

async fn look_up(host: &str, port: u16) -> Result<Vec<ServerAddress>, String> {
    let found = tokio::net::lookup_host((host, port)).await.map_err(|error| format!("{host}: {error}"))?;
    let mut addresses: Vec<SocketAddr> = found.collect();
    addresses.sort();
    addresses.dedup();
    Ok(addresses.into_iter().map(ServerAddress::Socket).collect())
}

async fn read_file(path: &Path) -> Result<Vec<ServerAddress>, String> {
    let text = tokio::task::spawn_blocking({
        let path = path.to_owned();
        move || std::fs::read_to_string(path)
    });
    let text = text.await.map_err(|error| error.to_string())?;
    let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.parse().map_err(|_| format!("{}: `{line}` is not an address", path.display()))).collect()
}

async fn close_idle(upstream: Weak<Upstream>) {
    loop {
        tokio::time::sleep(CLOSE_INTERVAL).await;
        let Some(upstream) = upstream.upgrade() else { return };
        for server in upstream.servers().iter() {
            server.pool.close_idle();
        }
    }
}

impl std::str::FromStr for ServerAddress {
    type Err = ();

    /// `10.0.0.1:80`, `[2001:db8::1]:80`, `host:80` or `unix:/path`.
    fn from_str(text: &str) -> Result<ServerAddress, ()> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(ServerAddress::Unix(path.into()));
        }
        if let Ok(address) = text.parse() {
            return Ok(ServerAddress::Socket(address));
        }
        let (host, port) = text.rsplit_once(':').ok_or(())?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_name) {
            return Err(());
        }
        Ok(ServerAddress::Name { host: host.to_ascii_lowercase(), port: port.parse().map_err(|_| ())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_sockets_names_or_paths() {
        let name = |host: &str, port| ServerAddress::Name { host: host.into(), port };
        assert_eq!("127.0.0.1:80".parse(), Ok(ServerAddress::Socket(([127, 0, 0, 1], 80).into())));
        assert_eq!("[::1]:80".parse(), Ok(ServerAddress::Socket("[::1]:80".parse().unwrap())));
        assert_eq!("Orders.svc:8080".parse(), Ok(name("orders.svc", 8080)));
        assert_eq!("unix:/run/a.sock".parse(), Ok(ServerAddress::Unix("/run/a.sock".into())));
        for bad in ["", "host", "host:", "host:x", ":80", "ho st:80", "http://host:80", "unix:", "host:70000"] {
            assert_eq!(bad.parse::<ServerAddress>(), Err(()), "{bad}");
        }
    }
}
