//! Redis's protocol, in versions 2 and 3: throttles whose limits come with them.
//!
//! Bytes become commands in `frame` and `command`, the gate decides, and `answers` writes what is sent back. Which commands
//! there are is said in `catalogue`.

mod answers;
mod catalogue;
mod command;
mod connection;
mod frame;
mod reply;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use connection::Connection;

use crate::gate::Gate;
use crate::net::{Closing, Stream};

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Resp {
    gate: Arc<Gate>,
    counts: Counts,
}

/// What `INFO` tells.
#[derive(Debug, Default)]
struct Counts {
    opened: AtomicU64,
    open: AtomicU64,
    commands: AtomicU64,
}

/// An open connection, which is counted until this is dropped.
struct Open<'c>(&'c Counts);

impl Resp {
    /// The space in which the keys of throttles are counted.
    const SPACE: &'static str = "resp";

    pub(crate) fn new(gate: Arc<Gate>) -> Arc<Resp> {
        Arc::new(Resp { gate, counts: Counts::default() })
    }

    /// Serves a connection until one side closes it.
    pub(crate) async fn serve(self: Arc<Self>, stream: Stream, closing: Closing) {
        let (id, _open) = self.counts.open();
        if let Err(error) = Connection::new(self.clone(), stream, closing, id).serve().await {
            // Clients come and go as they like.
            tracing::debug!(%error, "a RESP connection was cut");
        }
    }
}

impl Counts {
    /// Counts a connection and gives it a number that no other has.
    fn open(&self) -> (u64, Open<'_>) {
        self.open.fetch_add(1, Ordering::Relaxed);
        (1 + self.opened.fetch_add(1, Ordering::Relaxed), Open(self))
    }

    fn answered(&self, commands: u64) {
        if commands > 0 {
            self.commands.fetch_add(commands, Ordering::Relaxed);
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl crate::net::workers::Wire for Resp {
    fn serve(self: Arc<Self>, stream: Stream, closing: Closing) -> crate::net::workers::Serving {
        Box::pin(Resp::serve(self, stream, closing))
    }
}
