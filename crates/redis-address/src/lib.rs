//! The address of Redis, as a setting.
//!
//! It is a crate of its own so that settings can be read and checked without a Redis client.

mod parse;
mod password;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;

pub use password::Password;

/// One server, a cluster, or a primary behind sentinels.
///
/// | text | |
/// | --- | --- |
/// | `redis://[user[:password]@]host[:port]` | one server; `rediss://` with TLS |
/// | `unix:///path`, `redis+unix:///path` | one server, by its socket |
/// | `redis://a:7001,b:7002,…` | Redis Cluster; not all nodes need to be named |
/// | `redis+cluster://host[:port][,…]` | the same, also with one node |
/// | `redis+sentinel://s1:26379,s2:26379/name` | the primary of that name; `rediss+sentinel://` with TLS |
///
/// The password is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// The servers.
    pub layout: Layout,
    /// Whether connections are encrypted.
    pub tls: bool,
    /// The user, unless it is Redis's default user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<Password>,
}

/// The servers and how to find them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// This server.
    One(Node),
    /// The cluster of these nodes.
    Cluster(Vec<Node>),
    /// The primary that these sentinels have under this name.
    Sentinel {
        /// The sentinels.
        sentinels: Vec<Node>,
        /// The name.
        primary: String,
    },
}

/// One server.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Node {
    /// By host and port.
    Tcp {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
    },
    /// By the path of its socket.
    Unix(PathBuf),
}

/// An invalid address, with a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError(String);

impl Address {
    /// The maximum number of nodes in an address.
    pub const MAX_NODES: usize = 64;

    /// Whether it has a user.
    pub fn has_user(&self) -> bool {
        self.user.is_some()
    }

    /// Whether it has a password.
    pub fn has_password(&self) -> bool {
        self.password.is_some()
    }

    /// Whether connections are encrypted.
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// The servers without credentials, for display.
    pub fn servers(&self) -> String {
        match &self.layout {
            Layout::One(node) => node.to_string(),
            Layout::Cluster(nodes) => joined(nodes),
            Layout::Sentinel { sentinels, primary } => format!("{}/{primary}", joined(sentinels)),
        }
    }

    fn scheme(&self) -> &'static str {
        match (&self.layout, self.tls) {
            (Layout::One(Node::Unix(_)), _) => "redis+unix",
            (Layout::One(_), false) => "redis",
            (Layout::One(_), true) => "rediss",
            (Layout::Cluster(_), false) => "redis+cluster",
            (Layout::Cluster(_), true) => "rediss+cluster",
            (Layout::Sentinel { .. }, false) => "redis+sentinel",
            (Layout::Sentinel { .. }, true) => "rediss+sentinel",
        }
    }
}

impl Node {
    /// A server by the host and port that another server announced.
    pub fn tcp(host: &str, port: u16) -> Node {
        Node::Tcp { host: host.to_owned(), port }
    }

    /// The host, if it has one.
    pub fn host(&self) -> Option<&str> {
        match self {
            Node::Tcp { host, .. } => Some(host),
            Node::Unix(_) => None,
        }
    }
}

fn joined(nodes: &[Node]) -> String {
    let mut text = String::new();
    for (at, node) in nodes.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        text.push_str(&node.to_string());
    }
    text
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme())?;
        match (&self.user, &self.password) {
            (None, None) => {}
            (user, None) => write!(f, "{}@", user.as_deref().unwrap_or_default())?,
            (user, Some(password)) => write!(f, "{}:{password}@", user.as_deref().unwrap_or_default())?,
        }
        f.write_str(&self.servers())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Node::Tcp { host, port } => write!(f, "{host}:{port}"),
            Node::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AddressError {}
