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

use connection::RespConnection;

use crate::gate::Gate;
use tollgate_net::{Closing, Stream};

/// The RESP wire.
#[derive(Debug)]
pub struct Resp {
    gate: Arc<Gate>,
    counts: RespCounts,
}

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

    pub fn new(gate: Arc<Gate>) -> Arc<Resp> {
        Arc::new(Resp { gate, counts: RespCounts::default() })
    }

    /// Serves a connection until one side closes it.
    pub async fn serve(self: Arc<Self>, stream: Stream, closing: Closing) {
        let (id, _open) = self.counts.open();
        if let Err(error) = RespConnection::new(self.clone(), stream, closing, id).serve().await {
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
    fn serve(self: Arc<Self>, stream: Stream, closing: Closing) -> tollgate_net::workers::ConnectionFuture {
        Box::pin(Resp::serve(self, stream, closing))
    }
}
