//! Connections: who we are, TLS, and what is asked of a server first.
//!
//! redis-rs encrypts, authenticates and parses. It sends nothing again by itself here, and waits for nothing: deadlines are
//! those of whoever asks.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, IntoConnectionInfo, Pipeline, ProtocolVersion,
    PushInfo, PushKind, RedisConnectionInfo, RedisError, TlsCertificates, Value, cmd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::address::Node;
use super::fault::failure;
use super::{RedisConfig, RedisConfigError};
use crate::sharded::Failure;

/// Makes connections.
pub(super) struct Connector {
    credentials: RedisConnectionInfo,
    tls: Option<TlsCertificates>,
}

/// A connection. Clones share it.
#[derive(Clone)]
pub(super) struct Link {
    node: Node,
    connection: MultiplexedConnection,
    gone: Arc<Notify>,
}

/// How long a connection may take, and then its first answers.
const CONNECTED_WITHIN: Duration = Duration::from_secs(1);

/// How long a connection may be silent before the system asks whether the other side is there.
const KEEPALIVE: Duration = Duration::from_secs(15);

impl Connector {
    pub(super) fn new(config: &RedisConfig) -> Result<Connector, RedisConfigError> {
        let mut credentials = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(user) = config.user.as_ref().or(config.address.user.as_ref()) {
            credentials = credentials.set_username(user);
        }
        if let Some(password) = config.password.as_ref().or(config.address.password.as_ref()) {
            credentials = credentials.set_password(password.reveal());
        }
        Ok(Connector { credentials, tls: tls(config)? })
    }

    /// A connection that tells when it is gone.
    pub(super) async fn link(&self, node: &Node) -> Result<Link, Failure> {
        let gone = Arc::new(Notify::new());
        let told = Arc::clone(&gone);
        // Only with RESP3 does redis-rs tell that a connection on which nobody waits has ended.
        let config = AsyncConnectionConfig::new().set_push_sender(move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                told.notify_one();
            }
            Ok::<(), ()>(())
        });
        let who = self.credentials.clone().set_protocol(ProtocolVersion::RESP3);
        let connection = self.connect(node, who, config).await.map_err(|error| failure(error, node))?;
        Ok(Link { node: node.clone(), connection, gone })
    }

    /// A connection to a sentinel. Most have no password; to one that asks, Redis's own is given.
    pub(super) async fn sentinel(&self, node: &Node) -> Result<Link, Failure> {
        let anybody = RedisConnectionInfo::default().set_skip_set_lib_name();
        let mut refused = None;
        for who in [anybody, self.credentials.clone()] {
            let connection = self.connect(node, who, AsyncConnectionConfig::new()).await;
            let connection = connection.map_err(|error| failure(error, node))?;
            let mut link = Link { node: node.clone(), connection, gone: Arc::default() };
            match link.ask(&cmd("PING"), CONNECTED_WITHIN).await {
                Ok(_) => return Ok(link),
                Err(failure @ Failure::Refused(_)) => refused = Some(failure),
                Err(failure) => return Err(failure),
            }
        }
        Err(refused.unwrap_or(Failure::Timeout))
    }

    async fn connect(
        &self,
        node: &Node,
        who: RedisConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, RedisError> {
        let address = match (node, &self.tls) {
            (Node::Unix(path), _) => ConnectionAddr::Unix(path.clone()),
            (Node::Tcp { host, port }, None) => ConnectionAddr::Tcp(host.clone(), *port),
            (Node::Tcp { host, port }, Some(_)) => encrypted(host.clone(), *port),
        };
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        let info = address.into_connection_info()?.set_redis_settings(who).set_tcp_settings(tcp);
        let config = config.set_connection_timeout(Some(CONNECTED_WITHIN)).set_response_timeout(None);
        let client = match &self.tls {
            Some(certificates) => Client::build_with_tls(info, certificates.clone())?,
            None => Client::open(info)?,
        };
        client.get_multiplexed_async_connection_with_config(&config).await
    }
}

impl Link {
    /// Where it leads.
    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    /// Resolves when the connection has ended.
    pub(super) async fn gone(&self) {
        self.gone.notified().await;
    }

    /// One command, one answer; an error that the server tells is a failure.
    pub(super) async fn ask(&mut self, command: &Cmd, within: Duration) -> Result<Value, Failure> {
        match timeout(within, self.connection.send_packed_command(command)).await {
            Ok(answer) => answer.and_then(Value::extract_error).map_err(|error| failure(error, &self.node)),
            Err(_) => Err(Failure::Timeout),
        }
    }

    /// One command, whose answer may be an error that the server tells.
    pub(super) async fn send(&mut self, command: &Cmd) -> Result<Value, Failure> {
        self.connection.send_packed_command(command).await.map_err(|error| failure(error, &self.node))
    }

    /// Several commands at once: an answer for each, some of which may be errors that the server tells.
    pub(super) async fn send_all(&mut self, commands: &Pipeline) -> Result<Vec<Value>, Failure> {
        let answers = self.connection.send_packed_commands(commands, 0, commands.len()).await;
        answers.map_err(|error| failure(error, &self.node))
    }

    /// The first answers of a server: the name that it has for the script, and what is not as it should be.
    pub(super) async fn prepare(&mut self, script: &str) -> Result<(String, Option<String>), Failure> {
        let first = async {
            let name = self.ask(cmd("SCRIPT").arg("LOAD").arg(script), CONNECTED_WITHIN).await?;
            Ok((text(&name).unwrap_or_default().to_owned(), self.warning(CONNECTED_WITHIN).await?))
        };
        first.await.map_err(|failure| match failure {
            Failure::Timeout => Failure::Unreachable(format!("{}: no answer in time", self.node)),
            other => other,
        })
    }

    /// What is not as it should be although it answers.
    pub(super) async fn warning(&mut self, within: Duration) -> Result<Option<String>, Failure> {
        match self.ask(cmd("INFO").arg("memory"), within).await {
            Ok(info) => Ok(text(&info).and_then(may_evict)),
            // Not every user may ask.
            Err(Failure::Refused(_)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}

/// The text of an answer, if it is one.
pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

fn may_evict(info: &str) -> Option<String> {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let bounded = field("maxmemory").is_some_and(|bytes| bytes != "0");
    let policy = field("maxmemory_policy").filter(|policy| bounded && *policy != "noeviction")?;
    Some(format!("maxmemory-policy is {policy}, which may evict counters: set maxmemory-policy noeviction"))
}

/// The host's name is that of its certificate.
fn encrypted(host: String, port: u16) -> ConnectionAddr {
    ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
}

/// The certificates, if they can be used.
fn tls(config: &RedisConfig) -> Result<Option<TlsCertificates>, RedisConfigError> {
    let wrong = |what: &str| Err(RedisConfigError(what.to_owned()));
    if !config.address.tls {
        return match (&config.ca, &config.client_cert) {
            (None, None) => Ok(None),
            _ => wrong("certificates are for TLS: write rediss:// (or rediss+cluster://, rediss+sentinel://)"),
        };
    }
    // One that the process chose before is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let is_empty = |pem: &[u8]| CertificateDer::pem_slice_iter(pem).next().is_none();
    if config.ca.as_deref().is_some_and(is_empty) {
        return wrong("the CA's file has no certificate: it is PEM, and begins with -----BEGIN CERTIFICATE-----");
    }
    if config.client_cert.as_ref().is_some_and(|client| is_empty(&client.certificate)) {
        return wrong("the client's file has no certificate: it is PEM, and begins with -----BEGIN CERTIFICATE-----");
    }
    let client_tls = config
        .client_cert
        .as_ref()
        .map(|client| ClientTlsConfig { client_cert: client.certificate.clone(), client_key: client.key.clone() });
    let certificates = TlsCertificates { client_tls, root_cert: config.ca.clone() };
    match Client::build_with_tls(encrypted("localhost".to_owned(), 1), certificates.clone()) {
        Ok(_) => Ok(Some(certificates)),
        Err(error) => Err(RedisConfigError(format!("the certificates or the key can't be used: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eviction_is_told_where_it_can_happen() {
        let info = |most: &str, policy: &str| format!("# Memory\r\nmaxmemory:{most}\r\nmaxmemory_policy:{policy}\r\n");
        assert_eq!(may_evict(&info("0", "allkeys-lru")), None);
        assert_eq!(may_evict(&info("1000", "noeviction")), None);
        assert!(may_evict(&info("1000", "volatile-ttl")).unwrap().contains("set maxmemory-policy noeviction"));
        assert_eq!(may_evict(""), None);
    }
}
