//! Builds access control from the settings.

use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::Arc;

use super::component::{Foundation, Tasks};
use crate::config::{DataAuth, ListenSettings, ServerSettings};
use tollgate_admin::auth::{Auth, AuthConfig, TokenFile};
use tollgate_admin::store_of_record::ControlPlane;
use tollgate_admin::tokens::TokenIndex;
use tollgate_net::Address;

/// Access control of the listeners.
pub(super) struct AccessGuards {
    /// Tokens of the data plane.
    pub(super) keys: Arc<TokenIndex>,
    /// Access to the admin listener.
    pub(super) auth: Arc<Auth>,
}

impl AccessGuards {
    /// # Errors
    /// If the admin listener can be reached from other machines without access control, or a token file can't be used.
    pub(super) fn build(
        foundation: &Foundation<'_>,
        control: &Arc<ControlPlane>,
        tasks: &mut Tasks,
    ) -> Result<AccessGuards, String> {
        let Foundation { settings, metrics, health, .. } = foundation;
        let admin = &settings.admin;
        let file = admin.token_file.as_deref().map(TokenFile::load).transpose()?.map(Arc::new);
        if let Some(file) = file.clone() {
            let health = health.clone();
            tasks.add(move |closing| async move { file.follow(health, closing).await });
        }
        let keys = Arc::new(TokenIndex::new(control.clone()));
        let setup =
            AuthConfig { file, identities: admin.identities.clone(), is_open: !is_local(&admin.listen.address) };
        let auth = Auth::new(setup, keys.clone(), control.clone(), metrics)?;
        let address = &admin.listen.address;
        match auth.refusal(address) {
            Some(why) if !admin.as_envoy => return Err(why),
            Some(_) => tracing::warn!(
                "admin: {address} can be reached from other machines, like that of envoyproxy/ratelimit, and there is no access control: \
                 everybody gets metrics and health, nobody the rest; set admin_token_file, or admin to 127.0.0.1"
            ),
            None if !auth.is_configured() && *address != Address::Off => {
                tracing::info!("admin API: loopback only (no token configured); `tollgate token create` creates one")
            }
            None => {}
        }
        warn_open(settings);
        if !control.knows_tokens() {
            tracing::warn!(
                "the store of record is unavailable: accepting the tokens of this server's copy and of admin_token_file"
            );
        }
        if [settings.http.auth, settings.grpc.auth].contains(&DataAuth::Token) && !keys.may_have_tokens() {
            tracing::warn!(
                "checks need a token, but there is none: they are refused until `tollgate token create` creates one with the scope check"
            );
        }
        let auth = Arc::new(auth);
        let audited = auth.clone();
        tasks.add(move |closing| async move { audited.audit_refusals(closing).await });
        Ok(AccessGuards { keys, auth })
    }
}

/// Warns of listeners on which other machines may check, and spend the quota of every caller, without access control.
fn warn_open(settings: &ServerSettings) {
    let listeners = [
        ("grpc", &settings.grpc.listen, settings.grpc.auth),
        ("http", &settings.http.listen, settings.http.auth),
        ("resp", &settings.resp.listen, DataAuth::Off),
    ];
    for (name, listen, auth) in listeners {
        if auth == DataAuth::Off && !has_client_certificates(listen) && !is_local(&listen.address) {
            let remedy = match name {
                "resp" => "set resp_tls_client_ca, or listen on loopback".to_owned(),
                name => format!("set {name}_auth or {name}_tls_client_ca, or listen on loopback"),
            };
            let address = &listen.address;
            tracing::warn!(
                "{name}: {address} can be reached from other machines without access control: whoever can connect may spend the \
                 quota of every caller; {remedy}"
            );
        }
    }
}

fn has_client_certificates(listen: &ListenSettings) -> bool {
    listen.tls.as_ref().is_some_and(|tls| tls.clients.is_some())
}

/// Whether an address can be reached only from this machine.
pub(super) fn is_local(address: &Address) -> bool {
    match address {
        Address::Unix(_) | Address::Off => true,
        Address::Tcp { host, port } => match host.parse::<IpAddr>() {
            Ok(address) => address.is_loopback(),
            // Any address of a name may be the one that is bound.
            Err(_) => (&**host, *port).to_socket_addrs().is_ok_and(|mut all| all.all(|one| one.ip().is_loopback())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_unix_sockets_are_local() {
        for (address, local) in [
            ("127.0.0.1:1", true),
            ("127.1.2.3:1", true),
            ("[::1]:1", true),
            ("localhost:1", true),
            ("unix:/run/x", true),
            ("off", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("10.0.0.1:1", false),
            ("no-such-host.invalid:1", false),
        ] {
            assert_eq!(is_local(&address.parse().unwrap()), local, "{address}");
        }
    }
}
