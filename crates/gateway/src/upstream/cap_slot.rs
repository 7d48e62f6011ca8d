//! Requests under the adaptive cap of an upstream.

use tollgate_shed::{Admission, Begun, Class, RequestEnd, guarded};

use super::{Upstream, monotonic};

/// The cap has no room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CapFull;

/// A request in flight under the adaptive cap of its upstream.
pub(crate) struct CapSlot<'u> {
    upstream: &'u Upstream,
    /// `None` once it is released.
    begun: Option<Begun>,
}

impl<'u> CapSlot<'u> {
    /// Looks whether there is room, before a request is charged. A slot is taken when it is forwarded: until then the upstream
    /// has nothing of it.
    ///
    /// # Errors
    /// If the request is refused, which counts.
    pub(crate) fn look(upstream: &'u Upstream, reserve: Option<usize>, class: Class) -> Result<(), CapFull> {
        if guarded(|| upstream.cap.has_room_for(reserve, class, monotonic()), true) {
            return Ok(());
        }
        // One may just have become free.
        CapSlot::acquire(upstream, reserve, class).map(drop).ok_or(CapFull)
    }

    /// A slot for a caller of the tier whose reserve has this number, or of none. `None` if the request is refused.
    pub(crate) fn acquire(upstream: &'u Upstream, reserve: Option<usize>, class: Class) -> Option<CapSlot<'u>> {
        // A request that no cap counts has no slot to release.
        let begun = guarded(|| Some(upstream.cap.try_acquire_for(reserve, class, monotonic())), None);
        match begun {
            Some(Admission::Admitted(begun) | Admission::WouldRefuse(begun)) => {
                Some(CapSlot { upstream, begun: Some(begun) })
            }
            None => Some(CapSlot { upstream, begun: None }),
            Some(Admission::Refused) => None,
        }
    }

    /// The upstream waits for the request's client.
    pub(crate) fn pause(&mut self) {
        if let Some(begun) = &mut self.begun {
            guarded(|| self.upstream.cap.pause(begun), ());
        }
    }

    /// The upstream can work on the request from now on.
    pub(crate) fn resume(&mut self) {
        if let Some(begun) = &mut self.begun {
            guarded(|| self.upstream.cap.resume(begun, monotonic()), ());
        }
    }

    pub(crate) fn release(mut self, end: RequestEnd) {
        self.end(end);
    }

    fn end(&mut self, end: RequestEnd) {
        if let Some(begun) = self.begun.take() {
            guarded(|| self.upstream.cap.release(begun, monotonic(), end), ());
        }
    }
}

impl Drop for CapSlot<'_> {
    /// The client is gone.
    fn drop(&mut self) {
        self.end(RequestEnd::Unsampled);
    }
}
