//! The settings of private values.

use std::path::PathBuf;

use tollgate::PrivacySetting;

use super::read::SettingsReader;
use super::settings::KeyPrivacySettings;
use super::table::KEY_PRIVACY;

impl SettingsReader<'_> {
    pub(super) fn key_privacy(&mut self) -> Option<KeyPrivacySettings> {
        let forms = [PrivacySetting::Auto, PrivacySetting::Hashed, PrivacySetting::Clear];
        let form = self.word("key_privacy", KEY_PRIVACY, &forms);
        let secret_file = self.or("key_secret_file", "none", |text, _| Ok(PathBuf::from(text)));
        Some(KeyPrivacySettings { form: form?, secret_file: secret_file? })
    }
}
