//! Authentication on the admin listener.
//!
//! Clients authenticate with a token, with a certificate that the handshake verified, or, where neither is configured, by being on
//! this machine. Requests from web pages of other sites are always rejected.

mod file;
mod logins;
mod refusals;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};

use super::scopes::{AccessScope, AccessScopes, Principal};
use crate::problem::ApiProblem;
use crate::store_of_record::ControlPlane;
use crate::tokens::{TokenIndex, bearer};
pub use file::TokenFile;
use logins::Logins;
use refusals::{Refusals, Source};
use tollgate_net::tls::sans::San;
use tollgate_net::{Address, Closing, Stream};
use tollgate_telemetry::metrics::Metrics;
use tollgate_wire::origin;

/// Authenticates clients.
#[derive(Debug)]
pub struct Auth {
    tokens: Arc<TokenIndex>,
    file: Option<Arc<TokenFile>>,
    identities: Vec<Identity>,
    logins: Logins,
    refusals: Refusals,
    control: Arc<ControlPlane>,
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
    /// The address of this machine that it connected to.
    local: Option<IpAddr>,
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
struct AccessRefused {
    /// The reason in the audit log.
    reason: &'static str,
    problem: ApiProblem,
}

/// The code of the response to an address that presented too many invalid tokens.
const TOO_MANY_LOGINS: &str = "too_many_logins";

impl ClientPeer {
    pub fn from_stream(stream: &Stream) -> ClientPeer {
        let address = match stream.peer_address() {
            Some(address) => PeerAddress::Ip(address),
            None if stream.is_unix() => PeerAddress::Unix,
            None => PeerAddress::Unknown,
        };
        let names = stream.certificate().map(|shown| San::from_certificate(shown).unwrap_or_default().into());
        ClientPeer { address, local: stream.local_address(), names }
    }

    /// Whether both ends are on this machine. A loopback address of the client alone does not say so: sidecars forward the requests
    /// of others from one.
    fn is_local(&self) -> bool {
        match self.address {
            PeerAddress::Unix => true,
            PeerAddress::Ip(address) => address.is_loopback() && self.local.is_some_and(|local| local.is_loopback()),
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
        let logins = Logins::new(control.clone(), metrics.admin_logins_failed())?;
        Ok(Auth { tokens, file, identities, logins, refusals: Refusals::default(), control, is_local: !is_open })
    }

    /// Writes summaries of refused access to the audit log, until the server is about to stop.
    pub async fn audit_refusals(self: Arc<Auth>, closing: Closing) {
        self.refusals.follow(&self.control, closing).await;
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

    fn authenticate(&self, peer: &ClientPeer, headers: &HeaderMap) -> Result<Principal, AccessRefused> {
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
            return Err(unauthorized("no_credentials", "present a token: Authorization: Bearer tg_…"));
        }
        self.by_address(peer, headers)
    }

    fn by_token(&self, peer: &ClientPeer, headers: &HeaderMap) -> Result<Principal, AccessRefused> {
        let malformed = || unauthorized("no_credentials", "use Authorization: Bearer tg_…");
        let secret = bearer(headers).ok_or_else(malformed)?;
        let from = peer.text();
        if let Some(holder) = self.tokens.find(secret) {
            return Ok(Principal { name: format!("token {}", holder.name), from, scopes: holder.scopes });
        }
        if self.file.as_ref().is_some_and(|file| file.matches(secret)) {
            return Ok(Principal { name: file::NAME.to_owned(), from, scopes: AccessScopes::all() });
        }
        // Valid tokens are accepted before: others at the same address can't lock their holders out. Secrets are too long to be
        // guessed, so the limit only bounds what is answered and recorded.
        match self.logins.record_failure(peer.ip()) {
            true => Err(unauthorized("unknown_token", "the token is unknown or no longer in force")),
            false => {
                let detail = "too many invalid tokens from this address; wait";
                let problem = ApiProblem::new(StatusCode::TOO_MANY_REQUESTS, TOO_MANY_LOGINS, detail);
                Err(AccessRefused { reason: "unknown_token", problem })
            }
        }
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

    /// Without configuration, clients on this machine are accepted, if no others can reach the listener.
    fn by_address(&self, peer: &ClientPeer, headers: &HeaderMap) -> Result<Principal, AccessRefused> {
        if !self.is_local {
            let detail = "the listener can be reached from other machines, so nobody is accepted without a token; set admin_token_file, or create a token while the server listens on 127.0.0.1";
            return Err(forbidden("not_local", detail));
        }
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

    /// Checks access to a page that needs no credentials. A web page can reach a loopback listener from a browser on this machine,
    /// by a name that it makes resolve to it: such a name is only accepted with credentials.
    fn check_page(&self, peer: &ClientPeer, headers: &HeaderMap) -> Result<(), AccessRefused> {
        let is_exposed = self.is_local && peer.address != PeerAddress::Unix;
        if !is_exposed || !origin::may_be_rebound(headers) || self.authenticate(peer, headers).is_ok() {
            return Ok(());
        }
        let detail = "the listener must be addressed as 127.0.0.1, [::1], localhost or by an IP address; with a token, by any name";
        Err(forbidden("wrong_host", detail))
    }

    fn record(
        &self,
        peer: &ClientPeer,
        name: Option<String>,
        refused: (&'static str, StatusCode),
        request: (&Method, &Uri),
    ) {
        let (reason, status) = refused;
        let source = Source { name, from: peer.text(), reason };
        self.refusals.record(source, status, request, self.control.now());
    }

    /// Records a refusal, and responds with it.
    fn refuse(&self, peer: &ClientPeer, refused: AccessRefused, request: &Request) -> Response {
        let AccessRefused { reason, problem } = refused;
        self.record(peer, None, (reason, problem.status), (request.method(), request.uri()));
        let is_login = problem.code == TOO_MANY_LOGINS;
        let mut response = problem.into_response();
        if is_login {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(logins::WAIT.as_secs()));
        }
        response
    }
}

fn unauthorized(reason: &'static str, detail: &str) -> AccessRefused {
    AccessRefused { reason, problem: ApiProblem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail) }
}

fn forbidden(code: &'static str, detail: &str) -> AccessRefused {
    AccessRefused { reason: code, problem: ApiProblem::new(StatusCode::FORBIDDEN, code, detail) }
}

fn peer_of(request: &Request) -> ClientPeer {
    let unknown = || ClientPeer { address: PeerAddress::Unknown, local: None, names: None };
    request.extensions().get::<ClientPeer>().cloned().unwrap_or_else(unknown)
}

/// Middleware: authenticates the request and adds the [`Principal`].
pub(super) async fn authenticate(State(auth): State<Arc<Auth>>, mut request: Request, next: Next) -> Response {
    let peer = peer_of(&request);
    let principal = match auth.authenticate(&peer, request.headers()) {
        Ok(principal) => principal,
        Err(refused) => return auth.refuse(&peer, refused, &request),
    };
    let (method, uri, name) = (request.method().clone(), request.uri().clone(), principal.name.clone());
    request.extensions_mut().insert(principal);
    let response = next.run(request).await;
    if response.status() == StatusCode::FORBIDDEN {
        auth.record(&peer, Some(name), ("forbidden", StatusCode::FORBIDDEN), (&method, &uri));
    }
    response
}

/// Middleware of pages that need no credentials.
pub(super) async fn guard_page(State(auth): State<Arc<Auth>>, request: Request, next: Next) -> Response {
    let peer = peer_of(&request);
    match auth.check_page(&peer, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refused) => auth.refuse(&peer, refused, &request),
    }
}

/// Middleware: requires the scope `read`.
pub(super) async fn require_read(request: Request, next: Next) -> Response {
    match request.extensions().get::<Principal>() {
        Some(principal) => match principal.require(AccessScope::Read) {
            Ok(()) => next.run(request).await,
            Err(problem) => problem.into_response(),
        },
        None => unauthorized("no_credentials", "the request is not authenticated").problem.into_response(),
    }
}
