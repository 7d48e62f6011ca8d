//! Redis's protocol, as far as tests ask of it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A word or any bytes.
    Text(Vec<u8>),
    /// A number.
    Number(i64),
    /// Several.
    List(Vec<Reply>),
    /// What Redis says instead of an answer.
    Error(String),
    /// No value.
    Nothing,
}

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest text or list: more than any test asks for.
const MOST: usize = 64 * 1024 * 1024;

/// A connection to the server at a port.
#[derive(Debug)]
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    /// Connects.
    pub fn open(port: u16) -> io::Result<Connection> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Connection(BufReader::new(stream)))
    }

    /// Sends a command and waits for its answer.
    pub fn ask<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<Reply> {
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
        // -1 is no value.
        let length = || number().map(|length| usize::try_from(length).ok().map(|length| length.min(MOST)));
        Ok(match kind {
            '+' => Reply::Text(rest.as_bytes().to_vec()),
            '-' => Reply::Error(rest.to_owned()),
            ':' => Reply::Number(number()?),
            '$' => length()?.map_or(Ok(Reply::Nothing), |length| self.text(length))?,
            '*' => length()?.map_or(Ok(Reply::Nothing), |length| self.list(length))?,
            _ => return Err(io::Error::other(format!("not an answer: {line}"))),
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
    /// As text: that of a word, a number or an error, and the lines of a list.
    pub fn text(&self) -> String {
        match self {
            Reply::Text(text) => String::from_utf8_lossy(text).into_owned(),
            Reply::Number(number) => number.to_string(),
            Reply::List(list) => list.iter().map(Reply::text).collect::<Vec<_>>().join("\n"),
            Reply::Error(error) => error.clone(),
            Reply::Nothing => String::new(),
        }
    }
}
