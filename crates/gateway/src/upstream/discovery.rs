//! Finds the servers of upstreams while the gateway runs, checks their health, and watches their certificates.

use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{Upstream, health};
use crate::model::{ServerAddress, ServerSource};

/// How often connections that were not used for too long are closed.
const CLOSE_INTERVAL: Duration = Duration::from_secs(1);
/// How often files of certificates are read.
const CERTIFICATES_INTERVAL: Duration = Duration::from_secs(3);
/// The most servers in a file, and its size.
const MAX_SERVERS: usize = 1_000;
const MAX_FILE_BYTES: u64 = 256 * 1024;

/// The background work of an upstream. It ends when the upstream is not used any more.
pub(crate) async fn run(upstream: Weak<Upstream>) {
    let parts = async {
        tokio::join!(
            find_servers(upstream.clone()),
            health::check_servers(upstream.clone()),
            watch_certificates(upstream.clone()),
            close_idle(upstream)
        );
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
    addresses.truncate(MAX_SERVERS);
    Ok(addresses.into_iter().map(ServerAddress::Socket).collect())
}

async fn read_file(path: &Path) -> Result<Vec<ServerAddress>, String> {
    let at = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = tokio::task::spawn_blocking({
        let path = path.to_owned();
        move || {
            let mut text = String::new();
            File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map(|_| text)
        }
    });
    let text = text.await.map_err(|error| at(&error))?.map_err(|error| at(&error))?;
    let mut addresses = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let address = line.parse().map_err(|()| at(&format!("`{line}` is not an address")))?;
        if !addresses.contains(&address) {
            addresses.push(address);
        }
        if addresses.len() > MAX_SERVERS {
            return Err(at(&format!("there are more than {MAX_SERVERS} servers")));
        }
    }
    match text.len() as u64 > MAX_FILE_BYTES {
        true => Err(at(&format!("the file is larger than {} KiB", MAX_FILE_BYTES >> 10))),
        false => Ok(addresses),
    }
}

async fn watch_certificates(upstream: Weak<Upstream>) {
    loop {
        tokio::time::sleep(CERTIFICATES_INTERVAL).await;
        let Some(upstream) = upstream.upgrade() else { return };
        let Some(tls) = upstream.client_tls().cloned() else { return };
        let name = &upstream.config.name;
        match tokio::task::spawn_blocking(move || tls.reload_if_changed()).await {
            Ok(Ok(true)) => tracing::info!(upstream = name, "certificates renewed"),
            Ok(Err(error)) => {
                tracing::warn!(upstream = name, error, "new certificates can't be used: keeping the last good ones");
            }
            Ok(Ok(false)) | Err(_) => {}
        }
    }
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

    #[tokio::test]
    async fn a_name_has_all_its_addresses() {
        let found = look_up("localhost", 8080).await.unwrap();
        assert!(found.contains(&"127.0.0.1:8080".parse().unwrap()), "{found:?}");
        let error = look_up("nobody.invalid", 80).await.unwrap_err();
        assert!(error.starts_with("nobody.invalid: "), "{error}");
    }

    #[tokio::test]
    async fn a_file_has_an_address_in_each_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = async |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            read_file(file.path()).await
        };
        let found = read("# orders\n\n 10.0.0.1:80 \nunix:/run/a.sock\n10.0.0.1:80\n").await;
        assert_eq!(found, Ok(vec!["10.0.0.1:80".parse().unwrap(), ServerAddress::Unix("/run/a.sock".into())]));
        assert_eq!(read("").await, Ok(vec![]));
        let many: String = (0..=MAX_SERVERS).map(|port| format!("10.0.0.1:{}\n", port + 1)).collect();
        for (bad, why) in [("10.0.0.1\n", "`10.0.0.1` is not an address"), (&many, "there are more than 1000 servers")]
        {
            let error = read(bad).await.unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let long = read(&"#".repeat(300 << 10)).await.unwrap_err();
        assert!(long.ends_with("the file is larger than 256 KiB"), "{long}");
        assert!(read_file(Path::new("/nowhere/servers")).await.is_err());
    }

    #[tokio::test]
    async fn servers_that_stay_keep_their_state_and_nothing_found_changes_nothing() {
        let text = "listen: 127.0.0.1:0\nupstreams: {app: {servers: {dns: \"app:80\"}}}\n\
                    routes:\n  - {name: all, match: \"/*\", upstream: app}\n";
        let read = crate::model::GatewayConfig::read("gateway.yaml", text, Path::new("")).unwrap();
        let upstream = Arc::new(Upstream::new(read.config.upstreams[0].clone()).unwrap());
        let addresses = |ports: &[u16]| -> Vec<ServerAddress> {
            ports.iter().map(|port| ServerAddress::Socket(([127, 0, 0, 1], *port).into())).collect()
        };
        let used =
            || -> Vec<ServerAddress> { upstream.servers().iter().map(|server| server.address().clone()).collect() };
        update(&upstream, Ok(addresses(&[1, 2])));
        let second = upstream.servers()[1].clone();
        second.set_healthy(false);
        update(&upstream, Ok(addresses(&[2, 3])));
        assert_eq!(used(), addresses(&[2, 3]));
        assert!(Arc::ptr_eq(&upstream.servers()[0], &second) && !upstream.servers()[0].is_healthy());
        update(&upstream, Ok(Vec::new()));
        update(&upstream, Err("it can't be read".to_owned()));
        assert_eq!(used(), addresses(&[2, 3]));
    }
}
