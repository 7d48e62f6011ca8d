//! Reads of connections.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::io::poll_read_buf;

/// Room for a read, if nothing is known of what will come.
pub(crate) const READ_BYTES: usize = 8 * 1024;

/// Reads into a buffer. `room` is what is useful, if that is known.
///
/// If it is not known, and the buffer is empty, what comes is first read elsewhere: then the buffer has the size of what came, and
/// one of a connection on which nothing comes takes no memory.
pub(crate) fn poll_read(
    stream: &mut (impl AsyncRead + Unpin),
    context: &mut Context<'_>,
    input: &mut BytesMut,
    room: Option<usize>,
) -> Poll<io::Result<usize>> {
    if room.is_some() || !input.is_empty() {
        input.reserve(room.unwrap_or(READ_BYTES));
        return poll_read_buf(Pin::new(stream), context, input);
    }
    let mut bytes = [MaybeUninit::uninit(); READ_BYTES];
    let mut buffer = ReadBuf::uninit(&mut bytes);
    ready!(Pin::new(stream).poll_read(context, &mut buffer))?;
    *input = BytesMut::from(buffer.filled());
    Poll::Ready(Ok(input.len()))
}
