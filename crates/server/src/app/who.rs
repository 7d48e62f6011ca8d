//! Who may ask, as the settings say it.

use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::Arc;

use super::parts::Task;
use crate::admin::auth::{Auth, Setup, TokenFile};
use crate::config::{DataAuth, Settings};
use crate::control::Control;
use crate::health::Health;
use crate::net::Address;
use crate::observe::metrics::Metrics;
use crate::tokens::Keys;

/// Those who keep the listeners.
pub(super) struct Guards {
    /// Of the data plane.
    pub(super) keys: Arc<Keys>,
    /// Of the admin listener.
    pub(super) auth: Arc<Auth>,
}

/// # Errors
/// If the admin listener would be open to others and nothing says to whom, or a token file can't be used.
pub(super) fn build(
    settings: &Settings,
    control: &Arc<Control>,
    metrics: &Metrics,
    health: &Arc<Health>,
    background: &mut Vec<Task>,
) -> Result<Guards, String> {
    let admin = &settings.admin;
    let file = admin.token_file.as_deref().map(TokenFile::load).transpose()?.map(Arc::new);
    if let Some(file) = file.clone() {
        let health = health.clone();
        background.push(Box::new(move |closing| Box::pin(file.follow(health, closing))));
    }
    let keys = Arc::new(Keys::new(control.clone()));
    let setup = Setup { file, identities: admin.identities.clone(), is_open: !is_local(&admin.listen.address) };
    let auth = Auth::new(setup, keys.clone(), control.clone(), metrics)?;
    let address = &admin.listen.address;
    match auth.refusal(address) {
        Some(why) if !admin.as_envoy => return Err(why),
        Some(_) => tracing::warn!(
            "admin: {address} can be reached by others than this machine, as envoyproxy/ratelimit's is, and nothing says who may come \
             in: they are shown metrics and health, and only this machine the rest; set admin_token_file to let others in"
        ),
        None if !auth.is_set_up() && *address != Address::Off => tracing::info!(
            "no token is set up: the admin API lets in this machine alone; `tollgate token create` makes one"
        ),
        None => {}
    }
    if !control.knows_tokens() {
        tracing::warn!(
            "which tokens there are is not known while the store of record is away: those of this server's own copy are let in, and \
             the one of admin_token_file"
        );
    }
    if [settings.http.auth, settings.grpc.auth].contains(&DataAuth::Token) && !keys.may_be_there() {
        tracing::warn!(
            "checks need a token, and there is none: they are refused until `tollgate token create` has made one with the scope check"
        );
    }
    Ok(Guards { keys, auth: Arc::new(auth) })
}

/// Whether only this machine reaches an address.
fn is_local(address: &Address) -> bool {
    match address {
        Address::Unix(_) | Address::Off => true,
        Address::Tcp { host, port } => match host.parse::<IpAddr>() {
            Ok(address) => address.is_loopback(),
            // Any of a name's addresses may be the one that is bound.
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
