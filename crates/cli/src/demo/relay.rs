//! `tollgate demo-relay`: the way to another region, for `make demo-regions`. It passes bytes on to one address, takes its time, and
//! stands still on demand.

use std::net::SocketAddr;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use clap::Args;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Sleep;

use super::run_to_end;

/// A relay for the demo
///
/// SIGUSR1 stalls it: connections stay, and nothing passes. After SIGUSR2 everything passes again.
#[derive(Debug, Args)]
pub(crate) struct DemoRelay {
    /// Where to listen
    #[arg(long, value_name = "HOST:PORT")]
    listen: SocketAddr,
    /// Where to pass bytes on to
    #[arg(long, value_name = "HOST:PORT")]
    to: SocketAddr,
    /// How long bytes are under way, in each direction, in milliseconds
    #[arg(long, value_name = "MS", default_value = "20", value_parser = clap::value_parser!(u32).range(..=10_000))]
    delay: u32,
}

/// Connections at the same time. Others wait for their turn.
const MAX_CONNECTIONS: usize = 1_024;
/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 16 * 1024;
/// Chunks that are under way in one direction of a connection. Beyond that its sender waits.
const MAX_CHUNKS: usize = 256;

/// Bytes, and the time at which they arrive.
type Chunk = (Pin<Box<Sleep>>, Bytes);

impl DemoRelay {
    pub(crate) fn run(&self) -> ExitCode {
        run_to_end(self.serve())
    }

    async fn serve(&self) -> Result<(), String> {
        let listener = TcpListener::bind(self.listen).await.map_err(|error| format!("{}: {error}", self.listen))?;
        let of = |kind| signal(kind).map_err(|error| format!("signals can't be received: {error}"));
        let (stall, pass) = (of(SignalKind::user_defined1())?, of(SignalKind::user_defined2())?);
        let is_stalled = watch::Sender::new(false);
        tokio::select! {
            relayed = relay(listener, self.to, Duration::from_millis(self.delay.into()), is_stalled.subscribe()) => relayed,
            () = follow(stall, pass, &is_stalled) => Ok(()),
        }
    }
}

/// Stalls and passes as signals say.
async fn follow(mut stall: Signal, mut pass: Signal, is_stalled: &watch::Sender<bool>) {
    loop {
        let now = tokio::select! {
            Some(()) = stall.recv() => true,
            Some(()) = pass.recv() => false,
            else => return,
        };
        is_stalled.send_replace(now);
    }
}

/// Relays connections until the listener fails.
async fn relay(
    listener: TcpListener,
    to: SocketAddr,
    delay: Duration,
    is_stalled: watch::Receiver<bool>,
) -> Result<(), String> {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = connections.clone().acquire_owned().await else { return Ok(()) };
        let (client, _) = listener.accept().await.map_err(|error| error.to_string())?;
        let is_stalled = is_stalled.clone();
        tokio::spawn(async move {
            // A connection to nowhere ends.
            if let Ok(server) = TcpStream::connect(to).await {
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
                tokio::select! {
                    () = pass(from_client, to_server, delay, is_stalled.clone()) => {}
                    () = pass(from_server, to_client, delay, is_stalled) => {}
                }
            }
            drop(permit);
        });
    }
}

/// Passes the bytes of one direction until it ends.
async fn pass(from: OwnedReadHalf, to: OwnedWriteHalf, delay: Duration, is_stalled: watch::Receiver<bool>) {
    let (sender, receiver) = mpsc::channel(MAX_CHUNKS);
    tokio::join!(read(from, sender, delay), write(receiver, to, is_stalled));
}

async fn read(mut from: OwnedReadHalf, sender: mpsc::Sender<Chunk>, delay: Duration) {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(CHUNK_BYTES);
        if !from.read_buf(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {
            return;
        }
        // The time runs from here on, while chunks before it are under way.
        let arrives = Box::pin(tokio::time::sleep(delay));
        if sender.send((arrives, buffer.split().freeze())).await.is_err() {
            return;
        }
    }
}

async fn write(mut receiver: mpsc::Receiver<Chunk>, mut to: OwnedWriteHalf, mut is_stalled: watch::Receiver<bool>) {
    while let Some((arrives, bytes)) = receiver.recv().await {
        arrives.await;
        if is_stalled.wait_for(|is_stalled| !is_stalled).await.is_err() || to.write_all(&bytes).await.is_err() {
            // The reader learns that nobody listens.
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tollgate::{Clock as _, Span, SystemClock};

    use super::*;

    /// A server that sends back what it gets, and a relay to it.
    async fn echo(delay: Duration) -> (TcpStream, watch::Sender<bool>) {
        let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let (server, listener) = (bind().await.unwrap(), bind().await.unwrap());
        let (to, through) = (server.local_addr().unwrap(), listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = server.accept().await.unwrap();
            let (mut from, mut to) = stream.split();
            let _ = tokio::io::copy(&mut from, &mut to).await;
        });
        let is_stalled = watch::Sender::new(false);
        tokio::spawn(relay(listener, to, delay, is_stalled.subscribe()));
        (TcpStream::connect(through).await.unwrap(), is_stalled)
    }

    async fn answer(stream: &mut TcpStream, text: &str) -> String {
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = vec![0; text.len()];
        stream.read_exact(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn bytes_take_their_time_in_both_directions() {
        let (mut stream, _passing) = echo(Duration::from_millis(20)).await;
        let (clock, text) = (SystemClock::default(), "x".repeat(100_000));
        let begun = clock.now();
        assert_eq!(answer(&mut stream, &text).await, text);
        assert!(clock.now().since(begun) >= Span::from_micros(40_000));
    }

    #[tokio::test]
    async fn nothing_passes_a_stalled_relay_and_nothing_is_lost() {
        let (mut stream, is_stalled) = echo(Duration::ZERO).await;
        assert_eq!(answer(&mut stream, "one").await, "one");
        is_stalled.send_replace(true);
        let mut answered = Box::pin(answer(&mut stream, "two"));
        assert!(tokio::time::timeout(Duration::from_millis(50), &mut answered).await.is_err());
        is_stalled.send_replace(false);
        assert_eq!(answered.await, "two");
    }
}
