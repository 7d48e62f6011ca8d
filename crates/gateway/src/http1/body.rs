//! The body of a request that did not come with its head.
//!
//! The connection reads it, a part at a time and only when that is polled for, and gives it to the request. Mostly both are polled
//! by the same task, the connection's: after it gave a part, it polls the request again, so nobody has to be woken. An upload over
//! HTTP/2 is polled by the task of that connection.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http_body::Frame;

use super::{ChunkEvent, ChunkReader, READ_BYTES};

/// The end of a connection at which the body is read.
pub(crate) struct BodySource {
    rest: BodyRest,
    feed: Arc<Mutex<Feed>>,
}

/// The body, as the request has it.
pub(crate) struct FedBody(Arc<Mutex<Feed>>);

/// What passes between them.
#[derive(Debug, Default)]
struct Feed {
    part: Option<Result<Frame<Bytes>, &'static str>>,
    /// Whether the request waits for a part.
    is_polled: bool,
    /// Whether there is nothing after `part`.
    is_ended: bool,
    /// Who waits for a part, and who waits until one is polled for.
    request: Option<Waker>,
    connection: Option<Waker>,
}

/// What is still to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyRest {
    Known(u64),
    Chunks(ChunkReader),
}

impl BodyRest {
    fn is_end(self) -> bool {
        matches!(self, BodyRest::Known(0) | BodyRest::Chunks(ChunkReader::End))
    }

    /// Takes the next part from what was read. `None` if more has to be read, or at the end.
    fn take(&mut self, input: &mut BytesMut) -> Result<Option<Frame<Bytes>>, &'static str> {
        match self {
            BodyRest::Known(left) => {
                let length = usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
                *left -= length as u64;
                Ok((length > 0).then(|| Frame::data(input.split_to(length).freeze())))
            }
            BodyRest::Chunks(reader) => Ok(match reader.next(input)? {
                ChunkEvent::Data(data) => Some(Frame::data(data)),
                ChunkEvent::Trailers(trailers) => Some(Frame::trailers(trailers)),
                ChunkEvent::End | ChunkEvent::Incomplete => None,
            }),
        }
    }

    /// The whole body, if all of it was read and it has no trailers. Otherwise nothing is taken.
    pub(crate) fn take_whole(self, input: &mut BytesMut) -> Result<Option<Bytes>, &'static str> {
        let mut reader = match self {
            BodyRest::Known(length) => {
                let length = usize::try_from(length).ok().filter(|length| *length <= input.len());
                return Ok(length.map(|length| input.split_to(length).freeze()));
            }
            BodyRest::Chunks(reader) => reader,
        };
        let (mut rest, mut whole) = (input.clone(), BytesMut::new());
        loop {
            match reader.next(&mut rest)? {
                ChunkEvent::Data(data) => whole.extend_from_slice(&data),
                ChunkEvent::End => break,
                ChunkEvent::Trailers(_) | ChunkEvent::Incomplete => return Ok(None),
            }
        }
        *input = rest;
        Ok(Some(whole.freeze()))
    }
}

impl BodySource {
    pub(crate) fn new(rest: BodyRest) -> (BodySource, FedBody) {
        let feed = Arc::<Mutex<Feed>>::default();
        (BodySource { rest, feed: feed.clone() }, FedBody(feed))
    }

    /// Ready when the request waits for a part.
    pub(crate) fn poll_demand(&self, context: &Context<'_>) -> Poll<()> {
        let mut feed = lock(&self.feed);
        register(&mut feed.connection, context);
        if feed.is_polled { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Whether all of it was read.
    pub(crate) fn is_read(&self) -> bool {
        self.rest.is_end()
    }

    /// Whether the request has dropped it.
    pub(crate) fn is_dropped(&self) -> bool {
        Arc::strong_count(&self.feed) == 1
    }

    /// How many bytes are useful to read.
    pub(crate) fn room(&self, most: usize) -> usize {
        let left = match self.rest {
            BodyRest::Known(left) => left,
            BodyRest::Chunks(reader) => reader.left().max(READ_BYTES as u64),
        };
        usize::try_from(left).map_or(most, |left| left.min(most))
    }

    /// Gives the request the next part of what was read. Returns whether there was one.
    pub(crate) fn feed(&mut self, input: &mut BytesMut) -> bool {
        let taken = self.rest.take(input).transpose();
        if taken.is_none() && !self.rest.is_end() {
            return false;
        }
        let mut feed = lock(&self.feed);
        feed.is_ended = self.rest.is_end() || matches!(taken, Some(Err(_)));
        feed.give(taken);
        true
    }

    /// The rest does not come.
    pub(crate) fn fail(&mut self, why: &'static str) {
        let mut feed = lock(&self.feed);
        feed.is_ended = true;
        feed.give(Some(Err(why)));
    }

    /// Discards what was read of it. Returns whether that was all.
    pub(crate) fn discard(&mut self, input: &mut BytesMut) -> bool {
        while let Ok(Some(_)) = self.rest.take(input) {}
        self.rest.is_end()
    }
}

impl Feed {
    fn give(&mut self, part: Option<Result<Frame<Bytes>, &'static str>>) {
        (self.part, self.is_polled) = (part, false);
        let request = self.request.take();
        // The connection polls its own task's request itself.
        if let Some(other) =
            request.filter(|request| !self.connection.as_ref().is_some_and(|own| own.will_wake(request)))
        {
            other.wake();
        }
    }
}

impl FedBody {
    pub(crate) fn poll_frame(&self, context: &Context<'_>) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        let mut feed = lock(&self.0);
        match feed.part.take() {
            Some(part) => Poll::Ready(Some(part)),
            None if feed.is_ended => Poll::Ready(None),
            None => {
                feed.is_polled = true;
                register(&mut feed.request, context);
                if let Some(connection) = feed.connection.take_if(|own| !own.will_wake(context.waker())) {
                    connection.wake();
                }
                Poll::Pending
            }
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        let feed = lock(&self.0);
        feed.is_ended && feed.part.is_none()
    }
}

fn register(waker: &mut Option<Waker>, context: &Context<'_>) {
    if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
        *waker = Some(context.waker().clone());
    }
}

fn lock(feed: &Mutex<Feed>) -> MutexGuard<'_, Feed> {
    feed.lock().unwrap_or_else(PoisonError::into_inner)
}
