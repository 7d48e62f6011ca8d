//! A minimal HTTP/1.1 client with control over its connection: one connection, one request at a time.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use tollgate_testing::TIMEOUT;

/// A persistent connection.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    host: String,
}

#[derive(Debug)]
pub(crate) struct RawResponse {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

pub(crate) type Headers<'a> = &'a [(&'a str, &'a str)];

/// Sends a GET request on a connection of its own.
#[track_caller]
pub(crate) fn get(address: &str, path: &str, headers: Headers<'_>) -> RawResponse {
    send(address, "GET", path, headers)
}

/// Sends a request on a connection of its own.
#[track_caller]
pub(crate) fn send(address: &str, method: &str, path: &str, headers: Headers<'_>) -> RawResponse {
    let response = Connection::open(address).and_then(|mut connection| connection.send(method, path, headers, ""));
    response.unwrap_or_else(|error| panic!("{method} {path} on {address}: {error}"))
}

impl Connection {
    pub(crate) fn open(address: &str) -> io::Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        // A server that hangs fails the test.
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Connection { stream: BufReader::new(stream), host: address.to_owned() })
    }

    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: Headers<'_>,
        body: &str,
    ) -> io::Result<RawResponse> {
        self.start(method, path, headers, body)?;
        let head = self.head()?;
        let status = head.first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(head.first.clone()))?;
        let has_body = method != "HEAD" && status != 204;
        let body = if has_body { head.body(&mut self.stream)? } else { Vec::new() };
        Ok(RawResponse { status, headers: head.headers, body: String::from_utf8_lossy(&body).into_owned() })
    }

    /// Sends a request without waiting for the response. Dropping the connection then cancels the request.
    pub(crate) fn start(&mut self, method: &str, path: &str, headers: Headers<'_>, body: &str) -> io::Result<()> {
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.host);
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            text.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        text.push_str(body);
        self.stream.get_mut().write_all(text.as_bytes())
    }

    /// Reads the head of the response.
    pub(crate) fn head(&mut self) -> io::Result<Head> {
        Ok(read_head(&mut self.stream)?.ok_or(io::ErrorKind::UnexpectedEof)?)
    }
}

impl RawResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The number in a header.
    #[track_caller]
    pub(crate) fn number(&self, name: &str) -> u64 {
        let value = self.header(name).unwrap_or_else(|| panic!("no {name}: {self:?}"));
        value.parse().unwrap_or_else(|_| panic!("{name} is {value}"))
    }
}

/// The head of a request or a response.
pub(crate) struct Head {
    /// The request line or the status line.
    pub(crate) first: String,
    pub(crate) headers: Vec<(String, String)>,
}

/// Reads up to the empty line; `None` if the peer has closed the connection.
pub(crate) fn read_head(stream: &mut BufReader<TcpStream>) -> io::Result<Option<Head>> {
    let mut first = String::new();
    if stream.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let mut headers = Vec::new();
    loop {
        // A header may have any bytes.
        let mut line = Vec::new();
        stream.read_until(b'\n', &mut line)?;
        match String::from_utf8_lossy(&line).trim_end().split_once(':') {
            Some((name, value)) => headers.push((name.to_owned(), value.trim().to_owned())),
            None => return Ok(Some(Head { first: first.trim_end().to_owned(), headers })),
        }
    }
}

impl Head {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Reads the body that follows.
    pub(crate) fn body(&self, stream: &mut BufReader<TcpStream>) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if let Some(length) = self.header("content-length") {
            let length = length.parse().map_err(io::Error::other)?;
            stream.take(length).read_to_end(&mut body)?;
        } else if self.header("transfer-encoding").is_some() {
            loop {
                let mut line = String::new();
                stream.read_line(&mut line)?;
                let length = u64::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
                stream.take(length).read_to_end(&mut body)?;
                stream.read_line(&mut String::new())?;
                if length == 0 {
                    break;
                }
            }
        }
        Ok(body)
    }
}
