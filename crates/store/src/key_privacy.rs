//! How private values, such as API keys, appear outside of the process: in the names of a shared store and in logs.
//!
//! Everybody who counts in one store must use one form of names and one secret. They agree on both in the store:
//! [`KeyPrivacy::propose`] says what to write there, [`KeyPrivacy::adopt`] takes what is there.

mod agreement;
mod saved;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Mutex, PoisonError};

use arc_swap::ArcSwap;
use tollgate_core::KeySecret;

use crate::secret;

pub use agreement::{AgreedForm, AgreedSecret, Agreement, OlderServers};

/// The form of private values in a process. Shared by its store, its logs and lookups.
#[derive(Debug)]
pub struct KeyPrivacy {
    setting: PrivacySetting,
    /// Whether the secrets are configured: then they are not in the store.
    is_given: bool,
    state: ArcSwap<PrivacyState>,
    /// Locked while the state changes.
    changing: Mutex<()>,
}

/// The configured form of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrivacySetting {
    /// The form that the others use; hashed if there are none.
    #[default]
    Auto,
    /// Hashed, also if the others use names in clear so far.
    Hashed,
    /// In clear, also if the others hash so far; in logs too.
    Clear,
}

/// The form of names in a shared store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameForm {
    /// All values in clear.
    Clear,
    /// Digests of private values.
    Hashed(KeySecret),
}

/// Why secrets can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretError {
    /// There is no secret.
    None,
    /// There are more than [`KeyPrivacy::MAX_SECRETS`].
    TooMany,
    /// A secret has fewer than [`KeySecret::MIN_BYTES`] bytes.
    TooShort,
}

#[derive(Clone, Debug)]
struct PrivacyState {
    /// The first is in use. The others are for lookups of what was logged before. Never empty.
    secrets: Vec<KeySecret>,
    /// The form that was last agreed on, by this process or an earlier one.
    form: Option<AgreedForm>,
    /// Whether this process has agreed with the others.
    is_agreed: bool,
    /// Whether an explicit setting is in force, or was.
    is_applied: bool,
    warning: Option<&'static str>,
}

const OTHER_SECRET: &str = "other processes with these counters hash private values with another secret, so limits are \
                            counted apart: give all of them the same key_secret_file";
const OLDER_SERVERS: &str = "servers of an earlier version count under names in clear, so limits are counted twice: \
                             upgrade them";

impl KeyPrivacy {
    /// The maximum number of secrets: the one in use and those of earlier entries of logs.
    pub const MAX_SECRETS: usize = 8;

    /// This form, with a random secret until the processes with the same store have agreed on one.
    pub fn new(setting: PrivacySetting) -> KeyPrivacy {
        let random = secret::random();
        let secret = KeySecret::from_bits(u128::from(random.0) << 64 | u128::from(random.1));
        KeyPrivacy::with(setting, vec![secret], false)
    }

    /// This form, with configured secrets: the first is in use, the others are for lookups of what was logged before.
    ///
    /// # Errors
    /// If there are none or too many, or one is too short.
    pub fn with_secrets<K: AsRef<[u8]>>(
        setting: PrivacySetting,
        texts: impl IntoIterator<Item = K>,
    ) -> Result<KeyPrivacy, SecretError> {
        let mut secrets = Vec::new();
        for text in texts {
            if secrets.len() == Self::MAX_SECRETS {
                return Err(SecretError::TooMany);
            }
            secrets.push(KeySecret::derive(text.as_ref()).ok_or(SecretError::TooShort)?);
        }
        if secrets.is_empty() {
            return Err(SecretError::None);
        }
        Ok(KeyPrivacy::with(setting, secrets, true))
    }

    fn with(setting: PrivacySetting, secrets: Vec<KeySecret>, is_given: bool) -> KeyPrivacy {
        let state = PrivacyState { secrets, form: None, is_agreed: false, is_applied: false, warning: None };
        KeyPrivacy { setting, is_given, state: ArcSwap::from_pointee(state), changing: Mutex::default() }
    }

    /// The same settings for another store, whose processes may agree on another form and another secret.
    pub fn for_another_store(&self) -> KeyPrivacy {
        if self.is_given {
            KeyPrivacy::with(self.setting, self.state.load().secrets.clone(), true)
        } else {
            KeyPrivacy::new(self.setting)
        }
    }

    /// The secret of logs. `None` if they contain private values in clear.
    pub fn log_secret(&self) -> Option<KeySecret> {
        (self.setting != PrivacySetting::Clear).then(|| self.state.load().secret())
    }

    /// The texts under which a value may have been logged: in clear, and masked with each known secret.
    pub fn logged_as(&self, value: &str) -> Vec<String> {
        let masked = self.state.load().secrets.iter().map(|secret| secret.mask(value).to_string()).collect::<Vec<_>>();
        std::iter::once(value.to_owned()).chain(masked).collect()
    }

    /// The form of names in the store. `None` if the processes have not agreed yet, and no earlier process did.
    pub fn name_form(&self) -> Option<NameForm> {
        let state = self.state.load();
        state.form.map(|form| match form {
            AgreedForm::Hashed => NameForm::Hashed(state.secret()),
            AgreedForm::Clear | AgreedForm::LegacyClear => NameForm::Clear,
        })
    }

    /// What is wrong although the processes have agreed, with a remedy.
    pub fn warning(&self) -> Option<&'static str> {
        self.state.load().warning
    }

    /// Uses a secret that is shared by other means than the store of the counters, unless secrets are configured.
    pub fn share(&self, secret: KeySecret) {
        if !self.is_given {
            self.change(|state| state.use_secret(secret));
        }
    }

    fn change(&self, change: impl FnOnce(&mut PrivacyState)) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = PrivacyState::clone(&self.state.load());
        change(&mut state);
        self.state.store(state.into());
    }
}

impl Default for KeyPrivacy {
    fn default() -> KeyPrivacy {
        KeyPrivacy::new(PrivacySetting::Auto)
    }
}

impl PrivacyState {
    fn secret(&self) -> KeySecret {
        // Never empty.
        self.secrets.first().copied().unwrap_or(KeySecret::from_bits(0))
    }

    /// Puts a secret to the front.
    fn use_secret(&mut self, secret: KeySecret) {
        self.secrets.retain(|known| *known != secret);
        self.secrets.insert(0, secret);
        self.secrets.truncate(KeyPrivacy::MAX_SECRETS);
    }
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretError::None => f.write_str("there is no secret; make one with `openssl rand -hex 32`"),
            SecretError::TooMany => write!(f, "there are too many secrets; the maximum is {}", KeyPrivacy::MAX_SECRETS),
            SecretError::TooShort => {
                let min = KeySecret::MIN_BYTES;
                write!(f, "a secret needs at least {min} bytes; make one with `openssl rand -hex 32`")
            }
        }
    }
}

impl std::error::Error for SecretError {}
