//! Where a listener listens: `127.0.0.1:8081`, `[::1]:8081`, `unix:/run/tollgate.sock` or `off`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tollgate_rules::problem::{Fault, quoted};

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    /// A port of a host.
    Tcp {
        /// A name or an IP address, without brackets.
        host: String,
        /// 0 lets the system choose.
        port: u16,
    },
    /// A socket in the file system.
    Unix(PathBuf),
    /// Nobody listens.
    Off,
}

/// The longest path of a Unix socket that systems take.
const LONGEST_PATH: usize = 107;

/// The longest name of a host.
const LONGEST_HOST: usize = 253;

impl Address {
    /// Whether it takes connections from every network that the machine is on.
    pub(crate) fn is_everywhere(&self) -> bool {
        match self {
            Address::Tcp { host, .. } => host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified()),
            Address::Unix(_) | Address::Off => false,
        }
    }
}

impl FromStr for Address {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Address, Fault> {
        if text == "off" {
            return Ok(Address::Off);
        }
        match text.strip_prefix("unix:") {
            Some(path) => unix(path),
            None => tcp(text),
        }
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

fn unix(path: &str) -> Result<Address, Fault> {
    if path.is_empty() || path.starts_with("//") || path.contains('\0') {
        let message = format!("{} does not name a socket", quoted(&format!("unix:{path}")));
        return Err(Fault::new(message, "write for instance unix:/run/tollgate.sock"));
    }
    if path.len() > LONGEST_PATH {
        let message = format!("the socket's path is longer than {LONGEST_PATH} bytes: {}", quoted(path));
        return Err(Fault::new(message, "write a shorter path"));
    }
    Ok(Address::Unix(Path::new(path).to_owned()))
}

fn tcp(text: &str) -> Result<Address, Fault> {
    let fault = |remedy: &str| Fault::new(format!("{} is not an address", quoted(text)), remedy);
    let usual = || fault("write host:port, unix:PATH or off; for instance 127.0.0.1:8081");
    if text.len() > LONGEST_HOST + ":65535".len() {
        return Err(usual());
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Err(fault(&format!("write an IPv6 address in brackets and with a port: [{text}]:8081")));
    }
    if text.parse::<u16>().is_ok() {
        return Err(everywhere_or_loopback(text, text));
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        let named = is_host(text);
        return Err(if named { fault(&format!("write the port too: {text}:8081")) } else { usual() });
    };
    let Ok(number) = port.parse::<u16>() else {
        let named = is_host(host);
        return Err(if named { fault("write a port from 0 to 65535 behind the colon") } else { usual() });
    };
    if host.is_empty() || host == "*" {
        return Err(everywhere_or_loopback(text, port));
    }
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match bracketed {
        Some(inner) if inner.parse::<Ipv6Addr>().is_ok() => Ok(Address::Tcp { host: inner.to_owned(), port: number }),
        Some(_) => Err(fault("write an IPv6 address between the brackets, for instance [::1]:8081")),
        None if host.contains(':') && host.parse::<Ipv6Addr>().is_ok() => {
            Err(fault(&format!("write an IPv6 address in brackets: [{host}]:{port}")))
        }
        None if is_host(host) => Ok(Address::Tcp { host: host.to_owned(), port: number }),
        None => Err(usual()),
    }
}

/// A port alone: whether the whole network may come in is for people to say.
fn everywhere_or_loopback(text: &str, port: &str) -> Fault {
    let message = format!("{} does not say for whom to listen", quoted(text));
    Fault::new(message, format!("write 127.0.0.1:{port} for this machine only, or 0.0.0.0:{port} for every network"))
}

fn is_host(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= LONGEST_HOST
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Address, String> {
        text.parse::<Address>().map_err(|fault| fault.to_string())
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
            assert_eq!((address.to_string(), address.is_everywhere()), (text.to_owned(), everywhere));
            assert_eq!(address == Address::Off, text == "off");
        }
    }

    #[test]
    fn what_is_no_address_is_told_with_what_to_write() {
        let usual = "is not an address; write host:port, unix:PATH or off; for instance 127.0.0.1:8081";
        let whom = "does not say for whom to listen; write 127.0.0.1:8081 for this machine only, or 0.0.0.0:8081 for every network";
        let port = "is not an address; write a port from 0 to 65535 behind the colon";
        let rows = [
            ("", usual),
            ("Off!", usual),
            ("http://x:80", usual),
            ("a b:80", usual),
            ("[::1", usual),
            (":8081", whom),
            ("*:8081", whom),
            ("8081", whom),
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
        for (text, told) in rows {
            assert_eq!(read(text), Err(format!("`{text}` {told}")));
        }
        let brackets = read("2001:db8:1:2:3:4:5:6:80");
        assert!(brackets.unwrap_err().ends_with("write an IPv6 address in brackets: [2001:db8:1:2:3:4:5:6]:80"));
    }

    #[test]
    fn names_and_paths_have_a_longest() {
        let host = |length: usize| read(&format!("{}:1", "h".repeat(length)));
        assert!(host(LONGEST_HOST).is_ok() && host(LONGEST_HOST + 1).is_err());
        let path = |length: usize| read(&format!("unix:{}", "p".repeat(length)));
        assert!(path(LONGEST_PATH).is_ok());
        assert!(path(LONGEST_PATH + 1).unwrap_err().starts_with("the socket's path is longer than 107 bytes: "));
    }
}
