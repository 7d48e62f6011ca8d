//! The settings of receipts, and of requests that are decided once.

use std::path::PathBuf;

use tollgate::{KeyError, ReceiptKeys};
use tollgate_rules::problem::Fault;

use super::read::Reader;
use super::settings::{Idempotency, KeysFrom, SecretText};

impl Reader<'_> {
    pub(super) fn receipt_keys(&mut self) -> Option<KeysFrom> {
        let keys = self.or("receipt_keys", "none", |text, _| keys(text));
        let file = self.or("receipt_keys_file", "none", |text, _| Ok(PathBuf::from(text)));
        match (keys?, file?) {
            (Some(_), Some(_)) => {
                let message = "`receipt_keys_file`: `receipt_keys` has keys too";
                self.refuse("receipt_keys_file", Fault::new(message, "keep one of the two"));
                None
            }
            (Some(keys), None) => Some(KeysFrom::Texts(keys)),
            (None, Some(file)) => Some(KeysFrom::File(file)),
            (None, None) => Some(KeysFrom::Nobody),
        }
    }

    pub(super) fn idempotency(&mut self) -> Option<Idempotency> {
        let (ttl, max) = (self.time("idempotency_ttl"), self.count("idempotency_max"));
        Some(Idempotency { ttl: ttl?, max: max? })
    }
}

/// Keys with commas between them. What is wrong is told without them.
fn keys(text: &str) -> Result<Vec<SecretText>, Fault> {
    let keys: Vec<&str> = text.split(',').map(str::trim).take(ReceiptKeys::MOST + 1).collect();
    match ReceiptKeys::new(&keys) {
        Ok(_) => Ok(keys.into_iter().map(|key| SecretText(key.to_owned())).collect()),
        Err(KeyError::TooMany) => {
            let message = format!("there are more than {} keys", ReceiptKeys::MOST);
            Err(Fault::new(message, "keep the newest of them"))
        }
        Err(KeyError::TooShort | KeyError::None) => {
            let message = format!("a key has fewer than {} bytes", ReceiptKeys::SHORTEST);
            Err(Fault::new(message, "make one with `openssl rand -hex 32`"))
        }
    }
}
