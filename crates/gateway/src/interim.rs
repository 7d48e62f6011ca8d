//! Informational responses, such as `103 Early Hints`, on their way from a server to a client over HTTP/1.1.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode};

use crate::hop_by_hop;
use crate::http1::write_field;

/// Heads that wait to be written before the response.
#[derive(Debug, Default)]
pub(crate) struct InterimResponses {
    waiting: Mutex<Vec<u8>>,
    is_any_waiting: AtomicBool,
}

/// The most bytes that wait for a client. What does not fit is left out: it is only a hint.
const MAX_WAITING_BYTES: usize = 16 * 1024;

impl InterimResponses {
    /// Passes one on. `100 Continue` is not: the gateway sends its own.
    pub(crate) fn pass(&self, status: StatusCode, mut headers: HeaderMap) {
        if status == StatusCode::CONTINUE {
            return;
        }
        hop_by_hop::clean_response(&mut headers, false);
        let mut head = Vec::new();
        head.extend_from_slice(b"HTTP/1.1 ");
        head.extend_from_slice(status.as_str().as_bytes());
        head.push(b' ');
        head.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
        head.extend_from_slice(b"\r\n");
        for (name, value) in headers.iter().filter(|(name, _)| **name != CONTENT_LENGTH && **name != TRANSFER_ENCODING)
        {
            write_field(name, value, &mut head);
        }
        head.extend_from_slice(b"\r\n");
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() + head.len() <= MAX_WAITING_BYTES {
            waiting.append(&mut head);
            self.is_any_waiting.store(true, Ordering::Relaxed);
        }
    }

    /// Moves what waits to what is written.
    pub(crate) fn take(&self, output: &mut Vec<u8>) {
        // Nearly no request has any.
        if self.is_any_waiting.load(Ordering::Relaxed) && self.is_any_waiting.swap(false, Ordering::Relaxed) {
            output.append(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}
