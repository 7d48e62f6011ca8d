//! Redis's protocol, as far as tests need it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// A reply of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A simple string or a bulk string.
    Text(Vec<u8>),
    /// An integer.
    Number(i64),
    /// An array.
    List(Vec<Reply>),
    /// An error.
    Error(String),
    /// No value.
    Nil,
}

/// How long to wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest text or list: more than any test reads.
const MAX_LENGTH: usize = 64 * 1024 * 1024;

/// A connection to the server at a port.
#[derive(Debug)]
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    /// Connects to a port of 127.0.0.1.
    pub fn open(port: u16) -> io::Result<Connection> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Connection(BufReader::new(stream)))
    }

    /// Sends a command and waits for its reply.
    pub fn command<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<Reply> {
        let mut command = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            let argument = argument.as_ref();
            command.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            command.extend_from_slice(argument);
            command.extend_from_slice(b"\r\n");
        }
        self.0.get_mut().write_all(&command)?;
        self.reply()
    }

    fn reply(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let line = line.strip_suffix("\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let kind = line.chars().next().unwrap_or_default();
        let rest = line.get(kind.len_utf8()..).unwrap_or_default();
        let number = || rest.parse::<i64>().map_err(io::Error::other);
        // -1 stands for no value.
        let length = || number().map(|length| usize::try_from(length).ok().map(|length| length.min(MAX_LENGTH)));
        Ok(match kind {
            '+' => Reply::Text(rest.as_bytes().to_vec()),
            '-' => Reply::Error(rest.to_owned()),
            ':' => Reply::Number(number()?),
            '$' => length()?.map_or(Ok(Reply::Nil), |length| self.text(length))?,
            '*' => length()?.map_or(Ok(Reply::Nil), |length| self.list(length))?,
            _ => return Err(io::Error::other(format!("not a reply: {line}"))),
        })
    }

    fn text(&mut self, length: usize) -> io::Result<Reply> {
        let mut text = vec![0; length + b"\r\n".len()];
        self.0.read_exact(&mut text)?;
        text.truncate(length);
        Ok(Reply::Text(text))
    }

    fn list(&mut self, length: usize) -> io::Result<Reply> {
        (0..length).map(|_| self.reply()).collect::<io::Result<_>>().map(Reply::List)
    }
}

impl Reply {
    /// The bytes of a text.
    pub fn bytes(self) -> Option<Vec<u8>> {
        match self {
            Reply::Text(text) => Some(text),
            _ => None,
        }
    }

    /// As text: a string, an integer or an error as it is, an array as lines.
    pub fn text(&self) -> String {
        match self {
            Reply::Text(text) => String::from_utf8_lossy(text).into_owned(),
            Reply::Number(number) => number.to_string(),
            Reply::List(list) => list.iter().map(Reply::text).collect::<Vec<_>>().join("\n"),
            Reply::Error(error) => error.clone(),
            Reply::Nil => String::new(),
        }
    }
}
