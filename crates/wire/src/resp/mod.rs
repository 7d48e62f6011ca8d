//! The Redis protocol, versions 2 and 3: throttles with their limits.
//!
//! `frame` and `command` parse, the gate decides, and `handlers` writes the replies. `catalogue` lists the commands.

mod catalogue;
mod command;
mod connection;
mod frame;
mod handlers;
mod reply;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use connection::RespConnection;

use crate::gate::Gate;
use tollgate_net::budget::Budget;
use tollgate_net::{Closing, Slot, Stream};

/// The RESP wire.
#[derive(Debug)]
pub struct Resp {
    gate: Arc<Gate>,
    counts: RespCounts,
    /// The memory of unfinished commands, over all connections.
    arriving: Budget,
    /// How long a command may take to arrive.
    command_timeout: Duration,
}

/// The memory of all input buffers, beyond what every connection has. A connection whose unfinished command needs more is closed.
const MAX_ARRIVING_BYTES: usize = 64 * 1024 * 1024;

/// The counters of `INFO`.
#[derive(Debug, Default)]
struct RespCounts {
    opened: AtomicU64,
    open: AtomicU64,
    commands: AtomicU64,
}

/// An open connection, until this is dropped.
struct OpenConnection<'c>(&'c RespCounts);

impl Resp {
    /// The key space of throttles.
    const SPACE: &'static str = "resp";

    /// `command_timeout`: how long a command may take to arrive, from its first byte.
    pub fn new(gate: Arc<Gate>, command_timeout: Duration) -> Arc<Resp> {
        let (counts, arriving) = (RespCounts::default(), Budget::new(MAX_ARRIVING_BYTES));
        Arc::new(Resp { gate, counts, arriving, command_timeout })
    }

    /// Serves a connection until one side closes it.
    pub async fn serve(self: Arc<Self>, stream: Stream, closing: Closing, slot: Arc<Slot>) {
        let (id, _open) = self.counts.open();
        if let Err(error) = RespConnection::new(&self, stream, closing, slot, id).serve().await {
            // Clients may disconnect at any time.
            tracing::debug!(%error, "RESP connection failed");
        }
    }
}

impl RespCounts {
    /// Counts a connection and returns its unique number.
    fn open(&self) -> (u64, OpenConnection<'_>) {
        self.open.fetch_add(1, Ordering::Relaxed);
        (1 + self.opened.fetch_add(1, Ordering::Relaxed), OpenConnection(self))
    }

    fn answered(&self, commands: u64) {
        if commands > 0 {
            self.commands.fetch_add(commands, Ordering::Relaxed);
        }
    }
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl tollgate_net::workers::Wire for Resp {
    fn serve(
        self: Arc<Self>,
        stream: Stream,
        closing: Closing,
        slot: Arc<Slot>,
    ) -> tollgate_net::workers::ConnectionFuture {
        Box::pin(Resp::serve(self, stream, closing, slot))
    }
}
