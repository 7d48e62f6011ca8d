//! Receipts as callers carry them: opaque, and nobody else can make one.

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
    keys: Vec<Key>,
}

#[derive(Clone)]
struct Key {
    /// Tells which key signed a receipt, and nothing of the key.
    name: [u8; NAME],
    key: hmac::Key,
}

/// Why a text is no receipt that can be settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiptError {
    /// It is none.
    Malformed,
    /// It was signed with a key that is not among ours.
    Foreign,
    /// It was changed, or its signature was.
    Forged,
    /// Its time is over: holds have ended, and what was reserved stays spent.
    Expired,
}

/// Why secrets can't be keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// There is none.
    None,
    /// There are too many.
    TooMany,
    /// One is too short.
    TooShort,
}

const VERSION: u8 = 1;
/// What every receipt begins with.
const PREFIX: &str = "tgr_";
const NAME: usize = 4;
/// Half of the digest, which RFC 2104 allows: receipts travel with every request.
const TAG: usize = 16;

impl ReceiptKeys {
    /// The most keys.
    pub const MOST: usize = 8;
    /// The shortest secret, in bytes.
    pub const SHORTEST: usize = 16;

    /// Keys from secrets.
    ///
    /// # Errors
    /// If there are none or too many, or one is too short.
    pub fn new<K: AsRef<[u8]>>(secrets: impl IntoIterator<Item = K>) -> Result<ReceiptKeys, KeyError> {
        let mut keys = Vec::new();
        for secret in secrets {
            let secret = secret.as_ref();
            if secret.len() < Self::SHORTEST {
                return Err(KeyError::TooShort);
            }
            if keys.len() == Self::MOST {
                return Err(KeyError::TooMany);
            }
            keys.push(Key::new(secret));
        }
        if keys.is_empty() { Err(KeyError::None) } else { Ok(ReceiptKeys { keys }) }
    }

    /// A secret that nobody knows; none if the system has no randomness.
    pub fn random_secret() -> Option<[u8; 32]> {
        let mut secret = [0; 32];
        SystemRandom::new().fill(&mut secret).ok()?;
        Some(secret)
    }

    /// A receipt as its caller carries it, which lasts from now on.
    pub fn sign(&self, receipt: &Receipt, now: Timestamp) -> String {
        let Some(key) = self.keys.first() else { return String::new() };
        let mut bytes = Vec::with_capacity(128);
        bytes.push(VERSION);
        bytes.extend_from_slice(&key.name);
        number(&mut bytes, now.after(receipt.hold).as_micros());
        receipt.write(&mut bytes);
        let tag = hmac::sign(&key.key, &bytes);
        bytes.extend_from_slice(&tag.as_ref()[..TAG]);
        let mut text = String::with_capacity(PREFIX.len() + bytes.len() * 4 / 3 + 3);
        text.push_str(PREFIX);
        URL_SAFE_NO_PAD.encode_string(&bytes, &mut text);
        text
    }

    /// What a caller's text was made of.
    ///
    /// # Errors
    /// If it is none of ours, or too late.
    pub fn open(&self, text: &str, now: Timestamp) -> Result<Receipt, ReceiptError> {
        self.open_until(text, now).map(|(receipt, _)| receipt)
    }

    /// The same, with the moment from which it is too late.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_until(&self, text: &str, now: Timestamp) -> Result<(Receipt, Timestamp), ReceiptError> {
        let encoded = text.strip_prefix(PREFIX).ok_or(ReceiptError::Malformed)?;
        let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| ReceiptError::Malformed)?;
        let (signed, tag) = bytes.split_last_chunk::<TAG>().ok_or(ReceiptError::Malformed)?;
        let [VERSION, rest @ ..] = signed else { return Err(ReceiptError::Malformed) };
        let (name, mut body) = rest.split_first_chunk::<NAME>().ok_or(ReceiptError::Malformed)?;
        let key = self.keys.iter().find(|key| key.name == *name).ok_or(ReceiptError::Foreign)?;
        if !key.signed(signed, tag) {
            return Err(ReceiptError::Forged);
        }
        let until = read_number(&mut body).map(Timestamp::from_micros).ok_or(ReceiptError::Malformed)?;
        let receipt = Receipt::read(body).ok_or(ReceiptError::Malformed)?;
        if until <= now { Err(ReceiptError::Expired) } else { Ok((receipt, until)) }
    }
}

impl Key {
    fn new(secret: &[u8]) -> Key {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let mut name = [0; NAME];
        name.copy_from_slice(&hmac::sign(&key, b"the name of this key").as_ref()[..NAME]);
        Key { name, key }
    }

    /// In a time that says nothing of where they differ.
    fn signed(&self, bytes: &[u8], tag: &[u8; TAG]) -> bool {
        let own = hmac::sign(&self.key, bytes);
        own.as_ref().iter().zip(tag).fold(0, |differs, (own, given)| differs | (own ^ given)) == 0
    }
}

/// Nothing of the keys.
impl fmt::Debug for ReceiptKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReceiptKeys({})", self.keys.len())
    }
}

impl fmt::Display for ReceiptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReceiptError::Malformed => "this is no receipt; send the `receipt` of a check's answer, unchanged",
            ReceiptError::Foreign => {
                "the receipt was signed with a key that this server does not have; give all servers the same receipt_keys, and \
                 keep old ones among them while their receipts last"
            }
            ReceiptError::Forged => "the receipt was changed, or its signature was; send it as the check gave it",
            ReceiptError::Expired => {
                "the receipt has expired: what it held is free again and what it reserved stays spent; settle before the `hold` \
                 of its rules is over, or tell in time that the request is running"
            }
        })
    }
}

impl std::error::Error for ReceiptError {}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::None => f.write_str("there is no key; write one"),
            KeyError::TooMany => write!(f, "there are too many keys; at most {}", ReceiptKeys::MOST),
            KeyError::TooShort => {
                write!(f, "a key has at least {} bytes; make one with `openssl rand -hex 32`", ReceiptKeys::SHORTEST)
            }
        }
    }
}

impl std::error::Error for KeyError {}
