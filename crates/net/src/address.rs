//! Addresses of listeners: `127.0.0.1:8081`, `[::1]:8081`, `unix:/run/tollgate.sock` or `off`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A TCP port.
    Tcp {
        /// A host name or an IP address, without brackets.
        host: String,
        /// 0 lets the system choose a free port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
    /// The listener is disabled.
    Off,
}

/// The error for a text that is not an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError {
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub remedy: String,
}

/// The characters of an invalid address that an error quotes.
const MAX_QUOTED: usize = 60;

/// The longest path of a Unix socket that the system accepts, in bytes.
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// The longest host name, in bytes.
const MAX_HOST_BYTES: usize = 253;

/// The port in remedies, unless the caller knows a better one.
const EXAMPLE_PORT: u16 = 8081;

impl Address {
    /// Parses an address. Remedies name `example`, the usual port of the listener.
    ///
    /// # Errors
    /// If the text is not an address.
    pub fn parse(text: &str, example: u16) -> Result<Address, AddressError> {
        if text == "off" {
            return Ok(Address::Off);
        }
        match text.strip_prefix("unix:") {
            Some(path) => parse_unix(path),
            None => parse_tcp(text, example),
        }
    }

    /// Whether it accepts connections from every network of the machine: `0.0.0.0` or `::`.
    pub fn is_unspecified(&self) -> bool {
        match self {
            Address::Tcp { host, .. } => host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified()),
            Address::Unix(_) | Address::Off => false,
        }
    }
}

impl AddressError {
    fn new(message: impl Into<String>, remedy: impl Into<String>) -> AddressError {
        AddressError { message: message.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.remedy)
    }
}

impl std::error::Error for AddressError {}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        Address::parse(text, EXAMPLE_PORT)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Off => f.write_str("off"),
        }
    }
}

fn parse_unix(path: &str) -> Result<Address, AddressError> {
    if path.is_empty() || path.starts_with("//") || path.contains('\0') {
        let message = format!("{} does not name a socket", quoted(&format!("unix:{path}")));
        return Err(AddressError::new(message, "write for instance unix:/run/tollgate.sock"));
    }
    if path.len() > MAX_SOCKET_PATH_BYTES {
        let message = format!("the socket's path is longer than {MAX_SOCKET_PATH_BYTES} bytes: {}", quoted(path));
        return Err(AddressError::new(message, "write a shorter path"));
    }
    Ok(Address::Unix(Path::new(path).to_owned()))
}

fn parse_tcp(text: &str, example: u16) -> Result<Address, AddressError> {
    let error = |remedy: &str| AddressError::new(format!("{} is not an address", quoted(text)), remedy);
    let usual = || error(&format!("write host:port, unix:PATH or off; for instance 127.0.0.1:{example}"));
    if text.len() > MAX_HOST_BYTES + ":65535".len() {
        return Err(usual());
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Err(error(&format!("write an IPv6 address in brackets and with a port: [{text}]:{example}")));
    }
    if text.parse::<u16>().is_ok() {
        return Err(missing_host(text, text));
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let message = format!("{} is not a port, and has no host", quoted(text));
        return Err(AddressError::new(message, "write 127.0.0.1:PORT, with a port from 0 to 65535"));
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err(if is_host(text) { error(&format!("write the port too: {text}:{example}")) } else { usual() });
    };
    let Ok(number) = port.parse::<u16>() else {
        return Err(if is_host(host) { error("write a port from 0 to 65535 after the colon") } else { usual() });
    };
    if host.is_empty() || host == "*" {
        return Err(missing_host(text, port));
    }
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match bracketed {
        Some(inner) if inner.parse::<Ipv6Addr>().is_ok() => Ok(Address::Tcp { host: inner.to_owned(), port: number }),
        Some(_) => Err(error(&format!("write an IPv6 address between the brackets, for instance [::1]:{example}"))),
        None if host.contains(':') && host.parse::<Ipv6Addr>().is_ok() => {
            Err(error(&format!("write an IPv6 address in brackets: [{host}]:{port}")))
        }
        None if is_host(host) => Ok(Address::Tcp { host: host.to_owned(), port: number }),
        None => Err(usual()),
    }
}

/// The error for a port without a host: the user decides whether other machines may connect.
fn missing_host(text: &str, port: &str) -> AddressError {
    let message = format!("{} has no host", quoted(text));
    AddressError::new(
        message,
        format!("write 127.0.0.1:{port} for this machine only, or 0.0.0.0:{port} for every network"),
    )
}

/// A text in backquotes, truncated and safe to print.
fn quoted(text: &str) -> String {
    let shown: String = text.chars().take(MAX_QUOTED).collect();
    let more = if shown.len() < text.len() { "…" } else { "" };
    format!("`{}{more}`", shown.escape_debug())
}

fn is_host(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_HOST_BYTES
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Address, String> {
        text.parse::<Address>().map_err(|error| error.to_string())
    }

    fn address(host: &str, port: u16) -> Result<Address, String> {
        Ok(Address::Tcp { host: host.to_owned(), port })
    }

    #[test]
    fn addresses_are_read_and_written_alike() {
        let rows = [
            ("127.0.0.1:8081", address("127.0.0.1", 8081), false),
            ("0.0.0.0:0", address("0.0.0.0", 0), true),
            ("[::]:65535", address("::", 65535), true),
            ("[::1]:80", address("::1", 80), false),
            ("localhost:8080", address("localhost", 8080), false),
            ("my-host_1.example:8080", address("my-host_1.example", 8080), false),
            ("off", Ok(Address::Off), false),
            ("unix:/run/tollgate.sock", Ok(Address::Unix("/run/tollgate.sock".into())), false),
            ("unix:a b", Ok(Address::Unix("a b".into())), false),
        ];
        for (text, expected, everywhere) in rows {
            let read = read(text);
            assert_eq!(read, expected, "{text}");
            let address = read.unwrap();
            assert_eq!((address.to_string(), address.is_unspecified()), (text.to_owned(), everywhere));
            assert_eq!(address == Address::Off, text == "off");
        }
    }

    #[test]
    fn invalid_addresses_are_rejected_with_a_remedy() {
        let usual = "is not an address; write host:port, unix:PATH or off; for instance 127.0.0.1:8081";
        let no_host = "has no host; write 127.0.0.1:8081 for this machine only, or 0.0.0.0:8081 for every network";
        let port = "is not an address; write a port from 0 to 65535 after the colon";
        let rows = [
            ("", usual),
            ("Off!", usual),
            ("http://x:80", usual),
            ("a b:80", usual),
            ("[::1", usual),
            (":8081", no_host),
            ("*:8081", no_host),
            ("8081", no_host),
            ("99999", "is not a port, and has no host; write 127.0.0.1:PORT, with a port from 0 to 65535"),
            ("localhost", "is not an address; write the port too: localhost:8081"),
            ("localhost:", port),
            ("localhost:65536", port),
            ("localhost:-1", port),
            ("localhost:http", port),
            ("::1", "is not an address; write an IPv6 address in brackets and with a port: [::1]:8081"),
            ("fe80::1%1:80", usual),
            ("[1.2.3.4]:80", "is not an address; write an IPv6 address between the brackets, for instance [::1]:8081"),
            ("unix:", "does not name a socket; write for instance unix:/run/tollgate.sock"),
            ("unix:///run/x", "does not name a socket; write for instance unix:/run/tollgate.sock"),
        ];
        for (text, expected) in rows {
            assert_eq!(read(text), Err(format!("`{text}` {expected}")));
        }
        let remedy = |port| Address::parse("localhost", port).unwrap_err().remedy;
        assert_eq!(remedy(8080), "write the port too: localhost:8080");
        let brackets = read("2001:db8:1:2:3:4:5:6:80");
        assert!(brackets.unwrap_err().ends_with("write an IPv6 address in brackets: [2001:db8:1:2:3:4:5:6]:80"));
    }

    #[test]
    fn names_and_paths_are_bounded() {
        let host = |length: usize| read(&format!("{}:1", "h".repeat(length)));
        assert!(host(MAX_HOST_BYTES).is_ok() && host(MAX_HOST_BYTES + 1).is_err());
        let path = |length: usize| read(&format!("unix:{}", "p".repeat(length)));
        assert!(path(MAX_SOCKET_PATH_BYTES).is_ok());
        assert!(
            path(MAX_SOCKET_PATH_BYTES + 1).unwrap_err().starts_with("the socket's path is longer than 107 bytes: ")
        );
    }
}
