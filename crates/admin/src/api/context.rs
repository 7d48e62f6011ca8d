//! The context of a request: caller, preconditions and idempotency key.

use axum::extract::FromRequestParts;
use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::request::Parts;
use http::{HeaderName, StatusCode};
use siphasher::sip128::{Hasher128 as _, SipHasher13};
use std::hash::Hasher as _;
use std::sync::Arc;
use tollgate_control::{IdempotencyKey, Precondition};

use super::ApiProblem;
use crate::guardrails::Guardrails;
use crate::scopes::{AccessScope, Principal};

/// The caller and the conditions of a request.
#[derive(Clone, Debug)]
pub(crate) struct RequestContext {
    pub principal: Principal,
    /// The precondition of `If-Match` or `If-None-Match`.
    pub expect: Precondition,
    /// `Idempotency-Key`.
    key: Option<String>,
    /// Method and path, which an idempotency key is bound to.
    target: String,
    /// The plan of `Tollgate-Confirm`.
    pub confirm: Option<String>,
    guardrails: Option<Arc<Guardrails>>,
}

static CONFIRM: HeaderName = HeaderName::from_static("tollgate-confirm");
static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The maximal length of an idempotency key.
const MAX_KEY_BYTES: usize = 255;
/// The maximal length of a plan's id.
const MAX_PLAN_ID_BYTES: usize = 64;

/// Not a secret: it must be the same on every server.
const DIGEST_KEYS: (u64, u64) = (0x746f_6c6c_6761_7465, 0x6164_6d69_6e2f_7631);

impl RequestContext {
    /// Fails if the caller lacks the scope.
    pub(crate) fn require(&self, scope: AccessScope) -> Result<(), ApiProblem> {
        self.principal.require(scope)
    }

    /// Fails if the caller lacks the scope `emergency`; `action` says what needs it.
    pub(crate) fn require_emergency(&self, action: &str) -> Result<(), ApiProblem> {
        self.require(AccessScope::Emergency)
            .map_err(|problem| ApiProblem { detail: format!("{}: {action}", problem.detail), ..problem })
    }

    /// Fails if the caller may not see lists of callers in full: it must be able to read, and to see all callers or to change
    /// what the list contains.
    pub(crate) fn require_list(&self, change: AccessScope) -> Result<(), ApiProblem> {
        self.require(AccessScope::Read)?;
        if self.principal.scopes.contains(AccessScope::Audit) {
            return Ok(());
        }
        self.require(change).map_err(|_| {
            let (name, change) = (&self.principal.name, change.name());
            let detail = format!("{name} lacks the scope `audit` or `{change}`, which see callers in full");
            ApiProblem::new(StatusCode::FORBIDDEN, "forbidden", detail)
        })
    }

    /// Fails if the caller may not see this part of a list of callers. Whoever knows a name may ask for it.
    pub(crate) fn require_list_of(&self, name: Option<&str>, change: AccessScope) -> Result<(), ApiProblem> {
        match name {
            Some(_) => self.require(AccessScope::Read),
            None => self.require_list(change),
        }
    }

    /// The guardrails, if they are on.
    pub(crate) fn guardrails(&self) -> Option<&Arc<Guardrails>> {
        self.guardrails.as_ref().filter(|guardrails| guardrails.config().on)
    }

    /// The idempotency record of a write with this body, if the request has a key; `answer` is the response to a retry.
    pub(crate) fn once(&self, body: &[u8], answer: String) -> Option<IdempotencyKey> {
        let key = self.key.clone()?;
        Some(IdempotencyKey { key: once_key(&self.principal.name, &key), digest: self.digest(body), answer })
    }

    /// A digest of the request with this body. It is the same on every server.
    pub(crate) fn digest(&self, body: &[u8]) -> String {
        let mut hasher = digest_hasher();
        hasher.write(self.target.as_bytes());
        hasher.write(&[0]);
        hasher.write(body);
        format!("{:032x}", hasher.finish128().as_u128())
    }
}

/// Hashes requests, and parts of them.
pub(super) fn digest_hasher() -> SipHasher13 {
    SipHasher13::new_with_keys(DIGEST_KEYS.0, DIGEST_KEYS.1)
}

/// The key of an idempotency record: the caller's name with its slashes escaped, a slash, and the caller's key. The first slash ends
/// the name, so that `a` with the key `b/c` and `a/b` with the key `c` are distinct.
fn once_key(name: &str, key: &str) -> String {
    format!("{}/{key}", name.replace('%', "%25").replace('/', "%2F"))
}

impl<S: Sync> FromRequestParts<S> for RequestContext {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<RequestContext, ApiProblem> {
        let principal = parts.extensions.get::<Principal>().cloned();
        let principal = principal.ok_or_else(|| {
            ApiProblem::new(StatusCode::UNAUTHORIZED, "unauthorized", "the request is not authenticated")
        })?;
        let key = match parts.headers.get(&IDEMPOTENCY_KEY).map(|key| key.to_str()) {
            None => None,
            Some(Ok(key)) if (1..=MAX_KEY_BYTES).contains(&key.len()) => Some(key.to_owned()),
            Some(_) => {
                let detail = format!("Idempotency-Key must have 1 to {MAX_KEY_BYTES} visible characters");
                return Err(ApiProblem::bad_request("bad_idempotency_key", detail));
            }
        };
        let confirm = match parts.headers.get(&CONFIRM).map(|id| id.to_str()) {
            None => None,
            Some(Ok(id)) if (1..=MAX_PLAN_ID_BYTES).contains(&id.len()) => Some(id.to_owned()),
            Some(_) => {
                let detail =
                    format!("Tollgate-Confirm must be the id of a plan, with at most {MAX_PLAN_ID_BYTES} characters");
                return Err(ApiProblem::bad_request("bad_confirmation", detail));
            }
        };
        // Other servers have other addresses, which are parts of some URIs.
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let target = format!("{} {path}", parts.method);
        let guardrails = parts.extensions.get::<Arc<Guardrails>>().cloned();
        Ok(RequestContext { principal, expect: expect(parts)?, key, target, confirm, guardrails })
    }
}

fn expect(parts: &Parts) -> Result<Precondition, ApiProblem> {
    let text = |name| parts.headers.get(name).map(|value| value.to_str().map(str::trim).unwrap_or("?"));
    match (text(IF_MATCH), text(IF_NONE_MATCH)) {
        (None, None) => Ok(Precondition::Any),
        (Some("*"), None) => Ok(Precondition::Present),
        (None, Some("*")) => Ok(Precondition::Absent),
        (Some(tag), None) => {
            let number = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).and_then(|tag| tag.parse().ok());
            let detail = "If-Match must be the ETag of the record, for instance \"17\", or *";
            number.map(Precondition::Generation).ok_or_else(|| ApiProblem::bad_request("bad_precondition", detail))
        }
        // On a read it has no effect.
        (None, Some(_)) if parts.method == http::Method::GET => Ok(Precondition::Any),
        _ => Err(ApiProblem::bad_request(
            "bad_precondition",
            "use one of If-Match: \"…\", If-Match: *, If-None-Match: *",
        )),
    }
}
