//! What a server needs to know of its fleet and its counters if the store is unavailable after a restart.
//!
//! The format: a magic text with the version, a checksum of the rest, and numbers of eight bytes, little-endian: the two
//! halves of the secret by which keys are hashed, the number of servers, and the last readings.

use std::fmt;

use tollgate_core::Timestamp;
use tollgate_core::key::HashSecret;

use super::Guarded;
use super::local::SavedReading;
use crate::clock::Clock;
use crate::secret;
use crate::sharded::Sharded;

/// The state of a [`Guarded`] store that survives a restart.
#[derive(Debug)]
pub struct SavedGuard {
    pub(super) secret: HashSecret,
    pub(super) replicas: u64,
    pub(super) readings: Vec<SavedReading>,
}

/// Why a saved state cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedGuardError(&'static str);

const MAGIC: &[u8; 8] = b"TGguard1";
const WORD: usize = size_of::<u64>();
/// The secret and the number of servers.
const HEAD_WORDS: usize = 3;

impl SavedGuard {
    /// The state of a store that knows the number of servers, and no counters.
    pub fn new(replicas: u64) -> SavedGuard {
        SavedGuard { secret: secret::random(), replicas, readings: Vec::new() }
    }

    /// Encodes the state.
    pub fn to_bytes(&self) -> Vec<u8> {
        let HashSecret(high, low) = self.secret;
        let numbers = self.readings.iter().flat_map(|reading| reading.0);
        let body: Vec<u8> = [high, low, self.replicas].into_iter().chain(numbers).flat_map(u64::to_le_bytes).collect();
        let checksum = u64::from(crc32fast::hash(&body)).to_le_bytes();
        [MAGIC.as_slice(), &checksum, &body].concat()
    }

    /// Decodes a state.
    ///
    /// # Errors
    /// If the bytes are damaged, or of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<SavedGuard, SavedGuardError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(SavedGuardError("it is of another kind or version"))?;
        let (checksum, body) = rest.split_first_chunk::<WORD>().ok_or(SavedGuardError("it is too short"))?;
        if u64::from_le_bytes(*checksum) != u64::from(crc32fast::hash(body)) {
            return Err(SavedGuardError("its checksum is wrong"));
        }
        let (words, rest) = body.as_chunks::<WORD>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let (head, readings) = words.split_first_chunk::<HEAD_WORDS>().ok_or(SavedGuardError("it is too short"))?;
        let (readings, more) = readings.as_chunks::<{ SavedReading::NUMBERS }>();
        if !rest.is_empty() || !more.is_empty() {
            return Err(SavedGuardError("it ends within a reading"));
        }
        let [high, low, replicas] = *head;
        let readings = readings.iter().copied().map(SavedReading).collect();
        Ok(SavedGuard { secret: HashSecret(high, low), replicas, readings })
    }

    /// The number of servers.
    pub fn replicas(&self) -> u64 {
        self.replicas
    }

    /// The number of counters with a reading.
    pub fn readings(&self) -> usize {
        self.readings.len()
    }
}

impl<S: Sharded, C: Clock> Guarded<S, C> {
    /// The state to restore after a restart: the number of servers, and what is left of the counters.
    pub fn save(&self) -> SavedGuard {
        let replicas = self.replicas();
        let (secret, readings) = self.local.save(replicas, self.clock.now());
        SavedGuard { secret, replicas, readings }
    }

    pub(super) fn restore(&self, saved: &SavedGuard, now: Timestamp) {
        self.local.restore(&saved.readings, now);
    }
}

impl fmt::Display for SavedGuardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for SavedGuardError {}
