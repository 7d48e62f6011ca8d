//! Which attributes are private: their values are credentials, which names of counters and logs must not contain.
//!
//! The list is part of the stored format. A change of it renames counters in a shared store.

/// The private attributes of a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PrivateAttributes {
    /// Those whose names look like credentials.
    #[default]
    ByName,
    /// These and no others.
    Listed(Box<[Box<str>]>),
}

/// An attribute is private if a word of its name ends with one of these. Words are separated by other characters than
/// letters and digits, or begin with a capital letter.
pub const CREDENTIAL_WORDS: [&str; 17] = [
    "apikey",
    "auth",
    "authorization",
    "bearer",
    "cookie",
    "cookies",
    "credential",
    "credentials",
    "jwt",
    "passphrase",
    "passwd",
    "password",
    "secret",
    "session",
    "sessionid",
    "sid",
    "token",
];

/// An attribute is also private if it has the word `key` after one of these.
pub const CREDENTIAL_KEYS: [&str; 7] = ["access", "account", "api", "client", "license", "private", "secret"];

impl PrivateAttributes {
    /// Whether the values of an attribute are private.
    pub fn contains(&self, attribute: &str) -> bool {
        match self {
            PrivateAttributes::ByName => is_credential(attribute),
            PrivateAttributes::Listed(names) => names.iter().any(|name| **name == *attribute),
        }
    }
}

/// Whether a name looks like that of a credential. Allocates nothing: it runs for each attribute of a logged request.
fn is_credential(attribute: &str) -> bool {
    let mut before = "";
    words(attribute).any(|word| {
        let before = std::mem::replace(&mut before, word);
        CREDENTIAL_WORDS.iter().any(|credential| ends_with(word, credential))
            || (word.eq_ignore_ascii_case("key") && CREDENTIAL_KEYS.iter().any(|one| before.eq_ignore_ascii_case(one)))
    })
}

fn ends_with(word: &str, end: &str) -> bool {
    let from = word.len().checked_sub(end.len());
    from.and_then(|from| word.get(from..)).is_some_and(|rest| rest.eq_ignore_ascii_case(end))
}

/// `x-api-key`, `xApiKey` and `X_API_KEY` have the words x, api and key.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_ascii_alphanumeric()).flat_map(|part| {
        let mut rest = part;
        std::iter::from_fn(move || {
            let bytes = rest.as_bytes();
            let begins = |at: &usize| bytes[*at].is_ascii_uppercase() && !bytes[*at - 1].is_ascii_uppercase();
            let end = (1..bytes.len()).find(begins).unwrap_or(bytes.len());
            let (word, after) = rest.split_at(end);
            rest = after;
            (!word.is_empty()).then_some(word)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_credentials_are_private() {
        let private = [
            "api_key",
            "x-api-key",
            "X-API-Key",
            "apiKey",
            "apikey",
            "xApiKey",
            "Authorization",
            "proxy-authorization",
            "token",
            "access_token",
            "accessToken",
            "authtoken",
            "X-Auth-Token",
            "secret",
            "clientSecret",
            "password",
            "session",
            "session_id",
            "PHPSESSION",
            "cookie",
            "set-cookie",
            "jwt",
            "bearer",
            "license_key",
            "auth",
            "header.api.key",
            "credentials",
        ];
        let clear = [
            "",
            "key",
            "user",
            "user_id",
            "ip",
            "remote_address",
            "path",
            "method",
            "tenant",
            "tokens_used",
            "keyboard",
            "sort_key",
            "author",
            "authority",
            "secretary",
            "é",
            "tier",
            "generic_key",
            "header_match",
            "destination_cluster",
            "masked_remote_address",
        ];
        let by_name = PrivateAttributes::ByName;
        for name in private {
            assert!(by_name.contains(name), "{name}");
        }
        for name in clear {
            assert!(!by_name.contains(name), "{name}");
        }
        let listed = PrivateAttributes::Listed(["user".into()].into());
        assert!(listed.contains("user") && !listed.contains("User") && !listed.contains("api_key"));
        assert!(!PrivateAttributes::Listed([].into()).contains("token"));
    }
}
