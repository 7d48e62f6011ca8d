//! Counts the requests inside the handlers, and reports them to a witness, if there is one.
//!
//! The witness is how tests count over several processes, one of which they kill: each request inside has a connection
//! to it, which closes when the request leaves or its process dies. A request enters before it does anything, and
//! leaves before others are admitted: the witness has counted it when `enter` and `drop` return.

use std::fmt;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the requests inside.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    inside: AtomicUsize,
    most: AtomicUsize,
    address: Option<SocketAddr>,
}

/// A request inside, until this is dropped.
#[derive(Debug)]
pub(crate) struct Inside {
    witness: Arc<Witness>,
    connection: Option<TcpStream>,
}

impl Witness {
    pub(crate) fn new(address: Option<SocketAddr>) -> Witness {
        Witness { address, ..Witness::default() }
    }

    pub(crate) fn enter(self: &Arc<Self>) -> Inside {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        let connection = self.address.and_then(|address| {
            let mut connection = TcpStream::connect(address).ok()?;
            connection.write_all(b"+").ok()?;
            connection.read_exact(&mut [0]).ok()?;
            Some(connection)
        });
        Inside { witness: self.clone(), connection }
    }
}

impl fmt::Display for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} inside, {} at most", self.inside.load(Ordering::SeqCst), self.most.load(Ordering::SeqCst))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.connection {
            // A witness that is gone no longer counts.
            let _ = connection.shutdown(Shutdown::Write);
            let _ = connection.read(&mut [0]);
        }
        self.witness.inside.fetch_sub(1, Ordering::SeqCst);
    }
}
