//! Rule files that are held: they are valid, and would refuse too much of the recent traffic.

use std::fmt;
use std::hash::Hasher as _;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;
use tollgate_records::Rfc3339;
use tollgate_rules::RuleFile;

/// Judges changed rule files before they are put in force.
pub trait FileGuard: fmt::Debug + Send + Sync {
    /// Judges these files in place of those in force. It may take seconds.
    fn judge(&self, files: &[RuleFile]) -> FileVerdict;
}

/// What a guard says of rule files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileVerdict {
    Passes,
    /// They are put in force, with this warning.
    Warned(String),
    /// They are held, for this reason.
    Held(String),
}

/// Files that are held until they change or are released.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct HeldFiles {
    /// The version of the files.
    pub version: String,
    pub why: String,
    pub since: Rfc3339,
}

/// Not a secret: versions are the same on every server.
const VERSION_KEYS: (u64, u64) = (0x746f_6c6c_6761_7465, 0x6669_6c65_732f_7631);

impl HeldFiles {
    /// What operators are to know.
    pub(super) fn report(&self) -> String {
        let HeldFiles { version, why, .. } = self;
        format!(
            "the changed rule files are held as version {version}, the last good rules are in force: {why}; if that is intended, \
             `tollgate rule release {version}` puts them in force"
        )
    }
}

/// The version of files: a digest of their texts, whatever they are called.
pub(super) fn files_version(files: &[RuleFile]) -> String {
    let mut texts: Vec<&str> = files.iter().map(|file| file.text.as_str()).collect();
    texts.sort_unstable();
    let mut hasher = SipHasher13::new_with_keys(VERSION_KEYS.0, VERSION_KEYS.1);
    for text in texts {
        hasher.write_u64(text.len() as u64);
        hasher.write(text.as_bytes());
    }
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(files: &[(&str, &str)]) -> String {
        let file = |(name, text): &(&str, &str)| RuleFile { name: (*name).to_owned(), text: (*text).to_owned() };
        files_version(&files.iter().map(file).collect::<Vec<_>>())
    }

    #[test]
    fn versions_are_those_of_the_texts() {
        let both = version(&[("a.yaml", "domain: a"), ("b.yaml", "domain: b")]);
        assert_eq!(both, version(&[("x/b.yaml", "domain: b"), ("x/a.yaml", "domain: a")]));
        for other in [
            &[("a.yaml", "domain: a")][..],
            &[("a.yaml", "domain: adomain: b")],
            &[("a", "domain: a"), ("b", "domain: c")],
        ] {
            assert_ne!(both, version(other));
        }
    }
}
