//! The client of the admin API. Each request has a connection of its own.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read};
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

use super::connect::ServerAddress;
use super::path::ApiPath;
use super::server::ServerArgs;
use super::{CommandError, CommandResult, ErrorResponse, print_error};

/// A client of one server.
pub(crate) struct AdminClient {
    runtime: Runtime,
    address: ServerAddress,
    authorization: Option<HeaderValue>,
    /// The plan that writes confirm.
    confirm: Option<HeaderValue>,
    /// Whether to write the API's JSON unchanged.
    pub(super) json: bool,
}

/// A request to the admin API.
pub(super) struct ApiRequest {
    method: Method,
    path: ApiPath,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: UnsyncBoxBody<Bytes, io::Error>,
    /// The longest wait for the head of the response.
    timeout: Duration,
}

/// A successful response.
pub(super) struct ApiResponse {
    /// The entity tag, for `If-Match`.
    pub(super) tag: Option<String>,
    pub(super) text: Bytes,
}

/// A response that is read line by line.
pub(super) struct ResponseLines<'c> {
    client: &'c AdminClient,
    body: Incoming,
    /// Bytes that were received and not returned yet.
    text: BytesMut,
    /// The number of leading bytes without a line break.
    scanned: usize,
}

/// Confirms a write that was held.
const CONFIRM: &str = "tollgate-confirm";
/// Says why nothing was known of what a write does.
const GUARDRAIL: &str = "tollgate-guardrail";

/// The longest request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest wait for an import to be checked.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// The longest response, in bytes.
const MAX_RESPONSE_BYTES: usize = 256 << 20;
/// The longest line of a response, in bytes.
const MAX_LINE_BYTES: usize = 16 << 20;
/// The longest error response, in bytes.
const MAX_ERROR_BYTES: usize = 1 << 20;

impl ApiRequest {
    fn new(method: Method, path: ApiPath) -> ApiRequest {
        let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
        ApiRequest { method, path, headers: Vec::new(), body, timeout: REQUEST_TIMEOUT }
    }

    pub(super) fn get(path: ApiPath) -> ApiRequest {
        ApiRequest::new(Method::GET, path)
    }

    pub(super) fn put(path: ApiPath) -> ApiRequest {
        ApiRequest::new(Method::PUT, path)
    }

    pub(super) fn post(path: ApiPath) -> ApiRequest {
        ApiRequest::new(Method::POST, path)
    }

    pub(super) fn delete(path: ApiPath) -> ApiRequest {
        ApiRequest::new(Method::DELETE, path)
    }

    /// With a JSON document.
    pub(super) fn json(self, document: impl Into<Value>) -> ApiRequest {
        self.json_text(document.into().to_string())
    }

    /// With the text of a JSON document.
    pub(super) fn json_text(mut self, document: String) -> ApiRequest {
        self.headers.push((CONTENT_TYPE, HeaderValue::from_static("application/json")));
        let body = Full::new(Bytes::from(document));
        self.body = body.map_err(|never| match never {}).boxed_unsync();
        self
    }

    /// With JSON lines, streamed from a reader.
    pub(super) fn lines(mut self, from: Box<dyn Read + Send>) -> ApiRequest {
        self.headers.push((CONTENT_TYPE, HeaderValue::from_static("application/jsonl")));
        self.body = ReaderBody(from).boxed_unsync();
        self.timeout = IMPORT_TIMEOUT;
        self
    }

    /// Only if the item has this entity tag; `*` matches any.
    pub(super) fn if_match(mut self, tag: Option<&str>) -> ApiRequest {
        let value = tag.and_then(|tag| HeaderValue::try_from(tag).ok());
        self.headers.extend(value.map(|value| (IF_MATCH, value)));
        self
    }

    /// Only if the item does not exist.
    pub(super) fn if_absent(mut self) -> ApiRequest {
        self.headers.push((IF_NONE_MATCH, HeaderValue::from_static("*")));
        self
    }
}

impl ResponseLines<'_> {
    /// The next line, without its line break; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, CommandError> {
        let address = &self.client.address;
        loop {
            if let Some(length) = memchr::memchr(b'\n', &self.text[self.scanned..]) {
                let line = self.text.split_to(self.scanned + length).freeze();
                self.text.advance(1);
                self.scanned = 0;
                return Ok(Some(line));
            }
            self.scanned = self.text.len();
            if self.scanned > MAX_LINE_BYTES {
                return Err(CommandError::Unavailable(format!("{address} sends lines that are too long")));
            }
            let Some(frame) = self.body.frame().await else {
                return match self.text.is_empty() {
                    true => Ok(None),
                    false => {
                        Err(CommandError::Unavailable(format!("{address} ended the response in the middle of a line")))
                    }
                };
            };
            if let Ok(chunk) = frame.map_err(|error| self.client.broken(&error))?.into_data() {
                self.text.extend_from_slice(&chunk);
            }
        }
    }
}

impl ApiResponse {
    pub(super) fn value(&self) -> Result<Value, CommandError> {
        serde_json::from_slice(&self.text).map_err(|_| {
            CommandError::Unavailable("the response is not JSON; is --server an admin listener?".to_owned())
        })
    }
}

impl AdminClient {
    pub(super) fn new(server: &ServerArgs) -> Result<AdminClient, CommandError> {
        let (address, authorization) = (ServerAddress::new(server)?, server.authorization()?);
        if authorization.is_some() && address.is_plaintext() {
            print_error(format_args!("warning: the token is sent to {address} without encryption; use https"));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| CommandError::Failed(error.to_string()))?;
        let confirm = server.confirm.as_ref().map(HeaderValue::try_from).transpose();
        let confirm = confirm.map_err(|_| CommandError::Usage("--confirm: this is not the id of a plan".to_owned()))?;
        Ok(AdminClient { runtime, address, authorization, confirm, json: server.json })
    }

    /// Runs a future to its end.
    pub(super) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Sends a request and reads the whole response.
    pub(super) fn send(&self, request: ApiRequest) -> Result<ApiResponse, CommandError> {
        self.block_on(self.send_async(request))
    }

    /// Sends a request and reads the whole response, within a future.
    pub(super) async fn send_async(&self, request: ApiRequest) -> Result<ApiResponse, CommandError> {
        let timeout = request.timeout;
        let response = async {
            let response = self.begin(request).await?;
            let tag = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
            let text = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
            let text = text.map_err(|error| self.broken(&*error))?.to_bytes();
            Ok(ApiResponse { tag, text })
        };
        tokio::time::timeout(timeout, response).await.unwrap_or_else(|_| Err(self.timed_out(timeout)))
    }

    /// Sends a request and calls `each` with every line of the response.
    pub(super) fn each_line(&self, request: ApiRequest, mut each: impl FnMut(&[u8]) -> CommandResult) -> CommandResult {
        self.block_on(async {
            let mut lines = self.lines(request).await?;
            while let Some(line) = lines.next().await? {
                each(&line)?;
            }
            Ok(())
        })
    }

    /// Sends a request whose response is read line by line.
    pub(super) async fn lines(&self, request: ApiRequest) -> Result<ResponseLines<'_>, CommandError> {
        let timeout = request.timeout;
        let begun = tokio::time::timeout(timeout, self.begin(request)).await;
        let body = begun.unwrap_or_else(|_| Err(self.timed_out(timeout)))?.into_body();
        Ok(ResponseLines { client: self, body, text: BytesMut::new(), scanned: 0 })
    }

    /// Waits.
    pub(super) fn pause(&self, length: Duration) {
        // The future is created inside, since it needs the runtime.
        self.runtime.block_on(async { tokio::time::sleep(length).await });
    }

    /// Sends a request and returns the response if its status is a success.
    async fn begin(&self, request: ApiRequest) -> Result<Response<Incoming>, CommandError> {
        let stream = self.address.connect().await.map_err(|error| self.unreachable(&error))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.broken(&error))?;
        tokio::spawn(async move {
            // The request gets the error.
            let _ = connection.await;
        });
        let is_write = request.method != Method::GET;
        let mut message = Request::new(request.body);
        *message.method_mut() = request.method;
        *message.uri_mut() =
            request.path.as_str().parse().map_err(|_| CommandError::Usage("the name is too long".to_owned()))?;
        let headers = message.headers_mut();
        if let Ok(host) = HeaderValue::try_from(&self.address.authority) {
            headers.insert(HOST, host);
        }
        headers.extend(self.authorization.clone().map(|value| (AUTHORIZATION, value)));
        let confirm = self.confirm.clone().filter(|_| is_write);
        headers.extend(confirm.map(|id| (HeaderName::from_static(CONFIRM), id)));
        headers.extend(request.headers);
        let response = sender.send_request(message).await.map_err(|error| self.broken(&error))?;
        if response.status().is_success() {
            if let Some(note) = response.headers().get(GUARDRAIL).and_then(|note| note.to_str().ok())
                && io::stderr().is_terminal()
            {
                print_error(format_args!("note: what this change refuses is not known: {note}"));
            }
            return Ok(response);
        }
        let status = response.status().as_u16();
        let text = Limited::new(response.into_body(), MAX_ERROR_BYTES).collect().await;
        let text = text.map(|text| text.to_bytes()).unwrap_or_default();
        let problem = serde_json::from_slice::<Value>(&text).ok().filter(|problem| problem.get("detail").is_some());
        let text = String::from_utf8_lossy(&text).into_owned();
        Err(CommandError::Rejected(ErrorResponse { status, problem: problem.unwrap_or_default(), text }))
    }

    fn unreachable(&self, error: &io::Error) -> CommandError {
        CommandError::Unavailable(format!(
            "{} can't be reached: {error}; is the server running, and is this its admin listener? set its address with --server URL or TOLLGATE_SERVER",
            self.address
        ))
    }

    fn broken(&self, error: &dyn std::error::Error) -> CommandError {
        let mut why = error.to_string();
        if let Some(source) = error.source() {
            why = format!("{why}: {source}");
        }
        CommandError::Unavailable(format!(
            "the response of {} ended early: {why}; the request may have taken effect",
            self.address
        ))
    }

    fn timed_out(&self, timeout: Duration) -> CommandError {
        CommandError::Unavailable(format!(
            "{} did not respond within {timeout:?}; the request may have taken effect",
            self.address
        ))
    }
}

/// A body that is read from a reader. Reading blocks, which is fine since nothing else runs meanwhile.
struct ReaderBody(Box<dyn Read + Send>);

/// The bytes of one read.
const CHUNK_BYTES: usize = 64 << 10;

impl http_body::Body for ReaderBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let mut chunk = vec![0; CHUNK_BYTES];
        Poll::Ready(match self.0.read(&mut chunk) {
            Ok(0) => None,
            Ok(length) => {
                chunk.truncate(length);
                Some(Ok(Frame::data(Bytes::from(chunk))))
            }
            Err(error) => Some(Err(error)),
        })
    }
}

/// A file to read, or standard input for `-`.
pub(super) fn input(file: &std::path::Path) -> Result<Box<dyn Read + Send>, CommandError> {
    if file == std::path::Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    match File::open(file) {
        Ok(opened) => Ok(Box::new(opened)),
        Err(error) => Err(CommandError::Usage(format!("{} can't be read: {error}", file.display()))),
    }
}
