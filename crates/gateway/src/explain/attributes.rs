//! Where the attributes of a request come from.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use http::request::Parts;
use serde::Serialize;
use tollgate_core::Timestamp;
use tollgate_rules::private::PrivateAttributes;

use super::words;
use crate::identity::{ConnectionFacts, Identity};
use crate::jwt::{KeySet, MAX_KEY_SET_BYTES};
use crate::model::{AttributeConfig, AttributeSource, KeySource};

/// An attribute of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedAttribute {
    pub name: String,
    /// Masked if it is a credential. `None`: the request does not have it.
    pub value: Option<String>,
    /// The source that has it; all sources if none has.
    pub source: String,
}

/// How many characters of a credential are shown at its end …
const SHOWN: usize = 4;
/// … if it has at least so many: most of it stays unknown.
const MIN_CHARS_TO_SHOW: usize = 16;

pub(super) fn explain(
    attribute: &AttributeConfig,
    parts: &Parts,
    parameters: &[(&str, &str)],
    connection: &ConnectionFacts,
    now: Timestamp,
) -> ExplainedAttribute {
    let name = attribute.name.clone();
    for source in &attribute.sources {
        let alone = AttributeConfig { name: name.clone(), sources: vec![source.clone()] };
        let identity = Identity::new(std::slice::from_ref(&alone), &[]);
        load_keys(&identity);
        let values = identity.read(parts, parameters, connection, now).unwrap_or_default();
        if let Some(value) = values.get(&name) {
            // A digest is made to be shown.
            let is_digest = matches!(source, AttributeSource::Bearer);
            let value = if is_digest { value.to_owned() } else { masked(&name, value) };
            return ExplainedAttribute { name, value: Some(value), source: words::of_source(source) };
        }
    }
    let source = attribute.sources.iter().map(words::of_source).collect::<Vec<_>>().join(", ");
    ExplainedAttribute { name, value: None, source }
}

/// The value of an attribute as it may be shown: of credentials at most the end.
pub fn masked(name: &str, value: &str) -> String {
    let is_digest = value.starts_with("sha256:") && value.len() == 39;
    if is_digest || !PrivateAttributes::default().contains(name) {
        return value.to_owned();
    }
    let characters = value.chars().count();
    match characters >= MIN_CHARS_TO_SHOW {
        true => format!("****{}", value.chars().skip(characters - SHOWN).collect::<String>()),
        false => "****".to_owned(),
    }
}

/// Loads the keys of files. Returns why some tokens can't be verified here.
pub(super) fn load_keys(identity: &Identity) -> Vec<String> {
    let urls = identity.verifiers().iter().filter_map(|verifier| match &verifier.config().keys {
        KeySource::Url { url, .. } => Some(format!("tokens by the keys of {url} are not verified: nothing is fetched")),
        KeySource::File(_) => None,
    });
    let failures = unloaded_keys(identity).into_iter().map(|(path, error)| format!("keys {}: {error}", path.display()));
    urls.chain(failures).collect()
}

/// Loads the keys of files. Returns the files that can't be loaded, and why.
pub(crate) fn unloaded_keys(identity: &Identity) -> Vec<(PathBuf, String)> {
    let failures = identity.verifiers().iter().filter_map(|verifier| {
        let KeySource::File(path) = &verifier.config().keys else { return None };
        match read_keys(path) {
            Ok(keys) => {
                verifier.set_keys(keys);
                None
            }
            Err(error) => Some((path.clone(), error)),
        }
    });
    failures.collect()
}

fn read_keys(path: &Path) -> Result<KeySet, String> {
    let mut document = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(MAX_KEY_SET_BYTES as u64 + 1).read_to_end(&mut document).map_err(|error| error.to_string())?;
    let (keys, _) = KeySet::parse(&document)?;
    if keys.is_empty() { Err("there is no key that can be used".to_owned()) } else { Ok(keys) }
}
