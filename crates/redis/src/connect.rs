//! Connections: authentication, TLS, and the first commands.
//!
//! redis-rs encrypts, authenticates and parses. It retries nothing here and has no timeouts: the callers' deadlines
//! apply.

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

use super::error_reply::failure;
use super::{RedisConfig, RedisConfigError};
use tollgate_redis_address::Node;
use tollgate_store::sharded::Failure;

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
    closed_signal: Arc<Notify>,
}

/// The timeout for connecting, and then for the first answers.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a connection may be idle before the system sends a keep-alive probe.
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

    /// A connection that signals when it is closed.
    pub(super) async fn link(&self, node: &Node) -> Result<Link, Failure> {
        let closed_signal = Arc::new(Notify::new());
        let closed = Arc::clone(&closed_signal);
        // Only with RESP3 does redis-rs signal the end of an idle connection.
        let config = AsyncConnectionConfig::new().set_push_sender(move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                closed.notify_one();
            }
            Ok::<(), ()>(())
        });
        let credentials = self.credentials.clone().set_protocol(ProtocolVersion::RESP3);
        let connection = self.connect(node, credentials, config).await.map_err(|error| failure(error, node))?;
        Ok(Link { node: node.clone(), connection, closed_signal })
    }

    /// A connection to a sentinel. Most sentinels have no password; if one requires it, Redis's own credentials are
    /// used.
    pub(super) async fn sentinel(&self, node: &Node) -> Result<Link, Failure> {
        let anonymous = RedisConnectionInfo::default().set_skip_set_lib_name();
        let mut refused = None;
        for credentials in [anonymous, self.credentials.clone()] {
            let connection = self.connect(node, credentials, AsyncConnectionConfig::new()).await;
            let connection = connection.map_err(|error| failure(error, node))?;
            let mut link = Link { node: node.clone(), connection, closed_signal: Arc::default() };
            match link.call(&cmd("PING"), CONNECT_TIMEOUT).await {
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
        credentials: RedisConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, RedisError> {
        let address = match (node, &self.tls) {
            (Node::Unix(path), _) => ConnectionAddr::Unix(path.clone()),
            (Node::Tcp { host, port }, None) => ConnectionAddr::Tcp(host.clone(), *port),
            (Node::Tcp { host, port }, Some(_)) => encrypted(host.clone(), *port),
        };
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        let info = address.into_connection_info()?.set_redis_settings(credentials).set_tcp_settings(tcp);
        let config = config.set_connection_timeout(Some(CONNECT_TIMEOUT)).set_response_timeout(None);
        let client = match &self.tls {
            Some(certificates) => Client::build_with_tls(info, certificates.clone())?,
            None => Client::open(info)?,
        };
        client.get_multiplexed_async_connection_with_config(&config).await
    }
}

impl Link {
    /// The node at the other end.
    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    /// Waits until the connection is closed.
    pub(super) async fn disconnected(&self) {
        self.closed_signal.notified().await;
    }

    /// Sends one command. An error reply is a failure.
    pub(super) async fn call(&mut self, command: &Cmd, timeout: Duration) -> Result<Value, Failure> {
        match tokio::time::timeout(timeout, self.connection.send_packed_command(command)).await {
            Ok(answer) => answer.and_then(Value::extract_error).map_err(|error| failure(error, &self.node)),
            Err(_) => Err(Failure::Timeout),
        }
    }

    /// Sends one command. The answer may be an error reply.
    pub(super) async fn send(&mut self, command: &Cmd) -> Result<Value, Failure> {
        self.connection.send_packed_command(command).await.map_err(|error| failure(error, &self.node))
    }

    /// Sends several commands at once. There is an answer for each, which may be an error reply.
    pub(super) async fn send_all(&mut self, commands: &Pipeline) -> Result<Vec<Value>, Failure> {
        let answers = self.connection.send_packed_commands(commands, 0, commands.len()).await;
        answers.map_err(|error| failure(error, &self.node))
    }

    /// The first commands: loads the script and returns its name on the server, and a warning if there is one.
    pub(super) async fn prepare(&mut self, script: &str) -> Result<(String, Option<String>), Failure> {
        let first = async {
            let name = self.call(cmd("SCRIPT").arg("LOAD").arg(script), CONNECT_TIMEOUT).await?;
            Ok((text(&name).unwrap_or_default().to_owned(), self.warning(CONNECT_TIMEOUT).await?))
        };
        first.await.map_err(|failure| match failure {
            Failure::Timeout => Failure::Unreachable(format!("{}: no answer in time", self.node)),
            other => other,
        })
    }

    /// A problem although the server answers.
    pub(super) async fn warning(&mut self, timeout: Duration) -> Result<Option<String>, Failure> {
        match self.call(cmd("INFO").arg("memory"), timeout).await {
            Ok(info) => Ok(text(&info).and_then(may_evict)),
            // The user may not have the permission.
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

/// The certificate must be for this host name.
fn encrypted(host: String, port: u16) -> ConnectionAddr {
    ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
}

/// The certificates, if they are valid.
fn tls(config: &RedisConfig) -> Result<Option<TlsCertificates>, RedisConfigError> {
    let wrong = |what: &str| Err(RedisConfigError(what.to_owned()));
    if !config.address.tls {
        return match (&config.ca, &config.client_cert) {
            (None, None) => Ok(None),
            _ => wrong("certificates are for TLS: write rediss:// (or rediss+cluster://, rediss+sentinel://)"),
        };
    }
    // The process may have chosen a provider before.
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
        Err(error) => Err(RedisConfigError(format!("the certificates or the key are invalid: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eviction_is_reported_if_it_can_happen() {
        let info = |max: &str, policy: &str| format!("# Memory\r\nmaxmemory:{max}\r\nmaxmemory_policy:{policy}\r\n");
        assert_eq!(may_evict(&info("0", "allkeys-lru")), None);
        assert_eq!(may_evict(&info("1000", "noeviction")), None);
        assert!(may_evict(&info("1000", "volatile-ttl")).unwrap().contains("set maxmemory-policy noeviction"));
        assert_eq!(may_evict(""), None);
    }
}
