//! The settings of access control.

use std::path::PathBuf;

use tollgate_rules::problem::{TextFault, choose, quoted};

use super::origin::Origin;
use super::read::SettingsReader;
use super::settings::{AdminSettings, DataAuth};
use super::table::DATA_AUTH;
use tollgate_admin::auth::Identity;
use tollgate_admin::scopes::{AccessScope, AccessScopes};

impl SettingsReader<'_> {
    pub(super) fn admin(&mut self) -> Option<AdminSettings> {
        let as_envoy = self
            .values
            .get("admin")
            .is_some_and(|value| matches!(value.origin, Origin::Envoy(_) | Origin::EnvoyDefault));
        let listen = self.listen("admin");
        let token_file = self.or("admin_token_file", "none", |text, _| Ok(PathBuf::from(text)));
        let identities = self.list("admin_identities", parse_identity);
        let (listen, token_file, identities) = (listen?, token_file?, identities?);
        if !identities.is_empty() && listen.tls.as_ref().is_none_or(|tls| tls.clients.is_none()) {
            let message = "`admin_identities` needs `admin_tls_client_ca`, which is not set";
            let remedy = "set `admin_tls_client_ca` too, or remove `admin_identities`";
            self.reject("admin_identities", TextFault::new(message, remedy));
            return None;
        }
        Some(AdminSettings { listen, token_file, identities, as_envoy })
    }

    pub(super) fn data_auth(&mut self, name: &str) -> Option<DataAuth> {
        self.word(name, DATA_AUTH, &[DataAuth::Off, DataAuth::Token])
    }
}

/// `spiffe://corp/ops=all`, `billing.internal=read+quota`.
fn parse_identity(text: &str) -> Result<Identity, TextFault> {
    let pair = text.rsplit_once('=').map(|(name, scopes)| (name.trim(), scopes.trim()));
    let Some((name, scopes)) = pair.filter(|(name, scopes)| !name.is_empty() && !scopes.is_empty()) else {
        let message = format!("{} is not a name with scopes", quoted(text));
        return Err(TextFault::new(message, "write for instance spiffe://corp/ops=all or billing.internal=read+quota"));
    };
    let scopes = match scopes {
        "all" => AccessScopes::all(),
        some => some.split('+').map(parse_scope).collect::<Result<_, _>>()?,
    };
    Ok(Identity { name: name.to_owned(), scopes })
}

fn parse_scope(word: &str) -> Result<AccessScope, TextFault> {
    let word = word.trim();
    let names = || AccessScope::ADMIN.into_iter().map(AccessScope::name);
    AccessScope::ADMIN.into_iter().find(|scope| scope.name() == word).ok_or_else(|| {
        let message = format!("{} is not one of all, {}", quoted(word), names().collect::<Vec<_>>().join(", "));
        TextFault::new(message, choose(word, names()))
    })
}
