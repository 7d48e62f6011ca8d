//! The one message of a call, as it arrives and as it is sent: five bytes of prefix, then the message.

use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::RecvStream;
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};
use tollgate_net::budget::Reservation;

use super::status::GrpcStatus;
use crate::envoy::EnvoyResponse;

/// What a call brings.
pub(super) enum Arrival {
    /// Its message.
    Message(Bytes),
    /// A message that is too large, or for which there is no memory. The domain is at its beginning.
    Undecided(Option<String>),
}

/// A message of which a part has arrived.
pub(super) struct ArrivingMessage<'b> {
    /// The largest message.
    max: usize,
    share: Reservation<'b>,
    first: Bytes,
    /// All of it, if it comes in several frames.
    more: BytesMut,
    /// Set once it is too large.
    excess: Option<Excess>,
}

/// What is known of a message that is too large.
struct Excess {
    domain: Option<String>,
    received: usize,
}

/// The prefix of a message: whether it is compressed, and its length.
pub(super) const PREFIX_BYTES: usize = 5;
/// How much of a message that is too large is read, so that the response does not reset the stream.
const MAX_DISCARDED_BYTES: usize = 16 * 1024 * 1024;
/// The number of the field `domain`.
const DOMAIN_FIELD: u32 = 1;

impl<'b> ArrivingMessage<'b> {
    /// A message of at most so many bytes, whose memory is counted.
    pub(super) fn new(max: usize, share: Reservation<'b>) -> ArrivingMessage<'b> {
        ArrivingMessage { max, share, first: Bytes::new(), more: BytesMut::new(), excess: None }
    }

    /// Reads what has arrived. The stream is read to its end: a response before the end of the request would reset it,
    /// which counts against the connection.
    pub(super) fn poll(
        &mut self,
        body: &mut RecvStream,
        context: &mut Context<'_>,
    ) -> Poll<Result<Arrival, GrpcStatus>> {
        if self.excess.is_some() {
            return self.discard(body, context);
        }
        while let Some(data) = ready!(body.poll_data(context)) {
            let Ok(data) = data else { return Poll::Ready(Err(GrpcStatus::cut_off())) };
            let length = data.len();
            self.append(data);
            let is_end = body.is_end_stream();
            let received = self.received().len();
            if received > PREFIX_BYTES + self.max {
                release(body, length);
                self.excess = Some(Excess { domain: domain(self.received()), received });
                (self.first, self.more) = (Bytes::new(), BytesMut::new());
                self.share.resize(0);
                return self.discard(body, context);
            }
            if is_end {
                // The window of the last frame is given back to the connection when the stream is dropped.
                break;
            }
            release(body, length);
            if !self.share.grow(length) {
                return Poll::Ready(Ok(Arrival::Undecided(domain(self.received()))));
            }
        }
        Poll::Ready(self.complete())
    }

    fn append(&mut self, data: Bytes) {
        if self.first.is_empty() {
            self.first = data;
        } else if !data.is_empty() {
            if self.more.is_empty() {
                self.more.extend_from_slice(&self.first);
            }
            self.more.extend_from_slice(&data);
        }
    }

    fn received(&self) -> &[u8] {
        if self.more.is_empty() { &self.first } else { &self.more }
    }

    /// The message without its prefix.
    fn complete(&mut self) -> Result<Arrival, GrpcStatus> {
        let (first, more) = (std::mem::take(&mut self.first), std::mem::take(&mut self.more));
        let mut message = if more.is_empty() { first } else { more.freeze() };
        let Some((compressed, length)) = prefix(&message) else { return Err(GrpcStatus::cut_off()) };
        if compressed {
            return Err(GrpcStatus::compressed());
        }
        message.advance(PREFIX_BYTES);
        if message.len() == length { Ok(Arrival::Message(message)) } else { Err(GrpcStatus::cut_off()) }
    }

    /// Reads the rest of a message that is too large, unless it is very long.
    #[cold]
    fn discard(&mut self, body: &mut RecvStream, context: &mut Context<'_>) -> Poll<Result<Arrival, GrpcStatus>> {
        let excess = self.excess.get_or_insert(Excess { domain: None, received: 0 });
        while excess.received <= MAX_DISCARDED_BYTES && !body.is_end_stream() {
            match ready!(body.poll_data(context)) {
                Some(Ok(data)) => {
                    excess.received += data.len();
                    release(body, data.len());
                }
                Some(Err(_)) => return Poll::Ready(Err(GrpcStatus::cut_off())),
                None => break,
            }
        }
        Poll::Ready(Ok(Arrival::Undecided(excess.domain.take())))
    }
}

/// Lets the client send as many bytes again.
pub(super) fn release(body: &mut RecvStream, bytes: usize) {
    // It fails only for more bytes than were received.
    let _ = body.flow_control().release_capacity(bytes);
}

/// The domain of a message of which only the beginning is known: the first field, as gateways write it.
fn domain(beginning: &[u8]) -> Option<String> {
    let mut message = beginning.get(PREFIX_BYTES..)?;
    let (DOMAIN_FIELD, WireType::LengthDelimited) = decode_key(&mut message).ok()? else { return None };
    let length = usize::try_from(decode_varint(&mut message).ok()?).ok()?;
    str::from_utf8(message.get(..length)?).ok().map(str::to_owned)
}

/// Encodes the response with its prefix.
pub(super) fn encode(response: &EnvoyResponse) -> Result<Bytes, GrpcStatus> {
    let EnvoyResponse { message, client } = response;
    let length = message.encoded_len() + client.len();
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + length);
    put_prefix(&mut bytes, length);
    message.encode(&mut bytes).map_err(|error| GrpcStatus::internal(error.to_string()))?;
    bytes.put_slice(client);
    Ok(bytes.freeze())
}

/// Writes the prefix of a message of this length.
pub(super) fn put_prefix(bytes: &mut BytesMut, length: usize) {
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
}

/// Reads the prefix of a message: whether it is compressed, and its length.
fn prefix(bytes: &[u8]) -> Option<(bool, usize)> {
    let (prefix, _) = bytes.split_first_chunk::<PREFIX_BYTES>()?;
    let [compressed, length @ ..] = *prefix;
    Some((compressed != 0, u32::from_be_bytes(length) as usize))
}
