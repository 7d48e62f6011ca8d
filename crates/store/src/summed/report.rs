//! What servers publish, and what they learn from each other.

use tollgate_core::ClaimId;

use super::MAX_COUNTERS;

/// The count of a key, which has the same digest on all servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyCount {
    /// The digest of the key.
    pub key: u128,
    /// The requests in flight.
    pub in_flight: u32,
}

/// A change of holds that another server may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A request has ended.
    Release {
        /// The digest of the key.
        key: u128,
        /// The claim that took the hold.
        by: ClaimId,
    },
    /// A request is still running: its hold is extended.
    Renew {
        /// The digest of the key.
        key: u128,
        /// The claim that took the hold.
        by: ClaimId,
    },
    /// All holds of the key are dropped.
    Reset {
        /// The digest of the key.
        key: u128,
    },
}

/// What a server publishes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Its counts that are not zero.
    pub counts: Vec<KeyCount>,
    /// Notes for the other servers.
    pub notes: Vec<Note>,
}

/// What a server learns from the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherReports {
    /// The counts of each other server that is alive.
    pub reports: Vec<Vec<KeyCount>>,
    /// Their new notes.
    pub notes: Vec<Note>,
}

/// The length of an encoded count.
const COUNT_BYTES: usize = 20;
/// The length of an encoded note.
const NOTE_BYTES: usize = 33;

/// The counts of a report as bytes: digests and numbers, little endian.
pub fn encode_counts(counts: &[KeyCount]) -> Vec<u8> {
    counts.iter().flat_map(|count| count.key.to_le_bytes().into_iter().chain(count.in_flight.to_le_bytes())).collect()
}

/// The counts in these bytes. What is not a whole count, or too much, is ignored.
pub fn decode_counts(bytes: &[u8]) -> Vec<KeyCount> {
    let (counts, _) = bytes.as_chunks::<COUNT_BYTES>();
    let count = |bytes: &[u8; COUNT_BYTES]| {
        let (key, in_flight) = bytes.split_first_chunk::<16>()?;
        let in_flight = u32::from_le_bytes(in_flight.try_into().ok()?);
        Some(KeyCount { key: u128::from_le_bytes(*key), in_flight })
    };
    counts.iter().take(MAX_COUNTERS).filter_map(count).collect()
}

impl Note {
    /// The note as bytes: its kind, the digest and the claim.
    pub fn encode(self) -> [u8; NOTE_BYTES] {
        let (kind, key, by) = match self {
            Note::Release { key, by } => (b'-', key, by),
            Note::Renew { key, by } => (b'+', key, by),
            Note::Reset { key } => (b'0', key, ClaimId::default()),
        };
        let mut bytes = [kind; NOTE_BYTES];
        bytes[1..17].copy_from_slice(&key.to_le_bytes());
        bytes[17..].copy_from_slice(&by.0.to_le_bytes());
        bytes
    }

    /// The note in these bytes. `None` for those of later versions.
    pub fn decode(bytes: &[u8]) -> Option<Note> {
        let (kind, rest) = bytes.split_first()?;
        let (key, by) = rest.split_first_chunk::<16>()?;
        let (key, by) = (u128::from_le_bytes(*key), ClaimId(u128::from_le_bytes(by.try_into().ok()?)));
        match kind {
            b'-' => Some(Note::Release { key, by }),
            b'+' => Some(Note::Renew { key, by }),
            b'0' => Some(Note::Reset { key }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read_as_they_were_written() {
        let counts: Vec<KeyCount> =
            (0..3).map(|one| KeyCount { key: u128::MAX - one, in_flight: one as u32 }).collect();
        let mut bytes = encode_counts(&counts);
        assert_eq!(decode_counts(&bytes), counts);
        bytes.pop();
        assert_eq!(decode_counts(&bytes), counts[..2]);
        assert_eq!(decode_counts(&vec![7; 40 * MAX_COUNTERS]).len(), MAX_COUNTERS);
        let by = ClaimId(1 << 100 | 2);
        for note in [Note::Release { key: 1 << 90, by }, Note::Renew { key: 3, by }, Note::Reset { key: u128::MAX }] {
            assert_eq!(Note::decode(&note.encode()), Some(note));
            assert_eq!(Note::decode(&note.encode()[..32]), None);
        }
        assert_eq!(Note::decode(&[b'?'; NOTE_BYTES]), None);
        assert_eq!(Note::decode(b""), None);
    }
}
