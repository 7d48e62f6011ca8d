//! Digests that stand for private values, such as API keys, wherever a value leaves the memory of the process.

use std::fmt;

use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher as _;

use crate::key::{HashSecret, Value};

/// The secret of the digests: one for all processes that count together. Whoever has it can test guesses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeySecret(u64, u64);

/// A private text as it is displayed: its digest, and the end of a text that is long enough.
#[derive(Clone, Copy, Debug)]
pub struct Masked<'v> {
    digest: u128,
    end: Option<&'v str>,
}

/// The number of characters that are displayed.
const SHOWN: usize = 4;
/// From this number of characters on, the end of a text is displayed: most of it stays unknown.
const MIN_CHARS_TO_SHOW: usize = 16;

/// Keys of hashes that need no secret, because what they hash is one.
const DERIVE: (u64, u64) = (0x746f_6c6c_6761_7465, 0x6b65_7973_6563_7265);

impl KeySecret {
    /// The minimum length of a text that a secret is derived from, in bytes.
    pub const MIN_BYTES: usize = 16;

    /// The secret of a text. `None` if it is too short.
    pub fn derive(text: &[u8]) -> Option<KeySecret> {
        if text.len() < Self::MIN_BYTES {
            return None;
        }
        let hash = SipHasher24::new_with_keys(DERIVE.0, DERIVE.1).hash(text);
        Some(KeySecret(hash.h1, hash.h2))
    }

    /// A secret of these random bits.
    pub fn from_bits(bits: u128) -> KeySecret {
        KeySecret((bits >> 64) as u64, bits as u64)
    }

    /// The bits, for storage.
    pub fn bits(&self) -> u128 {
        u128::from(self.0) << 64 | u128::from(self.1)
    }

    /// Identifies the secret without revealing it.
    pub fn fingerprint(&self) -> u64 {
        SipHasher24::new_with_keys(self.0, self.1).hash(b"fingerprint of this secret").h1
    }

    /// The digest of a value. It does not depend on where the value occurs.
    pub fn digest(&self, value: Value<'_>) -> u128 {
        let mut hasher = SipHasher24::new_with_keys(self.0, self.1);
        match value {
            Value::Absent => hasher.write_u8(0),
            Value::Text(text) => {
                hasher.write_u8(1);
                hasher.write(text.as_bytes());
            }
            // No text has these bytes.
            Value::Bytes(bytes) => {
                hasher.write_u8(1);
                hasher.write(bytes);
            }
            Value::Network { address, prefix } => {
                hasher.write_u8(2);
                hasher.write_u8(prefix);
                hasher.write(&address[0].to_be_bytes());
                hasher.write(&address[1].to_be_bytes());
            }
        }
        hasher.finish128().as_u128()
    }

    /// A private text as it is displayed.
    pub fn mask<'v>(&self, text: &'v str) -> Masked<'v> {
        let end = text.char_indices().rev().nth(SHOWN - 1).map(|(at, _)| &text[at..]);
        let is_long = text.chars().nth(MIN_CHARS_TO_SHOW - 1).is_some();
        Masked { digest: self.digest(Value::Text(text)), end: end.filter(|_| is_long) }
    }

    /// The secret of keyed hashes of private values that are not displayed.
    pub fn hash_secret(&self) -> HashSecret {
        let hash = SipHasher24::new_with_keys(self.0, self.1).hash(b"secret of counter ids");
        HashSecret(hash.h1, hash.h2)
    }
}

impl fmt::Display for Masked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        // By hand: a number of 128 bits is formatted several times as slowly.
        let mut text = [b'#'; 33];
        for (digits, byte) in text[1..].chunks_exact_mut(2).zip(self.digest.to_be_bytes()) {
            digits.copy_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        f.write_str(str::from_utf8(&text).unwrap_or_default())?;
        match self.end {
            Some(end) => {
                f.write_str("-")?;
                f.write_str(end)
            }
            None => Ok(()),
        }
    }
}

impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySecret(***)")
    }
}
