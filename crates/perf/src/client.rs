//! Clients that cost next to nothing: requests are bytes that were made before, and of responses only the end is looked
//! for. What is measured is the server.

use std::io;

use memchr::memmem::find;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// A connection of a client, and what was received and not read yet.
#[derive(Debug)]
pub(crate) struct RawClient {
    stream: UnixStream,
    received: Vec<u8>,
}

/// HTTP/2's preface; settings with the largest window for every stream; the largest window for the connection; an
/// acknowledgement of the server's settings.
const HTTP2_START: [&[u8]; 4] = [
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xff],
    &[0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0xff, 0, 0],
    &[0, 0, 0, 4, 1, 0, 0, 0, 0],
];

const FRAME_HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

impl RawClient {
    pub(crate) fn new(stream: UnixStream) -> RawClient {
        RawClient { stream, received: Vec::with_capacity(4 * 1024) }
    }

    pub(crate) async fn start_http2(&mut self) -> io::Result<()> {
        self.stream.write_all(&HTTP2_START.concat()).await
    }

    /// Sends bytes, and waits until `end` finds the end of the response in what was received.
    pub(crate) async fn call(&mut self, request: &[u8], end: impl Fn(&[u8]) -> Option<usize>) -> io::Result<()> {
        let length = self.exchange(request, end).await?;
        self.received.drain(..length);
        Ok(())
    }

    /// The same, and returns the response.
    pub(crate) async fn call_for(
        &mut self,
        request: &[u8],
        end: impl Fn(&[u8]) -> Option<usize>,
    ) -> io::Result<Vec<u8>> {
        let length = self.exchange(request, end).await?;
        Ok(self.received.drain(..length).collect())
    }

    async fn exchange(&mut self, request: &[u8], end: impl Fn(&[u8]) -> Option<usize>) -> io::Result<usize> {
        self.stream.write_all(request).await?;
        loop {
            if let Some(length) = end(&self.received) {
                return Ok(length);
            }
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// The end of an HTTP/1.1 response with a content length.
pub(crate) fn http1_end(received: &[u8]) -> Option<usize> {
    let head = find(received, b"\r\n\r\n")? + 4;
    let length = find(&received[..head], b"content-length: ")? + 16;
    let digits = received[length..head].iter().take_while(|byte| byte.is_ascii_digit());
    let body = digits.fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'));
    (received.len() >= head + body).then_some(head + body)
}

/// The end of the frames that end a stream: the trailers of a gRPC response.
pub(crate) fn http2_end(received: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(head) = received.get(at..at + FRAME_HEAD) {
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        at += FRAME_HEAD + length;
        if received.len() < at {
            return None;
        }
        if head[3] == HEADERS && head[4] & END_STREAM != 0 {
            return Some(at);
        }
    }
    None
}

/// The end of so many RESP replies, each an array of five integers.
pub(crate) fn resp_end(received: &[u8], replies: usize) -> Option<usize> {
    const LINES: usize = 6;
    let mut ends = received.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    ends.nth(replies * LINES - 1)
}

/// A gRPC call as frames: headers in literals, and the message with its prefix.
pub(crate) fn grpc_frames(path: &str, message: &[u8]) -> Vec<u8> {
    let mut headers = vec![0x83, 0x86];
    literal(&mut headers, &[0x04], path);
    literal(&mut headers, &[0x01], "tollgate");
    literal(&mut headers, &[0x0f, 0x10], "application/grpc");
    let mut data = vec![0];
    data.extend_from_slice(&(message.len() as u32).to_be_bytes());
    data.extend_from_slice(message);
    let mut frames = Vec::new();
    frame(&mut frames, HEADERS, END_HEADERS, &headers);
    frame(&mut frames, DATA, END_STREAM, &data);
    frames
}

/// Puts the number of a stream into both frames of a call.
pub(crate) fn set_stream(frames: &mut [u8], stream: u32) {
    const STREAM_AT: usize = 5;
    let length = usize::from(frames[1]) << 8 | usize::from(frames[2]);
    for at in [STREAM_AT, FRAME_HEAD + length + STREAM_AT] {
        frames[at..at + 4].copy_from_slice(&stream.to_be_bytes());
    }
}

fn frame(frames: &mut Vec<u8>, kind: u8, flags: u8, payload: &[u8]) {
    frames.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    frames.extend_from_slice(&[kind, flags, 0, 0, 0, 0]);
    frames.extend_from_slice(payload);
}

/// A header field that is not indexed, whose name is.
fn literal(headers: &mut Vec<u8>, name: &[u8], value: &str) {
    headers.extend_from_slice(name);
    headers.push(value.len() as u8);
    headers.extend_from_slice(value.as_bytes());
}
