//! An upstream that records what it receives, byte by byte, and is strict: what a proxy forwards must have one reading.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::support::scripted;

/// A request that arrived whole, or the bytes of something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    Request(Forwarded),
    /// A head that servers may read differently.
    Malformed(String),
}

/// What a server would act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forwarded {
    pub(crate) method: String,
    pub(crate) target: String,
    /// In lower case, as they came.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// An upstream, which answers every request with 200.
#[derive(Clone)]
pub(crate) struct Recorder {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Recorded>>>,
}

impl Recorded {
    pub(crate) fn request(&self) -> Option<&Forwarded> {
        match self {
            Recorded::Request(request) => Some(request),
            Recorded::Malformed(_) => None,
        }
    }
}

type Reader = BufReader<TcpStream>;

/// The largest body that is recorded.
const MAX_BODY_BYTES: u64 = 1 << 20;

impl Recorder {
    pub(crate) async fn start() -> Recorder {
        let seen = Arc::<Mutex<Vec<Recorded>>>::default();
        let shared = seen.clone();
        let address = scripted(move |stream, _| {
            let shared = shared.clone();
            async move {
                // A connection that ends early leaves nothing to record.
                let _ = serve(stream, &shared).await;
            }
        });
        Recorder { address: address.await, seen }
    }

    /// What arrived since the last call.
    pub(crate) fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    pub(crate) fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

async fn serve(stream: TcpStream, seen: &Mutex<Vec<Recorded>>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let head = read_head(&mut stream).await?;
        let recorded = match parse(&head) {
            None => {
                seen.lock().unwrap().push(Recorded::Malformed(head));
                return Ok(());
            }
            Some((request, Framing::Length(length))) => {
                let mut body = vec![0; length as usize];
                stream.read_exact(&mut body).await?;
                Forwarded { body, ..request }
            }
            Some((request, Framing::Chunks)) => Forwarded { body: read_chunks(&mut stream).await?, ..request },
        };
        seen.lock().unwrap().push(Recorded::Request(recorded));
        stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await?;
    }
}

async fn read_head(stream: &mut Reader) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let read = stream.read_until(b'\n', &mut head).await?;
        if read == 0 || head.len() > 1 << 20 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head.iter().map(|byte| char::from(*byte)).collect())
}

enum Framing {
    Length(u64),
    Chunks,
}

/// `None` if the head has more than one reading.
fn parse(head: &str) -> Option<(Forwarded, Framing)> {
    let lines = head.strip_suffix("\r\n\r\n")?;
    if lines.replace("\r\n", "").contains(['\r', '\n', '\0']) {
        return None;
    }
    let mut lines = lines.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    if !words.next()?.starts_with("HTTP/1.") || words.next().is_some() {
        return None;
    }
    let headers: Option<Vec<(String, String)>> = lines
        .map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_token = |character: char| character.is_ascii_graphic() && !"()<>@,;\\\"/[]?={}".contains(character);
            let is_name = !name.is_empty() && name.chars().all(is_token);
            is_name.then(|| (name.to_ascii_lowercase(), value.trim().to_owned()))
        })
        .collect();
    let headers = headers?;
    let all = |name: &str| headers.iter().filter(|(one, _)| one == name).map(|(_, value)| &**value).collect::<Vec<_>>();
    let framing = match (&all("content-length")[..], &all("transfer-encoding")[..]) {
        ([], []) => Framing::Length(0),
        ([length], []) if length.bytes().all(|byte| byte.is_ascii_digit()) => {
            Framing::Length(length.parse::<u64>().ok().filter(|length| *length <= MAX_BODY_BYTES)?)
        }
        ([], ["chunked"]) => Framing::Chunks,
        _ => return None,
    };
    (all("host").len() == 1).then_some((Forwarded { method, target, headers, body: Vec::new() }, framing))
}

async fn read_chunks(stream: &mut Reader) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = read_line(stream).await?;
        let size = u64::from_str_radix(line.trim_end_matches("\r\n"), 16).map_err(io::Error::other)?;
        if size > MAX_BODY_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let before = body.len();
        body.resize(before + size as usize, 0);
        stream.read_exact(&mut body[before..]).await?;
        if size > 0 {
            match &*read_line(stream).await? {
                "\r\n" => continue,
                other => return Err(io::Error::other(format!("{other:?} after a chunk"))),
            }
        }
        while read_line(stream).await? != "\r\n" {}
        return Ok(body);
    }
}

async fn read_line(stream: &mut Reader) -> io::Result<String> {
    let mut line = Vec::new();
    stream.read_until(b'\n', &mut line).await?;
    match line.ends_with(b"\r\n") {
        true => Ok(line.iter().map(|byte| char::from(*byte)).collect()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
