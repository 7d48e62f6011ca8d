//! Connections of HTTP/2 to servers, which many requests use at the same time.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use super::server::now;
use super::stream::ServerStream;

/// The most requests at the same time on a connection, whatever its server allows.
pub(super) const MAX_STREAMS: usize = 100;

/// The requests of a connection.
pub(super) struct Multiplexed {
    open: AtomicUsize,
    observed: Arc<Observed>,
    /// When the last one ended, in microseconds.
    used: AtomicU64,
    freed: Arc<Notify>,
}

/// A request on a connection.
pub(crate) struct OpenStream(Arc<Multiplexed>);

/// What the bytes of a connection say.
#[derive(Debug)]
pub(super) struct Observed {
    /// How many requests the server allows at the same time. Until it says so, as many as there may be.
    allowed: AtomicUsize,
    written: AtomicU64,
}

/// A server's connection of HTTP/2 as hyper reads and writes it.
pub(super) struct ObservedStream {
    stream: ServerStream,
    frames: FrameReader,
    observed: Arc<Observed>,
}

/// Finds the settings in what a peer sends (RFC 9113 4.1, 6.5).
#[derive(Debug, Default)]
struct FrameReader {
    /// The head of a frame, or a setting, as far as it came.
    part: [u8; HEAD_BYTES],
    length: usize,
    /// What is left of the payload of a frame.
    left: usize,
    is_settings: bool,
}

const HEAD_BYTES: usize = 9;
const SETTING_BYTES: usize = 6;
const SETTINGS: u8 = 4;
const MAX_CONCURRENT_STREAMS: [u8; 2] = [0, 3];

// === impl Multiplexed ===

impl Multiplexed {
    pub(super) fn new(observed: Arc<Observed>, freed: Arc<Notify>) -> Arc<Multiplexed> {
        Arc::new(Multiplexed { open: AtomicUsize::new(0), observed, used: AtomicU64::new(now()), freed })
    }

    /// A request more, if the server allows one.
    pub(super) fn open(self: &Arc<Self>) -> Option<OpenStream> {
        let most = self.observed.allowed();
        let grown = |open: usize| (open < most).then_some(open + 1);
        self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).ok()?;
        Some(OpenStream(self.clone()))
    }

    /// Since when it has not been used. `None` while it is.
    pub(super) fn unused_since(&self) -> Option<u64> {
        (self.open.load(Ordering::Relaxed) == 0).then(|| self.used.load(Ordering::Relaxed))
    }
}

impl OpenStream {
    /// The bytes that were written on its connection so far. If there are none since a request began, nothing of it was sent.
    pub(super) fn written(&self) -> u64 {
        self.0.observed.written.load(Ordering::Relaxed)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.used.store(now(), Ordering::Relaxed);
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.freed.notify_one();
    }
}

// === impl Observed ===

impl Default for Observed {
    fn default() -> Observed {
        Observed { allowed: AtomicUsize::new(MAX_STREAMS), written: AtomicU64::new(0) }
    }
}

impl Observed {
    fn allowed(&self) -> usize {
        self.allowed.load(Ordering::Relaxed)
    }

    /// The server allows so many requests. One that allows none for a while gets one, which waits.
    fn allow(&self, streams: u32) {
        let streams = usize::try_from(streams).map_or(MAX_STREAMS, |streams| streams.clamp(1, MAX_STREAMS));
        self.allowed.store(streams, Ordering::Relaxed);
    }

    fn note(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.written.fetch_add(*bytes as u64, Ordering::Relaxed);
        }
    }
}

// === impl ObservedStream ===

impl ObservedStream {
    pub(super) fn new(stream: ServerStream) -> (ObservedStream, Arc<Observed>) {
        let observed = Arc::<Observed>::default();
        (ObservedStream { stream, frames: FrameReader::default(), observed: observed.clone() }, observed)
    }
}

impl AsyncRead for ObservedStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let ObservedStream { stream, frames, observed } = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(stream).poll_read(context, buffer);
        frames.read(&buffer.filled()[before..], |streams| observed.allow(streams));
        read
    }
}

impl AsyncWrite for ObservedStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let ObservedStream { stream, observed, .. } = self.get_mut();
        let written = Pin::new(stream).poll_write(context, bytes);
        observed.note(&written);
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let ObservedStream { stream, observed, .. } = self.get_mut();
        let written = Pin::new(stream).poll_write_vectored(context, slices);
        observed.note(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

// === impl FrameReader ===

impl FrameReader {
    /// Reads what came. `streams` is called with how many streams the peer allows.
    fn read(&mut self, mut bytes: &[u8], streams: impl Fn(u32)) {
        while !bytes.is_empty() {
            if self.left > 0 && !self.is_settings {
                let skipped = self.left.min(bytes.len());
                (self.left, bytes) = (self.left - skipped, &bytes[skipped..]);
                continue;
            }
            let expected = if self.left > 0 { SETTING_BYTES.min(self.left + self.length) } else { HEAD_BYTES };
            let taken = (expected - self.length).min(bytes.len());
            let (part, rest) = bytes.split_at(taken);
            self.part[self.length..self.length + taken].copy_from_slice(part);
            (self.length, bytes) = (self.length + taken, rest);
            let is_head = self.left == 0;
            if !is_head {
                self.left -= taken;
            }
            if self.length < expected {
                continue;
            }
            self.length = 0;
            match (is_head, self.part) {
                (true, [high, middle, low, kind, ..]) => {
                    self.left = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
                    self.is_settings = kind == SETTINGS;
                }
                (false, [first, second, a, b, c, d, ..]) if expected == SETTING_BYTES => {
                    if [first, second] == MAX_CONCURRENT_STREAMS {
                        streams(u32::from_be_bytes([a, b, c, d]));
                    }
                }
                (false, _) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, 0], payload].concat()
    }

    fn setting(id: u16, value: u32) -> Vec<u8> {
        [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()
    }

    #[test]
    fn settings_are_found_however_they_arrive() {
        let first = frame(SETTINGS, &[setting(1, 4_096), setting(3, 7), setting(4, 65_535)].concat());
        let data = frame(0, &[setting(3, 99), vec![4; 30_000]].concat());
        let bytes = [first, frame(SETTINGS, &[]), data, frame(SETTINGS, &setting(3, 8)), frame(6, &[0; 8])].concat();
        for size in [1, 2, 5, 7, 9, 100, bytes.len()] {
            let (mut reader, found) = (FrameReader::default(), RefCell::new(Vec::new()));
            bytes.chunks(size).for_each(|part| reader.read(part, |streams| found.borrow_mut().push(streams)));
            assert_eq!(found.into_inner(), [7, 8], "in parts of {size}");
        }
    }

    #[test]
    fn settings_of_an_odd_length_are_skipped() {
        let bytes = [frame(SETTINGS, &[0, 3, 0]), frame(SETTINGS, &setting(3, 8))].concat();
        let found = RefCell::new(Vec::new());
        FrameReader::default().read(&bytes, |streams| found.borrow_mut().push(streams));
        assert_eq!(found.into_inner(), [8]);
    }

    #[test]
    fn as_many_streams_are_open_as_the_server_allows() {
        let observed = Arc::<Observed>::default();
        let connection = Multiplexed::new(observed.clone(), Arc::default());
        let open = || (0..1_000).map_while(|_| connection.open()).collect::<Vec<_>>().len();
        assert_eq!(open(), MAX_STREAMS);
        for (says, most) in [(7, 7), (u32::MAX, MAX_STREAMS), (0, 1)] {
            observed.allow(says);
            assert_eq!(open(), most, "{says}");
        }
        let stream = connection.open();
        assert!(stream.is_some() && connection.unused_since().is_none());
        drop(stream);
        assert!(connection.unused_since().is_some());
    }
}
