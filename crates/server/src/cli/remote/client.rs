//! One call after the other, each on a connection of its own.

use std::fs::File;
use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, HOST, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::runtime::Runtime;

use super::connect::Place;
use super::path::Path;
use super::server::ServerArgs;
use super::{Done, Failure, Refusal, complain};

/// A server that is asked.
pub(super) struct Remote {
    runtime: Runtime,
    place: Place,
    authorization: Option<HeaderValue>,
    /// Whether documents are wanted as they come.
    pub(super) json: bool,
}

/// A call.
pub(super) struct Call {
    method: Method,
    path: Path,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: UnsyncBoxBody<Bytes, io::Error>,
    /// How long until the answer begins.
    within: Duration,
}

/// What came back.
pub(super) struct Answer {
    /// Its generation as `If-Match` has it.
    pub(super) tag: Option<String>,
    pub(super) text: Bytes,
}

/// An answer that comes in lines.
pub(super) struct AnswerLines<'r> {
    remote: &'r Remote,
    body: Incoming,
    /// What came and was not told.
    text: BytesMut,
    /// How much of that has no end of a line in it.
    looked: usize,
}

/// How long a call may take.
const WITHIN: Duration = Duration::from_secs(60);
/// How long it takes to check an import, at most.
const CHECKED_WITHIN: Duration = Duration::from_secs(60 * 60);
/// The longest answer.
const MOST_BYTES: usize = 256 << 20;
/// The longest line of an answer that comes in lines.
const LONGEST_LINE: usize = 16 << 20;
/// The longest answer of one who said no.
const MOST_REFUSED: usize = 1 << 20;

impl Call {
    pub(super) fn new(method: Method, path: Path) -> Call {
        let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
        Call { method, path, headers: Vec::new(), body, within: WITHIN }
    }

    pub(super) fn get(path: Path) -> Call {
        Call::new(Method::GET, path)
    }

    pub(super) fn delete(path: Path) -> Call {
        Call::new(Method::DELETE, path)
    }

    /// With a JSON document.
    pub(super) fn json(mut self, document: impl ToString) -> Call {
        self.headers.push((CONTENT_TYPE, HeaderValue::from_static("application/json")));
        let body = Full::new(Bytes::from(document.to_string()));
        self.body = body.map_err(|never| match never {}).boxed_unsync();
        self
    }

    /// With lines of JSON, as they are read.
    pub(super) fn lines(mut self, from: Box<dyn Read + Send>) -> Call {
        self.headers.push((CONTENT_TYPE, HeaderValue::from_static("application/jsonl")));
        self.body = Pieces(from).boxed_unsync();
        self.within = CHECKED_WITHIN;
        self
    }

    /// Only if this is what is there: a generation, or `*` for anything.
    pub(super) fn if_match(mut self, tag: Option<&str>) -> Call {
        let value = tag.and_then(|tag| HeaderValue::try_from(tag).ok());
        self.headers.extend(value.map(|value| (IF_MATCH, value)));
        self
    }

    /// Only if nothing is there.
    pub(super) fn if_absent(mut self) -> Call {
        self.headers.push((IF_NONE_MATCH, HeaderValue::from_static("*")));
        self
    }
}

impl AnswerLines<'_> {
    /// The next one, without what ends it; none at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        let place = &self.remote.place;
        loop {
            if let Some(length) = memchr::memchr(b'\n', &self.text[self.looked..]) {
                let line = self.text.split_to(self.looked + length).freeze();
                self.text.advance(1);
                self.looked = 0;
                return Ok(Some(line));
            }
            self.looked = self.text.len();
            if self.looked > LONGEST_LINE {
                return Err(Failure::Away(format!("{place} sends lines that are too long")));
            }
            let Some(frame) = self.body.frame().await else {
                return match self.text.is_empty() {
                    true => Ok(None),
                    false => Err(Failure::Away(format!("{place} ended in the middle of a line"))),
                };
            };
            if let Ok(piece) = frame.map_err(|error| self.remote.broken(&error))?.into_data() {
                self.text.extend_from_slice(&piece);
            }
        }
    }
}

impl Answer {
    pub(super) fn value(&self) -> Result<Value, Failure> {
        serde_json::from_slice(&self.text)
            .map_err(|_| Failure::Away("the server's answer is not JSON; is --server an admin listener?".to_owned()))
    }
}

impl Remote {
    pub(super) fn new(server: &ServerArgs) -> Result<Remote, Failure> {
        let (place, authorization) = (Place::new(server)?, server.authorization()?);
        if authorization.is_some() && place.is_open() {
            complain(format_args!("warning: the token goes to {place} in the clear; use https"));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::Undone(error.to_string()))?;
        Ok(Remote { runtime, place, authorization, json: server.json })
    }

    /// Does what is to be done while waiting is allowed.
    pub(super) fn within<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }

    /// Asks, and gives the whole answer.
    pub(super) fn ask(&self, call: Call) -> Result<Answer, Failure> {
        self.within(self.asked(call))
    }

    /// The same, for one who does more than one thing at a time.
    pub(super) async fn asked(&self, call: Call) -> Result<Answer, Failure> {
        let within = call.within;
        let whole = async {
            let response = self.begin(call).await?;
            let tag = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
            let text = Limited::new(response.into_body(), MOST_BYTES).collect().await;
            let text = text.map_err(|error| self.broken(&*error))?.to_bytes();
            Ok(Answer { tag, text })
        };
        tokio::time::timeout(within, whole).await.unwrap_or_else(|_| Err(self.late(within)))
    }

    /// Asks, and gives each line of the answer as it comes.
    pub(super) fn each_line(&self, call: Call, mut each: impl FnMut(&[u8]) -> Done) -> Done {
        self.within(async {
            let mut lines = self.lines(call).await?;
            while let Some(line) = lines.next().await? {
                each(&line)?;
            }
            Ok(())
        })
    }

    /// Asks for an answer that comes in lines.
    pub(super) async fn lines(&self, call: Call) -> Result<AnswerLines<'_>, Failure> {
        let within = call.within;
        let begun = tokio::time::timeout(within, self.begin(call)).await;
        let body = begun.unwrap_or_else(|_| Err(self.late(within)))?.into_body();
        Ok(AnswerLines { remote: self, body, text: BytesMut::new(), looked: 0 })
    }

    /// Lets time pass.
    pub(super) fn pause(&self, length: Duration) {
        // The future is made inside: it needs the runtime from its first moment.
        self.runtime.block_on(async { tokio::time::sleep(length).await });
    }

    /// Asks, and gives an answer that begins well.
    async fn begin(&self, call: Call) -> Result<Response<Incoming>, Failure> {
        let stream = self.place.connect().await.map_err(|error| self.away(&error))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.broken(&error))?;
        tokio::spawn(async move {
            // What breaks is told to the one who asked.
            let _ = connection.await;
        });
        let mut request = Request::new(call.body);
        *request.method_mut() = call.method;
        *request.uri_mut() = call.path.as_str().parse().map_err(|_| {
            let longest = "the name is too long to ask for";
            Failure::Usage(longest.to_owned())
        })?;
        let headers = request.headers_mut();
        if let Ok(host) = HeaderValue::try_from(&self.place.authority) {
            headers.insert(HOST, host);
        }
        headers.extend(self.authorization.clone().map(|value| (AUTHORIZATION, value)));
        headers.extend(call.headers);
        let response = sender.send_request(request).await.map_err(|error| self.broken(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let text = Limited::new(response.into_body(), MOST_REFUSED).collect().await;
        let text = text.map(|text| text.to_bytes()).unwrap_or_default();
        let problem = serde_json::from_slice::<Value>(&text).ok().filter(|problem| problem.get("detail").is_some());
        let text = String::from_utf8_lossy(&text).into_owned();
        Err(Failure::Refused(Refusal { status, problem: problem.unwrap_or_default(), text }))
    }

    fn away(&self, error: &io::Error) -> Failure {
        Failure::Away(format!(
            "{} can't be reached: {error}; is the server running, and is this its admin listener? --server URL or TOLLGATE_SERVER says where it is",
            self.place
        ))
    }

    fn broken(&self, error: &dyn std::error::Error) -> Failure {
        let mut why = error.to_string();
        if let Some(source) = error.source() {
            why = format!("{why}: {source}");
        }
        Failure::Away(format!("{} did not answer to the end: {why}; whether it was done is not known", self.place))
    }

    fn late(&self, within: Duration) -> Failure {
        Failure::Away(format!("{} did not answer within {within:?}; whether it was done is not known", self.place))
    }
}

/// What is read, piece by piece. Reading waits; nothing else is to be done meanwhile.
struct Pieces(Box<dyn Read + Send>);

/// How much is read at once.
const PIECE: usize = 64 << 10;

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let mut piece = vec![0; PIECE];
        Poll::Ready(match self.0.read(&mut piece) {
            Ok(0) => None,
            Ok(length) => {
                piece.truncate(length);
                Some(Ok(Frame::data(Bytes::from(piece))))
            }
            Err(error) => Some(Err(error)),
        })
    }
}

/// A file to read, or standard input for `-`.
pub(super) fn input(file: &std::path::Path) -> Result<Box<dyn Read + Send>, Failure> {
    if file == std::path::Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    match File::open(file) {
        Ok(opened) => Ok(Box::new(opened)),
        Err(error) => Err(Failure::Usage(format!("{} can't be read: {error}", file.display()))),
    }
}
