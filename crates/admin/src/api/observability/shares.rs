//! Places for live streams, of which no caller can take all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The streams that are open, by caller.
#[derive(Debug, Default)]
pub(super) struct StreamShares(Mutex<HashMap<String, usize>>);

/// The place of one stream. It is free again when dropped.
#[derive(Debug)]
pub(super) struct StreamPermit {
    shares: Arc<StreamShares>,
    caller: String,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// All places are taken.
    Full,
    /// The caller has its share.
    OfCaller,
}

/// Live streams of this server.
pub(super) const MAX_STREAMS: usize = 32;
/// Live streams of one caller.
pub(super) const MAX_CALLER_STREAMS: usize = 8;

impl StreamShares {
    /// Takes a place for a caller: a token, a certificate, or this machine.
    pub(super) fn take(self: &Arc<StreamShares>, caller: &str) -> Result<StreamPermit, NoPlace> {
        let mut open = self.open();
        if open.values().sum::<usize>() >= MAX_STREAMS {
            return Err(NoPlace::Full);
        }
        let own = open.entry(caller.to_owned()).or_default();
        if *own >= MAX_CALLER_STREAMS {
            return Err(NoPlace::OfCaller);
        }
        *own += 1;
        Ok(StreamPermit { shares: self.clone(), caller: caller.to_owned() })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut open = self.shares.open();
        if let Some(own) = open.get_mut(&self.caller) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_caller_takes_all_places() {
        let shares = Arc::new(StreamShares::default());
        let mut taken: Vec<_> = (0..MAX_CALLER_STREAMS).map(|_| shares.take("a").unwrap()).collect();
        assert_eq!(shares.take("a").unwrap_err(), NoPlace::OfCaller);
        for caller in ["b", "c", "d"] {
            taken.extend((0..MAX_CALLER_STREAMS).map(|_| shares.take(caller).unwrap()));
        }
        assert_eq!(taken.len(), MAX_STREAMS);
        assert_eq!(shares.take("e").unwrap_err(), NoPlace::Full);
        taken.remove(0);
        assert!(shares.take("e").is_ok());
        drop(taken);
        assert!(shares.open().is_empty());
    }
}
