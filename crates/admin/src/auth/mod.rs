//! Authentication on the admin listener.
//!
//! Clients authenticate with a token, with a certificate that the handshake verified, or, where neither is configured, by being on
//! this machine. Requests from web pages of other sites are always rejected.

mod file;
mod logins;
mod origin;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::scopes::{AccessScope, AccessScopes, Principal};
use crate::problem::ApiProblem;
use crate::store_of_record::ControlPlane;
use crate::tokens::{TokenIndex, bearer};
pub use file::TokenFile;
use logins::Logins;
use tollgate_net::tls::sans::San;
use tollgate_net::{Address, Stream};
use tollgate_telemetry::metrics::Metrics;

/// Authenticates clients.
#[derive(Debug)]
pub struct Auth {
    tokens: Arc<TokenIndex>,
    file: Option<Arc<TokenFile>>,
    identities: Vec<Identity>,
    logins: Logins,
    /// Whether the listener can only be reached from this machine.
    is_local: bool,
}

/// Configuration of authentication.
#[derive(Debug, Default)]
pub struct AuthConfig {
    pub file: Option<Arc<TokenFile>>,
    pub identities: Vec<Identity>,
    /// Whether other machines can reach the listener.
    pub is_open: bool,
}

/// A name in client certificates, and its scopes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// As configured.
    pub name: String,
    pub scopes: AccessScopes,
}

/// The remote end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientPeer {
    address: PeerAddress,
    /// The names in its certificate, if it presented one.
    names: Option<Arc<[San]>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerAddress {
    Unix,
    Ip(IpAddr),
    /// The connection is closed already.
    Unknown,
}

/// Why a request is rejected.
#[derive(Debug)]
enum AuthError {
    /// Authentication failed or is missing.
    ApiProblem(ApiProblem),
    TooManyFailures,
}

impl ClientPeer {
    pub fn from_stream(stream: &Stream) -> ClientPeer {
        let address = match stream.peer_address() {
            Some(address) => PeerAddress::Ip(address),
            None if stream.is_unix() => PeerAddress::Unix,
            None => PeerAddress::Unknown,
        };
        let names = stream.certificate().map(|shown| San::from_certificate(shown).unwrap_or_default().into());
        ClientPeer { address, names }
    }

    fn is_local(&self) -> bool {
        match self.address {
            PeerAddress::Unix => true,
            PeerAddress::Ip(address) => address.is_loopback(),
            PeerAddress::Unknown => false,
        }
    }

    fn ip(&self) -> Option<IpAddr> {
        match self.address {
            PeerAddress::Ip(address) => Some(address),
            PeerAddress::Unix | PeerAddress::Unknown => None,
        }
    }

    /// Its text in the audit log.
    fn text(&self) -> String {
        match self.address {
            PeerAddress::Unix => "unix".to_owned(),
            PeerAddress::Ip(address) => address.to_string(),
            PeerAddress::Unknown => String::new(),
        }
    }
}

impl Auth {
    /// # Errors
    /// If failed logins can't be counted.
    pub fn new(
        setup: AuthConfig,
        tokens: Arc<TokenIndex>,
        control: Arc<ControlPlane>,
        metrics: &Metrics,
    ) -> Result<Auth, String> {
        let AuthConfig { file, identities, is_open } = setup;
        let logins = Logins::new(control, metrics.admin_logins_failed())?;
        Ok(Auth { tokens, file, identities, logins, is_local: !is_open })
    }

    /// A local listener without configuration.
    #[cfg(test)]
    pub fn local(control: &Arc<ControlPlane>, metrics: &Metrics) -> Arc<Auth> {
        let tokens = Arc::new(TokenIndex::new(control.clone()));
        Arc::new(Auth::new(AuthConfig::default(), tokens, control.clone(), metrics).unwrap())
    }

    /// Whether authentication is configured, or may be.
    pub fn is_configured(&self) -> bool {
        self.file.is_some() || !self.identities.is_empty() || self.tokens.may_have_tokens()
    }

    /// Why a server must not listen at an address with this configuration, with a remedy.
    pub fn refusal(&self, address: &Address) -> Option<String> {
        (!self.is_local && !self.is_configured()).then(|| {
            format!(
                "admin: {address} can be reached from other machines, and no authentication is configured; write a token \
                 to a file and set --admin-token-file, or create one with `tollgate token create` while the server \
                 listens on 127.0.0.1, or map certificates to scopes with --admin-identities, or listen on 127.0.0.1 or a Unix \
                 socket"
            )
        })
    }

    /// Whether the listener can only be reached from this machine.
    pub fn is_local(&self) -> bool {
        self.is_local
    }

    /// Whether a token file or an identity has all scopes of the admin API.
    pub fn has_full_admin(&self) -> bool {
        self.file.is_some() || self.identities.iter().any(|identity| identity.scopes.is_full_admin())
    }

    /// Whether certificates are mapped to scopes.
    pub fn has_identities(&self) -> bool {
        !self.identities.is_empty()
    }

    fn authenticate(&self, peer: &ClientPeer, headers: &HeaderMap) -> Result<Principal, AuthError> {
        if origin::is_foreign(headers) {
            let detail = "the request comes from a web page of another site; use a program or a page of this listener";
            return Err(forbidden("cross_site", detail));
        }
        if headers.contains_key(AUTHORIZATION) {
            return self.by_token(peer, headers);
        }
        match self.by_certificate(peer) {
            Some(principal) => return Ok(principal),
            None if peer.names.is_some() && !self.identities.is_empty() => {
                let detail =
                    "the certificate has no name that admin_identities maps to scopes; map one, or present a token";
                return Err(forbidden("unknown_identity", detail));
            }
            None => {}
        }
        if self.is_configured() {
            return Err(unauthorized("present a token: Authorization: Bearer tg_…"));
        }
        self.by_address(peer, headers)
    }

    fn by_token(&self, peer: &ClientPeer, headers: &HeaderMap) -> Result<Principal, AuthError> {
        if !self.logins.is_allowed(peer.ip()) {
            return Err(AuthError::TooManyFailures);
        }
        let secret = bearer(headers).ok_or_else(|| unauthorized("use Authorization: Bearer tg_…"))?;
        let from = peer.text();
        if let Some(holder) = self.tokens.find(secret) {
            return Ok(Principal { name: format!("token {}", holder.name), from, scopes: holder.scopes });
        }
        if self.file.as_ref().is_some_and(|file| file.matches(secret)) {
            return Ok(Principal { name: file::NAME.to_owned(), from, scopes: AccessScopes::all() });
        }
        self.logins.record_failure(peer.ip());
        tracing::debug!(%from, "an invalid token was presented");
        Err(unauthorized("the token is unknown or no longer in force"))
    }

    fn by_certificate(&self, peer: &ClientPeer) -> Option<Principal> {
        let names = peer.names.as_deref()?;
        let matching = self.identities.iter().filter(|identity| names.contains(&San::parse(&identity.name)));
        let principal = |first: &Identity, scopes| Principal {
            name: format!("certificate {}", first.name),
            from: peer.text(),
            scopes,
        };
        let mut matching = matching.peekable();
        let first = *matching.peek()?;
        Some(principal(first, matching.fold(AccessScopes::default(), |all, one| all.union(one.scopes))))
    }

    /// Without configuration, clients on this machine are accepted.
    fn by_address(&self, peer: &ClientPeer, headers: &HeaderMap) -> Result<Principal, AuthError> {
        if !peer.is_local() {
            let detail = "without a token only clients on this machine are accepted; create one with `tollgate token create`, or set admin_token_file";
            return Err(forbidden("not_local", detail));
        }
        // No browser reaches a Unix socket.
        if peer.address != PeerAddress::Unix && !origin::is_for_loopback(headers) {
            let detail = "without a token the listener must be addressed as 127.0.0.1, [::1] or localhost";
            return Err(forbidden("wrong_host", detail));
        }
        Ok(Principal { name: "loopback".to_owned(), from: peer.text(), scopes: AccessScopes::all() })
    }
}

fn unauthorized(detail: &str) -> AuthError {
    AuthError::ApiProblem(ApiProblem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail))
}

fn forbidden(code: &'static str, detail: &str) -> AuthError {
    AuthError::ApiProblem(ApiProblem::new(StatusCode::FORBIDDEN, code, detail))
}

impl IntoResponse for AuthError {
    fn into_response(self) -> Response {
        match self {
            AuthError::ApiProblem(problem) => problem.into_response(),
            AuthError::TooManyFailures => {
                let detail = "too many invalid tokens from this address; wait";
                let mut response =
                    ApiProblem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_logins", detail).into_response();
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(logins::WAIT.as_secs()));
                response
            }
        }
    }
}

/// Middleware: authenticates the request and adds the [`Principal`].
pub(super) async fn authenticate(State(auth): State<Arc<Auth>>, mut request: Request, next: Next) -> Response {
    let peer = request
        .extensions()
        .get::<ClientPeer>()
        .cloned()
        .unwrap_or(ClientPeer { address: PeerAddress::Unknown, names: None });
    match auth.authenticate(&peer, request.headers()) {
        Ok(principal) => {
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        Err(refused) => refused.into_response(),
    }
}

/// Middleware: requires the scope `read`.
pub(super) async fn require_read(request: Request, next: Next) -> Response {
    match request.extensions().get::<Principal>() {
        Some(principal) => match principal.require(AccessScope::Read) {
            Ok(()) => next.run(request).await,
            Err(problem) => problem.into_response(),
        },
        None => unauthorized("the request is not authenticated").into_response(),
    }
}
