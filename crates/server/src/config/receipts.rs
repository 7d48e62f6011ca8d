//! The settings of receipts and idempotency keys.

use std::path::PathBuf;

use tollgate::{KeyError, ReceiptKeys};
use tollgate_rules::problem::TextFault;

use super::read::SettingsReader;
use super::settings::{IdempotencySettings, ReceiptKeySource, SecretText};

impl SettingsReader<'_> {
    pub(super) fn receipt_keys(&mut self) -> Option<ReceiptKeySource> {
        let keys = self.or("receipt_keys", "none", |text, _| parse_keys(text));
        let file = self.or("receipt_keys_file", "none", |text, _| Ok(PathBuf::from(text)));
        match (keys?, file?) {
            (Some(_), Some(_)) => {
                let message = "`receipt_keys_file`: `receipt_keys` has keys too";
                self.reject("receipt_keys_file", TextFault::new(message, "keep one of the two"));
                None
            }
            (Some(keys), None) => Some(ReceiptKeySource::Texts(keys)),
            (None, Some(file)) => Some(ReceiptKeySource::File(file)),
            (None, None) => Some(ReceiptKeySource::Generated),
        }
    }

    pub(super) fn idempotency(&mut self) -> Option<IdempotencySettings> {
        let (ttl, max) = (self.time("idempotency_ttl"), self.count("idempotency_max"));
        let max_per_caller = self.count("idempotency_max_per_caller");
        Some(IdempotencySettings { ttl: ttl?, max: max?, max_per_caller: max_per_caller? })
    }
}

/// Parses keys that are separated by commas. Errors do not contain the keys.
fn parse_keys(text: &str) -> Result<Vec<SecretText>, TextFault> {
    let keys: Vec<&str> = text.split(',').map(str::trim).take(ReceiptKeys::MAX_KEYS + 1).collect();
    match ReceiptKeys::new(&keys) {
        Ok(_) => Ok(keys.into_iter().map(|key| SecretText(key.to_owned())).collect()),
        Err(KeyError::TooMany) => {
            let message = format!("there are more than {} keys", ReceiptKeys::MAX_KEYS);
            Err(TextFault::new(message, "keep the newest of them"))
        }
        Err(KeyError::TooShort | KeyError::None) => {
            let message = format!("a key has fewer than {} bytes", ReceiptKeys::MIN_SECRET_BYTES);
            Err(TextFault::new(message, "make one with `openssl rand -hex 32`"))
        }
    }
}
