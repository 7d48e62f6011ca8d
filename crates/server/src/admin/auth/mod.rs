//! Who asks the admin listener, and whether they may at all.
//!
//! By what they show: a token, a certificate that the handshake verified, or, where nobody has set up either, that they are on this
//! machine. Whatever they show, a web page of another site is refused.

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

use super::api::Problem;
use super::who::{Scope, Scopes, Who};
use crate::control::Control;
use crate::net::tls::sans::San;
use crate::net::{Address, Stream};
use crate::observe::metrics::Metrics;
use crate::tokens::{Keys, bearer};
pub(crate) use file::TokenFile;
use logins::Logins;

/// Knows who may come in.
#[derive(Debug)]
pub(crate) struct Auth {
    keys: Arc<Keys>,
    file: Option<Arc<TokenFile>>,
    identities: Vec<Identity>,
    logins: Logins,
    /// Whether only this machine can reach the listener.
    is_local: bool,
}

/// What an operator set up.
#[derive(Debug, Default)]
pub(crate) struct Setup {
    pub(crate) file: Option<Arc<TokenFile>>,
    pub(crate) identities: Vec<Identity>,
    /// Whether others than this machine can reach the listener.
    pub(crate) is_open: bool,
}

/// A name in clients' certificates, and what who has it may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// As it was written.
    pub(crate) name: String,
    pub(crate) scopes: Scopes,
}

/// Where a connection comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    from: Whence,
    /// The names in its certificate, if it showed one.
    names: Option<Arc<[San]>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whence {
    Unix,
    Address(IpAddr),
    /// It is gone already.
    Nowhere,
}

/// Who is not let in, and why.
#[derive(Debug)]
enum Refused {
    /// They may ask again when they have shown who they are, or as somebody else.
    Problem(Problem),
    TooManyFailures,
}

impl Peer {
    pub(crate) fn of(stream: &Stream) -> Peer {
        let from = match stream.peer_address() {
            Some(address) => Whence::Address(address),
            None if stream.is_unix() => Whence::Unix,
            None => Whence::Nowhere,
        };
        let names = stream.certificate().map(|shown| San::all_of(shown).unwrap_or_default().into());
        Peer { from, names }
    }

    fn is_local(&self) -> bool {
        match self.from {
            Whence::Unix => true,
            Whence::Address(address) => address.is_loopback(),
            Whence::Nowhere => false,
        }
    }

    fn address(&self) -> Option<IpAddr> {
        match self.from {
            Whence::Address(address) => Some(address),
            Whence::Unix | Whence::Nowhere => None,
        }
    }

    /// As the audit log has it.
    fn text(&self) -> String {
        match self.from {
            Whence::Unix => "unix".to_owned(),
            Whence::Address(address) => address.to_string(),
            Whence::Nowhere => String::new(),
        }
    }
}

impl Auth {
    /// # Errors
    /// If failed logins can't be counted.
    pub(crate) fn new(setup: Setup, keys: Arc<Keys>, control: Arc<Control>, metrics: &Metrics) -> Result<Auth, String> {
        let Setup { file, identities, is_open } = setup;
        let logins = Logins::new(control, metrics.admin_logins_failed())?;
        Ok(Auth { keys, file, identities, logins, is_local: !is_open })
    }

    /// Of a listener that only this machine reaches, with nothing set up.
    #[cfg(test)]
    pub(crate) fn of_this_machine(control: &Arc<Control>, metrics: &Metrics) -> Arc<Auth> {
        let keys = Arc::new(Keys::new(control.clone()));
        Arc::new(Auth::new(Setup::default(), keys, control.clone(), metrics).unwrap())
    }

    /// Whether anybody has set up who may come in, or may have.
    pub(crate) fn is_set_up(&self) -> bool {
        self.file.is_some() || !self.identities.is_empty() || self.keys.may_be_there()
    }

    /// Why a server must not listen at an address as it is set up, with what to do.
    pub(crate) fn refusal(&self, address: &Address) -> Option<String> {
        (!self.is_local && !self.is_set_up()).then(|| {
            format!(
                "admin: {address} can be reached by others than this machine, and nothing says who may come in; write a token \
                 into a file and name it with --admin-token-file, or make one with `tollgate token create` while the server \
                 listens on 127.0.0.1, or map certificates to scopes with --admin-identities, or listen on 127.0.0.1 or a Unix \
                 socket"
            )
        })
    }

    /// Whether only this machine can reach the listener.
    pub(crate) fn is_local(&self) -> bool {
        self.is_local
    }

    /// Whether there is somebody besides tokens who may do everything.
    pub(crate) fn has_keeper(&self) -> bool {
        self.file.is_some() || self.identities.iter().any(|identity| identity.scopes.are_all_of_admin())
    }

    /// Whether somebody's certificate would let them in.
    pub(crate) fn has_identities(&self) -> bool {
        !self.identities.is_empty()
    }

    fn who(&self, peer: &Peer, headers: &HeaderMap) -> Result<Who, Refused> {
        if origin::is_foreign(headers) {
            let detail =
                "this is asked from a web page of another site; ask from a program, or from a page of this listener";
            return Err(forbidden("cross_site", detail));
        }
        if headers.contains_key(AUTHORIZATION) {
            return self.by_token(peer, headers);
        }
        match self.by_certificate(peer) {
            Some(who) => return Ok(who),
            None if peer.names.is_some() && !self.identities.is_empty() => {
                let detail =
                    "the certificate has no name that admin_identities maps to scopes; map one, or show a token";
                return Err(forbidden("unknown_identity", detail));
            }
            None => {}
        }
        if self.is_set_up() {
            return Err(unauthorized("show a token: Authorization: Bearer tg_…"));
        }
        self.by_place(peer, headers)
    }

    fn by_token(&self, peer: &Peer, headers: &HeaderMap) -> Result<Who, Refused> {
        if !self.logins.may_try(peer.address()) {
            return Err(Refused::TooManyFailures);
        }
        let secret = bearer(headers).ok_or_else(|| unauthorized("write Authorization: Bearer tg_…"))?;
        let from = peer.text();
        if let Some(holder) = self.keys.find(secret) {
            return Ok(Who { name: format!("token {}", holder.name), from, scopes: holder.scopes });
        }
        if self.file.as_ref().is_some_and(|file| file.is(secret)) {
            return Ok(Who { name: file::NAME.to_owned(), from, scopes: Scopes::all() });
        }
        self.logins.failed(peer.address());
        tracing::debug!(%from, "somebody showed a token that is not in force");
        Err(unauthorized("the token is not known, or no longer in force"))
    }

    fn by_certificate(&self, peer: &Peer) -> Option<Who> {
        let names = peer.names.as_deref()?;
        let known = self.identities.iter().filter(|identity| names.contains(&San::meant(&identity.name)));
        let who =
            |first: &Identity, scopes| Who { name: format!("certificate {}", first.name), from: peer.text(), scopes };
        let mut known = known.peekable();
        let first = *known.peek()?;
        Some(who(first, known.fold(Scopes::default(), |all, one| all.and(one.scopes))))
    }

    /// Where nothing is set up, this machine is let in.
    fn by_place(&self, peer: &Peer, headers: &HeaderMap) -> Result<Who, Refused> {
        if !peer.is_local() {
            let detail = "without a token only this machine is let in; make one with `tollgate token create`, or set admin_token_file";
            return Err(forbidden("not_local", detail));
        }
        // No browser reaches a Unix socket.
        if peer.from != Whence::Unix && !origin::is_for_loopback(headers) {
            let detail =
                "without a token the listener is asked by a name of this machine: 127.0.0.1, [::1] or localhost";
            return Err(forbidden("wrong_host", detail));
        }
        Ok(Who { name: "loopback".to_owned(), from: peer.text(), scopes: Scopes::all() })
    }
}

fn unauthorized(detail: &str) -> Refused {
    Refused::Problem(Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail))
}

fn forbidden(code: &'static str, detail: &str) -> Refused {
    Refused::Problem(Problem::new(StatusCode::FORBIDDEN, code, detail))
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        match self {
            Refused::Problem(problem) => problem.into_response(),
            Refused::TooManyFailures => {
                let detail = "too many tokens from this address were not known; wait";
                let mut response =
                    Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_logins", detail).into_response();
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(logins::WAIT.as_secs()));
                response
            }
        }
    }
}

/// Lets those in who may be known, and says who they are.
pub(super) async fn known(State(auth): State<Arc<Auth>>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().cloned().unwrap_or(Peer { from: Whence::Nowhere, names: None });
    match auth.who(&peer, request.headers()) {
        Ok(who) => {
            request.extensions_mut().insert(who);
            next.run(request).await
        }
        Err(refused) => refused.into_response(),
    }
}

/// Lets those on who may read.
pub(super) async fn reading(request: Request, next: Next) -> Response {
    match request.extensions().get::<Who>() {
        Some(who) => match who.may(Scope::Read) {
            Ok(()) => next.run(request).await,
            Err(problem) => problem.into_response(),
        },
        None => unauthorized("nobody is known to ask").into_response(),
    }
}
