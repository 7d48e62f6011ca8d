//! Signed receipts: opaque texts that only the holders of the keys can issue.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use tollgate_core::Timestamp;

use super::Receipt;
use super::bytes::{number, read_number};

/// The keys of a fleet: the first signs, all verify.
#[derive(Clone)]
pub struct ReceiptKeys {
    keys: Vec<ReceiptKey>,
}

#[derive(Clone)]
struct ReceiptKey {
    /// Identifies the key in receipts without revealing it.
    name: [u8; NAME],
    key: hmac::Key,
}

/// Why a receipt can't be settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiptError {
    /// It is not a receipt.
    Malformed,
    /// It was signed with another key.
    Foreign,
    /// The receipt or its signature was modified.
    Forged,
    /// It has expired: its slots are free, and the units that it reserved stay spent.
    Expired,
}

/// Why secrets can't be used as keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// There is no secret.
    None,
    /// There are too many secrets.
    TooMany,
    /// A secret is too short.
    TooShort,
}

/// Without regions.
const VERSION: u8 = 1;
/// With the regions of the counters.
const VERSION_WITH_REGIONS: u8 = 2;
/// The prefix of every receipt.
const PREFIX: &str = "tgr_";
const NAME: usize = 4;
/// Half of the digest, as RFC 2104 allows: receipts travel with every request.
const TAG: usize = 16;

impl ReceiptKeys {
    /// The largest number of keys.
    pub const MAX_KEYS: usize = 8;
    /// The minimum length of a secret, in bytes.
    pub const MIN_SECRET_BYTES: usize = 16;

    /// Derives keys from secrets.
    ///
    /// # Errors
    /// If there are none or too many, or one is too short.
    pub fn new<K: AsRef<[u8]>>(secrets: impl IntoIterator<Item = K>) -> Result<ReceiptKeys, KeyError> {
        let mut keys = Vec::new();
        for secret in secrets {
            let secret = secret.as_ref();
            if secret.len() < Self::MIN_SECRET_BYTES {
                return Err(KeyError::TooShort);
            }
            if keys.len() == Self::MAX_KEYS {
                return Err(KeyError::TooMany);
            }
            keys.push(ReceiptKey::new(secret));
        }
        if keys.is_empty() { Err(KeyError::None) } else { Ok(ReceiptKeys { keys }) }
    }

    /// A new random secret; `None` if the system has no randomness.
    pub fn random_secret() -> Option<[u8; 32]> {
        let mut secret = [0; 32];
        SystemRandom::new().fill(&mut secret).ok()?;
        Some(secret)
    }

    /// Signs a receipt. It is valid from now on, for its hold.
    pub fn sign(&self, receipt: &Receipt, now: Timestamp) -> String {
        let Some(key) = self.keys.first() else { return String::new() };
        let mut bytes = Vec::with_capacity(128);
        let has_regions = !receipt.regions.is_empty();
        bytes.push(if has_regions { VERSION_WITH_REGIONS } else { VERSION });
        bytes.extend_from_slice(&key.name);
        number(&mut bytes, now.after(receipt.hold).as_micros());
        receipt.write(&mut bytes);
        if has_regions {
            receipt.write_regions(&mut bytes);
        }
        let tag = hmac::sign(&key.key, &bytes);
        bytes.extend_from_slice(&tag.as_ref()[..TAG]);
        let mut text = String::with_capacity(PREFIX.len() + bytes.len() * 4 / 3 + 3);
        text.push_str(PREFIX);
        URL_SAFE_NO_PAD.encode_string(&bytes, &mut text);
        text
    }

    /// Verifies and decodes a signed receipt.
    ///
    /// # Errors
    /// If it was not signed with one of the keys, or has expired.
    pub fn open(&self, text: &str, now: Timestamp) -> Result<Receipt, ReceiptError> {
        self.open_with_expiry(text, now).map(|(receipt, _)| receipt)
    }

    /// Like [`open`](Self::open), with the time at which the receipt expires.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with_expiry(&self, text: &str, now: Timestamp) -> Result<(Receipt, Timestamp), ReceiptError> {
        let encoded = text.strip_prefix(PREFIX).ok_or(ReceiptError::Malformed)?;
        let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| ReceiptError::Malformed)?;
        let (signed, tag) = bytes.split_last_chunk::<TAG>().ok_or(ReceiptError::Malformed)?;
        let [version @ (VERSION | VERSION_WITH_REGIONS), rest @ ..] = signed else {
            return Err(ReceiptError::Malformed);
        };
        let (name, mut body) = rest.split_first_chunk::<NAME>().ok_or(ReceiptError::Malformed)?;
        let key = self.keys.iter().find(|key| key.name == *name).ok_or(ReceiptError::Foreign)?;
        if !key.verifies(signed, tag) {
            return Err(ReceiptError::Forged);
        }
        let until = read_number(&mut body).map(Timestamp::from_micros).ok_or(ReceiptError::Malformed)?;
        let receipt = match *version {
            VERSION_WITH_REGIONS => Receipt::read_with_regions(body),
            _ => Receipt::read(body),
        };
        let receipt = receipt.ok_or(ReceiptError::Malformed)?;
        if until <= now { Err(ReceiptError::Expired) } else { Ok((receipt, until)) }
    }
}

impl ReceiptKey {
    fn new(secret: &[u8]) -> ReceiptKey {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let mut name = [0; NAME];
        name.copy_from_slice(&hmac::sign(&key, b"the name of this key").as_ref()[..NAME]);
        ReceiptKey { name, key }
    }

    /// Compares in constant time.
    fn verifies(&self, bytes: &[u8], tag: &[u8; TAG]) -> bool {
        let own = hmac::sign(&self.key, bytes);
        own.as_ref().iter().zip(tag).fold(0, |differs, (own, tag)| differs | (own ^ tag)) == 0
    }
}

/// Omits the keys.
impl fmt::Debug for ReceiptKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReceiptKeys({})", self.keys.len())
    }
}

impl fmt::Display for ReceiptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReceiptError::Malformed => "not a receipt; send the `receipt` from the response to a check, unchanged",
            ReceiptError::Foreign => {
                "the receipt was signed with a key that this server does not have; configure the same receipt_keys on all servers, \
                 and keep old keys while their receipts are valid"
            }
            ReceiptError::Forged => "the receipt or its signature was modified; send it exactly as the check returned it",
            ReceiptError::Expired => {
                "the receipt has expired: its slots are free again, and the units that it reserved stay spent; settle it within the \
                 `hold` of its rules, or extend it with the outcome `running`"
            }
        })
    }
}

impl std::error::Error for ReceiptError {}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::None => f.write_str("there is no key; configure at least one"),
            KeyError::TooMany => write!(f, "there are too many keys; the maximum is {}", ReceiptKeys::MAX_KEYS),
            KeyError::TooShort => {
                write!(
                    f,
                    "a key needs at least {} bytes; generate one with `openssl rand -hex 32`",
                    ReceiptKeys::MIN_SECRET_BYTES
                )
            }
        }
    }
}

impl std::error::Error for KeyError {}
