//! The smallest HTTP client that these tests can do with: one connection, one question at a time.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use tollgate_testing::TIMEOUT;

/// A connection that is kept.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    host: String,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

pub(crate) type Headers<'a> = &'a [(&'a str, &'a str)];

/// Asks by GET on a connection of its own.
#[track_caller]
pub(crate) fn get(address: &str, path: &str, headers: Headers<'_>) -> Answer {
    ask(address, "GET", path, headers)
}

/// Asks on a connection of its own.
#[track_caller]
pub(crate) fn ask(address: &str, method: &str, path: &str, headers: Headers<'_>) -> Answer {
    let answer = Connection::open(address).and_then(|mut connection| connection.ask(method, path, headers, ""));
    answer.unwrap_or_else(|error| panic!("{method} {path} on {address}: {error}"))
}

impl Connection {
    pub(crate) fn open(address: &str) -> io::Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        // A server that hangs fails the test in the end.
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Connection { stream: BufReader::new(stream), host: address.to_owned() })
    }

    pub(crate) fn ask(&mut self, method: &str, path: &str, headers: Headers<'_>, body: &str) -> io::Result<Answer> {
        self.send(method, path, headers, body)?;
        let head = self.head()?;
        let status = head.first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(head.first.clone()))?;
        let has_body = method != "HEAD" && status != 204;
        let body = if has_body { head.body(&mut self.stream)? } else { Vec::new() };
        Ok(Answer { status, headers: head.headers, body: String::from_utf8_lossy(&body).into_owned() })
    }

    /// Asks and does not wait. Who drops the connection then has hung up.
    pub(crate) fn send(&mut self, method: &str, path: &str, headers: Headers<'_>, body: &str) -> io::Result<()> {
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

    /// The head of what is answered.
    pub(crate) fn head(&mut self) -> io::Result<Head> {
        Ok(read_head(&mut self.stream)?.ok_or(io::ErrorKind::UnexpectedEof)?)
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// A header with a number in it.
    #[track_caller]
    pub(crate) fn number(&self, name: &str) -> u64 {
        let value = self.header(name).unwrap_or_else(|| panic!("no {name}: {self:?}"));
        value.parse().unwrap_or_else(|_| panic!("{name} is {value}"))
    }
}

/// The head of a question or an answer.
pub(crate) struct Head {
    /// Its first line.
    pub(crate) first: String,
    pub(crate) headers: Vec<(String, String)>,
}

/// What comes up to the empty line, or nothing if the other side has ended.
pub(crate) fn read_head(stream: &mut BufReader<TcpStream>) -> io::Result<Option<Head>> {
    let mut first = String::new();
    if stream.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.push((name.to_owned(), value.trim().to_owned())),
            None => return Ok(Some(Head { first: first.trim_end().to_owned(), headers })),
        }
    }
}

impl Head {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The body that follows it.
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
