//! What the processes with one store agree on, and how one of them gets there.

use std::fmt;
use std::str::FromStr;

use tollgate_core::KeySecret;

use super::{KeyPrivacy, OLDER_SERVERS, OTHER_SECRET, PrivacySetting, PrivacyState};

/// What the processes with one store agree on. Its text is the stored value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The form of names.
    pub form: AgreedForm,
    /// The secret of digests.
    pub secret: AgreedSecret,
}

/// The form of names that was agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgreedForm {
    /// Digests of private values.
    Hashed,
    /// In clear, because an operator wants it.
    Clear,
    /// In clear, because servers of an earlier version count so.
    LegacyClear,
}

/// The secret that was agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgreedSecret {
    /// It is in the store.
    Shared(KeySecret),
    /// It is configured in the processes.
    Given {
        /// Identifies it.
        fingerprint: u64,
    },
}

/// Signs of servers that know only names in clear.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OlderServers {
    /// Some are running.
    pub are_running: bool,
    /// There are values of theirs, which newer servers write only after an agreement.
    pub left_values: bool,
}

impl KeyPrivacy {
    /// What should be in the store, given what is there. The caller writes it unless it is there already, and then
    /// [adopts](KeyPrivacy::adopt) what the store has.
    pub fn propose(&self, stored: Option<Agreement>, older: OlderServers) -> Agreement {
        let state = self.state.load();
        let form = match (self.pending(&state), stored.map(|stored| stored.form), state.form) {
            (PrivacySetting::Clear, _, _) => AgreedForm::Clear,
            (PrivacySetting::Hashed, _, _) if !older.are_running => AgreedForm::Hashed,
            // Whoever wrote it did not know of an earlier agreement.
            (_, Some(AgreedForm::LegacyClear), Some(AgreedForm::Hashed)) if !older.are_running => AgreedForm::Hashed,
            (_, Some(stored), _) => stored,
            // The store has lost it, or is another one.
            (_, None, Some(known)) if !older.are_running => known,
            (_, None, _) if older != OlderServers::default() => AgreedForm::LegacyClear,
            (_, None, _) => AgreedForm::Hashed,
        };
        let own = self.own_secret(&state);
        let secret = match stored {
            Some(stored) if state.is_agreed || !self.is_given => stored.secret,
            _ => own,
        };
        Agreement { form, secret }
    }

    /// Takes what the store has. `before` is what it had before this process wrote to it.
    pub fn adopt(&self, agreed: Agreement, before: Option<Agreement>, older: OlderServers) {
        self.change(|state| {
            let known = state.form.or(before.map(|before| before.form));
            let is_new = !std::mem::replace(&mut state.is_agreed, true);
            if let (AgreedSecret::Shared(secret), false) = (agreed.secret, self.is_given) {
                state.use_secret(secret);
            }
            let is_hashed = agreed.form == AgreedForm::Hashed;
            let has_other_secret = is_hashed && agreed.secret != self.own_secret(state);
            let warning = match (has_other_secret, older.are_running && is_hashed) {
                (true, _) => Some(OTHER_SECRET),
                (false, true) => Some(OLDER_SERVERS),
                (false, false) => None,
            };
            self.report(agreed, known, is_new, state);
            if let Some(warning) = warning.filter(|_| state.warning != warning) {
                tracing::warn!("{warning}");
            }
            state.warning = warning;
            state.form = Some(agreed.form);
            state.is_applied |= match self.setting {
                PrivacySetting::Auto => true,
                PrivacySetting::Hashed => is_hashed,
                PrivacySetting::Clear => agreed.form == AgreedForm::Clear,
            };
        });
    }

    /// Logs what changed.
    fn report(&self, agreed: Agreement, known: Option<AgreedForm>, is_new: bool, state: &PrivacyState) {
        let word = |form: AgreedForm| if form == AgreedForm::Hashed { "hashed" } else { "in clear" };
        if let Some(known) = known.filter(|known| word(*known) != word(agreed.form)) {
            tracing::warn!(
                "private values in names of counters were {} and are now {}: counters with such values start anew",
                word(known),
                word(agreed.form)
            );
        }
        match agreed.form {
            AgreedForm::LegacyClear if is_new || known != Some(AgreedForm::LegacyClear) => tracing::warn!(
                "servers of an earlier version use these counters, so names of counters have private values in clear; when all \
                 are upgraded, start a server with key_privacy: hashed, or with clear to keep it so"
            ),
            AgreedForm::Hashed if is_new && !self.is_given => tracing::info!(
                "private values are hashed with a secret in the store, with which its readers can test guesses; \
                 key_secret_file keeps the secret elsewhere"
            ),
            _ => {}
        }
        let is_other = match self.setting {
            PrivacySetting::Auto => false,
            PrivacySetting::Hashed => agreed.form == AgreedForm::Clear,
            PrivacySetting::Clear => agreed.form != AgreedForm::Clear,
        };
        if is_other && state.is_applied && known != Some(agreed.form) {
            tracing::warn!("key_privacy is another in a process that was started later, whose setting is in force");
        }
    }

    /// The explicit setting, unless it is in force or was.
    fn pending(&self, state: &PrivacyState) -> PrivacySetting {
        if state.is_applied { PrivacySetting::Auto } else { self.setting }
    }

    pub(super) fn own_secret(&self, state: &PrivacyState) -> AgreedSecret {
        match self.is_given {
            true => AgreedSecret::Given { fingerprint: state.secret().fingerprint() },
            false => AgreedSecret::Shared(state.secret()),
        }
    }
}

const FORMS: [(&str, AgreedForm); 3] =
    [("hashed", AgreedForm::Hashed), ("clear", AgreedForm::Clear), ("legacy-clear", AgreedForm::LegacyClear)];

impl AgreedForm {
    pub(super) fn name(self) -> &'static str {
        FORMS.iter().find(|(_, form)| *form == self).map_or("", |(name, _)| name)
    }

    pub(super) fn parse(name: &str) -> Option<AgreedForm> {
        FORMS.iter().find(|(known, _)| *known == name).map(|(_, form)| *form)
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.form.name(), self.secret)
    }
}

impl fmt::Display for AgreedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AgreedSecret::Shared(secret) => write!(f, "shared:{:032x}", secret.bits()),
            AgreedSecret::Given { fingerprint } => write!(f, "given:{fingerprint:016x}"),
        }
    }
}

/// The text is not an agreement: a newer version may have written it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoAgreement;

impl FromStr for Agreement {
    type Err = NoAgreement;

    fn from_str(text: &str) -> Result<Agreement, NoAgreement> {
        let (form, secret) = text.split_once(' ').ok_or(NoAgreement)?;
        Ok(Agreement { form: AgreedForm::parse(form).ok_or(NoAgreement)?, secret: secret.parse()? })
    }
}

impl FromStr for AgreedSecret {
    type Err = NoAgreement;

    fn from_str(text: &str) -> Result<AgreedSecret, NoAgreement> {
        let (kind, digits) = text.split_once(':').ok_or(NoAgreement)?;
        match (kind, digits.len()) {
            ("shared", 32) => {
                let bits = u128::from_str_radix(digits, 16).map_err(|_| NoAgreement)?;
                Ok(AgreedSecret::Shared(KeySecret::from_bits(bits)))
            }
            ("given", 16) => {
                let fingerprint = u64::from_str_radix(digits, 16).map_err(|_| NoAgreement)?;
                Ok(AgreedSecret::Given { fingerprint })
            }
            _ => Err(NoAgreement),
        }
    }
}
