//! The form and the secrets as a text, for a process that starts without the store.

use std::fmt::Write as _;

use tollgate_core::KeySecret;

use super::KeyPrivacy;
use super::agreement::{AgreedForm, AgreedSecret};

/// Instead of a form, if there was no agreement.
const NO_FORM: &str = "none";

impl KeyPrivacy {
    /// The form and the secrets, to be [restored](KeyPrivacy::restore) by the next process: the form and the secret in use,
    /// then earlier secrets, line by line. Configured secrets are not in it.
    pub fn save(&self) -> String {
        let state = self.state.load();
        let form = state.form.map_or(NO_FORM, AgreedForm::name);
        let mut text = format!("{form} {}\n", self.own_secret(&state));
        if !self.is_given {
            for secret in state.secrets.iter().skip(1) {
                // Writing to a String can't fail.
                let _ = writeln!(text, "{}", AgreedSecret::Shared(*secret));
            }
        }
        text
    }

    /// Starts from what an earlier process saved. Returns whether the text could be read.
    #[must_use]
    pub fn restore(&self, saved: &str) -> bool {
        let mut lines = saved.lines();
        let Some((form, first)) = lines.next().and_then(|line| line.split_once(' ')) else { return false };
        let form = AgreedForm::parse(form);
        let Ok(secrets) = std::iter::once(first).chain(lines).map(str::parse).collect::<Result<Vec<_>, _>>() else {
            return false;
        };
        let shared = secrets.into_iter().filter_map(|secret| match secret {
            AgreedSecret::Shared(secret) => Some(secret),
            AgreedSecret::Given { .. } => None,
        });
        let shared: Vec<KeySecret> = shared.take(Self::MAX_SECRETS).collect();
        self.change(|state| {
            state.form = form;
            match self.is_given {
                // What was logged under the shared secrets is still found.
                true => state.secrets.extend(shared),
                false if !shared.is_empty() => state.secrets = shared,
                false => {}
            }
            state.secrets.truncate(Self::MAX_SECRETS);
        });
        true
    }
}
