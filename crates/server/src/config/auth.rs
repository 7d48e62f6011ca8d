//! The settings that say who may ask.

use std::path::PathBuf;

use tollgate_rules::problem::{Fault, choose, quoted};

use super::origin::Origin;
use super::read::Reader;
use super::settings::{AdminSettings, DataAuth};
use super::table::DATA_AUTH;
use crate::admin::auth::Identity;
use crate::admin::who::{Scope, Scopes};

impl Reader<'_> {
    pub(super) fn admin(&mut self) -> Option<AdminSettings> {
        let as_envoy = self
            .values
            .given("admin")
            .is_some_and(|given| matches!(given.origin, Origin::Envoy(_) | Origin::EnvoyDefault));
        let listen = self.listen("admin");
        let token_file = self.or("admin_token_file", "none", |text, _| Ok(PathBuf::from(text)));
        let identities = self.list("admin_identities", identity);
        let (listen, token_file, identities) = (listen?, token_file?, identities?);
        if !identities.is_empty() && listen.tls.as_ref().is_none_or(|tls| tls.clients.is_none()) {
            let message = "`admin_identities` needs `admin_tls_client_ca`, which is not set";
            let remedy = "set `admin_tls_client_ca` too, or remove `admin_identities`";
            self.refuse("admin_identities", Fault::new(message, remedy));
            return None;
        }
        Some(AdminSettings { listen, token_file, identities, as_envoy })
    }

    pub(super) fn data_auth(&mut self, name: &str) -> Option<DataAuth> {
        self.word(name, DATA_AUTH, &[DataAuth::Off, DataAuth::Token])
    }
}

/// `spiffe://corp/ops=all`, `billing.internal=read+quota`.
fn identity(text: &str) -> Result<Identity, Fault> {
    let pair = text.rsplit_once('=').map(|(name, scopes)| (name.trim(), scopes.trim()));
    let Some((name, scopes)) = pair.filter(|(name, scopes)| !name.is_empty() && !scopes.is_empty()) else {
        let message = format!("{} is not a name with scopes", quoted(text));
        return Err(Fault::new(message, "write for instance spiffe://corp/ops=all or billing.internal=read+quota"));
    };
    let scopes = match scopes {
        "all" => Scopes::all(),
        some => some.split('+').map(scope).collect::<Result<_, _>>()?,
    };
    Ok(Identity { name: name.to_owned(), scopes })
}

fn scope(word: &str) -> Result<Scope, Fault> {
    let word = word.trim();
    let known = || Scope::ADMIN.into_iter().map(Scope::name);
    Scope::ADMIN.into_iter().find(|scope| scope.name() == word).ok_or_else(|| {
        let message = format!("{} is not one of all, {}", quoted(word), known().collect::<Vec<_>>().join(", "));
        Fault::new(message, choose(word, known()))
    })
}
