//! Management of tokens. Secrets are shown once and not stored.
//!
//! A caller who manages tokens could create one with all scopes, so all scopes of the admin API are required. And at least one
//! permanent administrator must remain: as long as authentication is configured there is a token with all of these scopes and no
//! expiry, or a token file, or an identity with all scopes.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRef, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate::Span;
use tollgate_control::{Precondition, RecordFilter, RecordName, StoredRecord};
use tollgate_records::RecordKind;
use tollgate_records::Rfc3339;
use tollgate_records::documents::FieldFaults;
use tollgate_rules::limit_text;

use super::body::{self, RequestBody};
#[cfg(test)]
use super::description;
use super::expiry::check_reason;
use super::extract::{PathParams, Query};
use super::names::ListPage;
use super::records::{self, PreparedWrite, RecordWrite};
use super::{Api, ApiProblem, ApiResult, RequestContext};
use crate::auth::Auth;
use crate::scopes::AccessScope;
use crate::tokens::{TokenDocument, generate_secret, hash, to_hex};

/// The state of the token handlers.
#[derive(Clone)]
pub struct TokenApi {
    api: Api,
    auth: Arc<Auth>,
}

/// A new token.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenBody {
    /// Letters, digits, dots, dashes and underscores.
    #[schema(pattern = "^[A-Za-z0-9._-]{1,64}$")]
    name: String,
    /// `read`, `quota`, `rules`, `emergency`, `audit`, `check`.
    #[schema(min_items = 1)]
    scopes: Vec<String>,
    /// When the token expires; never by default.
    #[schema(value_type = Option<String>)]
    expires_at: Option<Rfc3339>,
    /// Or how long it is valid: `90d`.
    r#for: Option<String>,
    reason: Option<String>,
}

/// A rotation of a secret.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RotateBody {
    /// How long the old secret stays valid: at most 30 days, `1h` by default.
    grace: Option<String>,
    reason: Option<String>,
}

/// Selects tokens.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenListQuery {
    after: Option<String>,
    limit: Option<usize>,
}

/// The domain of tokens' records.
const DOMAIN: &str = "";
/// Tokens.
const MAX_TOKENS: usize = 10_000;
/// The length of a token's name.
const MAX_NAME_BYTES: usize = 64;
/// The default grace period of an old secret.
const DEFAULT_GRACE: Span = Span::from_secs(3_600);
/// The maximal grace period of an old secret.
const MAX_GRACE: Span = Span::from_secs(30 * 86_400);
/// The maximal lifetime of a token with an expiry.
const MAX_LIFETIME: Span = Span::from_secs(10 * 366 * 86_400);

pub(crate) fn routes(api: Api, auth: Arc<Auth>) -> Router {
    Router::new()
        .route("/admin/v1/tokens", get(list).post(create))
        .route("/admin/v1/tokens/{name}", get(show).delete(delete))
        .route("/admin/v1/tokens/{name}/rotate", post(rotate))
        .with_state(TokenApi { api, auth })
}

impl FromRef<TokenApi> for Api {
    fn from_ref(tokens: &TokenApi) -> Api {
        tokens.api.clone()
    }
}

/// Requires all scopes of the admin API.
fn require_manage(context: &RequestContext) -> Result<(), ApiProblem> {
    AccessScope::ADMIN.into_iter().try_for_each(|scope| context.require(scope))
}

/// List tokens, without secrets
#[utoipa::path(
    get, path = "/admin/v1/tokens", operation_id = "tokens_list", tag = "tokens", params(description::Paged),
    responses((status = 200, body = description::ListBody), (status = "default", response = description::Failed))
)]
pub(crate) async fn list(
    State(api): State<Api>,
    context: RequestContext,
    Query(query): Query<TokenListQuery>,
) -> ApiResult {
    require_manage(&context)?;
    let after = query.after.as_deref().map(record_name);
    let (page, next) = records::page_of_names(&api, &RecordFilter::new(RecordKind::Token), after, query.limit).await?;
    let items: Vec<Value> = page.iter().map(|stored| item(stored, &api)).collect();
    Ok(Json(ListPage { items, next }).into_response())
}

/// Show a token, without its secret
#[utoipa::path(
    get, path = "/admin/v1/tokens/{name}", operation_id = "tokens_show", tag = "tokens",
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(crate) async fn show(
    State(api): State<Api>,
    context: RequestContext,
    PathParams(name): PathParams<String>,
) -> ApiResult {
    require_manage(&context)?;
    let stored = records::get(&api, &record_name(&name)).await?;
    Ok(records::tagged_response(stored.generation, &item(&stored, &api)))
}

/// Create a token. The secret is only in this response
#[utoipa::path(
    post, path = "/admin/v1/tokens", operation_id = "tokens_create", tag = "tokens",
    params(("Idempotency-Key" = Option<String>, Header, description = "A retry with the same key is answered without the secret")),
    request_body = TokenBody,
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(crate) async fn create(
    State(tokens): State<TokenApi>,
    mut context: RequestContext,
    body: RequestBody,
) -> ApiResult {
    require_manage(&context)?;
    let body = body.read().await?;
    let request: TokenBody = body::parse(&body)?;
    tokens.load_all().await?;
    let secret = secret()?;
    let (name, reason, document) = tokens.document(request, &context, &secret)?;
    // Never replace an existing token of the same name, whatever the precondition.
    context.expect = Precondition::Absent;
    let writing =
        RecordWrite { context: &context, name: record_name(&name), action: "token.create", reason, body: &body };
    let answer = to_json(&name, &document);
    let written = records::write(&tokens.api, writing, |_| {
        let since = (!document.is_permanent_admin()).then(|| tokens.api.generation());
        if since.is_some() && !tokens.has_admin_without(&name) {
            let detail = "the last token that could manage others was deleted meanwhile; create another one with all scopes first";
            return Err(ApiProblem::new(StatusCode::CONFLICT, "last_token", detail));
        }
        Ok(PreparedWrite { since, ..PreparedWrite::new(&document, answer.clone()) })
    })
    .await;
    let written = written.map_err(|problem| match problem.status {
        StatusCode::PRECONDITION_FAILED => {
            let detail = format!("a token {name} exists already; rotate it, or choose another name");
            ApiProblem::new(StatusCode::CONFLICT, "exists", detail)
        }
        _ => problem,
    })?;
    Ok(with_secret(written, answer, &secret))
}

/// Rotate a token. The new secret is only in this response
#[utoipa::path(
    post, path = "/admin/v1/tokens/{name}/rotate", operation_id = "tokens_rotate", tag = "tokens",
    params(description::Conditions), request_body = RotateBody,
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(crate) async fn rotate(
    State(tokens): State<TokenApi>,
    context: RequestContext,
    PathParams(name): PathParams<String>,
    body: RequestBody,
) -> ApiResult {
    require_manage(&context)?;
    let body = body.read().await?;
    let request: RotateBody = body::parse(&body)?;
    let mut faults = FieldFaults::default();
    let grace =
        request.grace.as_deref().map_or(Some(DEFAULT_GRACE), |text| parse_span(text, "grace", MAX_GRACE, &mut faults));
    let reason = reason(request.reason, &mut faults);
    let grace = faults.into_result(grace.unwrap_or(DEFAULT_GRACE)).map_err(ApiProblem::invalid)?;
    let secret = secret()?;
    let old_until = Rfc3339(tokens.api.now().after(grace));
    let rotated = |stored: Option<&StoredRecord>| -> Result<TokenDocument, ApiProblem> {
        let before = stored.map(parse_document).transpose()?.ok_or_else(|| records::missing(&record_name(&name)))?;
        let hash = to_hex(&hash(secret.as_bytes()));
        Ok(TokenDocument { old_hash: Some(before.hash), old_until: Some(old_until), hash, ..before })
    };
    let writing =
        RecordWrite { context: &context, name: record_name(&name), action: "token.rotate", reason, body: &body };
    let answer = std::sync::Mutex::new(Value::Null);
    let written = records::write(&tokens.api, writing, |stored| {
        let document = rotated(stored)?;
        let to_json = to_json(&name, &document);
        *answer.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = to_json.clone();
        Ok(PreparedWrite::new(&document, to_json))
    })
    .await?;
    Ok(with_secret(written, answer.into_inner().unwrap_or_default(), &secret))
}

/// Delete a token
#[utoipa::path(
    delete, path = "/admin/v1/tokens/{name}", operation_id = "tokens_delete", tag = "tokens",
    params(description::Conditions),
    responses((status = 200, body = Object), (status = "default", response = description::Failed))
)]
pub(crate) async fn delete(
    State(tokens): State<TokenApi>,
    context: RequestContext,
    PathParams(name): PathParams<String>,
) -> ApiResult {
    require_manage(&context)?;
    tokens.load_all().await?;
    let writing = RecordWrite {
        context: &context,
        name: record_name(&name),
        action: "token.delete",
        reason: String::new(),
        body: b"",
    };
    records::write(&tokens.api, writing, |stored| {
        // Concurrent writes of other servers matter too.
        let since = tokens.api.generation();
        if stored.is_some() {
            tokens.check_deletable(&name)?;
        }
        Ok(PreparedWrite { since: Some(since), ..PreparedWrite::deleted(json!({"name": name, "deleted": true})) })
    })
    .await
}

impl TokenApi {
    /// The document of a new token.
    fn document(
        &self,
        request: TokenBody,
        context: &RequestContext,
        secret: &str,
    ) -> Result<(String, String, TokenDocument), ApiProblem> {
        let (now, mut faults) = (self.api.now(), FieldFaults::default());
        let is_sound = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if request.name.is_empty() || request.name.len() > MAX_NAME_BYTES || !request.name.chars().all(is_sound) {
            let what = format!("use 1 to {MAX_NAME_BYTES} letters, digits, dots, dashes and underscores");
            faults.add("name", what);
        }
        let words: Vec<&str> = AccessScope::ALL.into_iter().map(AccessScope::name).collect();
        for (number, word) in request.scopes.iter().enumerate() {
            if AccessScope::parse(word).is_none() {
                let what = format!("{word:?} is not a scope; use some of {}", words.join(", "));
                faults.add(format!("scopes[{number}]"), what);
            } else if request.scopes.iter().take(number).any(|before| before == word) {
                faults.add(format!("scopes[{number}]"), format!("{word:?} is given twice"));
            }
        }
        if request.scopes.is_empty() {
            faults.add("scopes", format!("use some of {}", words.join(", ")));
        }
        let expires_at = match (request.expires_at, request.r#for.as_deref()) {
            (Some(_), Some(_)) => {
                faults.add("for", "set either `for` or `expires_at`");
                None
            }
            (end, None) => end,
            (None, Some(text)) => {
                parse_span(text, "for", MAX_LIFETIME, &mut faults).map(|life| Rfc3339(now.after(life)))
            }
        };
        if expires_at.is_some_and(|end| end.0 <= now) {
            faults.add("expires_at", "it is in the past");
        }
        let document = TokenDocument {
            hash: to_hex(&hash(secret.as_bytes())),
            old_hash: None,
            old_until: None,
            scopes: request.scopes,
            created_by: context.principal.name.clone(),
            created_at: Rfc3339(now),
            expires_at,
        };
        if faults.0.is_empty() && !document.is_permanent_admin() && !self.has_admin_without(&request.name) {
            faults.add(
                "scopes",
                "the first token must have every scope of the admin API (read, quota, rules, emergency, audit) and no expiry, or \
                 nobody could create another",
            );
        }
        let others = self.api.tokens().borrow().len();
        if others >= MAX_TOKENS {
            faults.add(
                "name",
                format!("there are {others} tokens, and no more than {MAX_TOKENS} are possible; delete some"),
            );
        }
        let reason = reason(request.reason, &mut faults);
        faults.into_result((request.name, reason, document)).map_err(ApiProblem::invalid)
    }

    /// Loads all tokens. A server that started from a snapshot of others has none at first.
    async fn load_all(&self) -> Result<(), ApiProblem> {
        if !self.api.knows_tokens() {
            self.api.catch_up(None).await?;
        }
        Ok(())
    }

    /// Whether a permanent administrator remains without this token.
    fn has_admin_without(&self, name: &str) -> bool {
        let is_permanent_admin =
            |text: &str| TokenDocument::parse(text).is_some_and(|document| document.is_permanent_admin());
        self.auth.has_full_admin()
            || self.api.tokens().borrow().iter().any(|(other, text)| other != name && is_permanent_admin(text))
    }

    /// Fails if no permanent administrator would remain.
    fn check_deletable(&self, name: &str) -> Result<(), ApiProblem> {
        let others = self.api.tokens().borrow().keys().any(|other| other != name);
        let last = |detail: &str| Err(ApiProblem::new(StatusCode::CONFLICT, "last_token", detail));
        if self.has_admin_without(name) {
            return Ok(());
        }
        if others || self.auth.has_identities() {
            return last(
                "without this token nobody could manage tokens, and others are in force; delete those first, or create another \
                 with every scope of the admin API and no expiry",
            );
        }
        if !self.auth.is_local() {
            return last(
                "without a token only clients on this machine are accepted, but the listener is reached from elsewhere; rotate it, or \
                 create another first",
            );
        }
        Ok(())
    }
}

fn record_name(name: &str) -> RecordName {
    RecordName::new(RecordKind::Token, DOMAIN, name)
}

fn secret() -> Result<String, ApiProblem> {
    generate_secret().map_err(|why| ApiProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "no_secret", why))
}

fn parse_span(text: &str, at: &str, max: Span, faults: &mut FieldFaults) -> Option<Span> {
    match limit_text::duration(text) {
        Ok(parse_span) if parse_span <= max => return Some(parse_span),
        Ok(_) => faults.add(at, format!("it is longer than {} days", max.as_micros() / 86_400_000_000)),
        Err(fault) => faults.add(at, fault.to_string()),
    }
    None
}

fn reason(text: Option<String>, faults: &mut FieldFaults) -> String {
    let reason = text.unwrap_or_default();
    check_reason(&reason, faults);
    reason
}

/// The stored response: everything but the secret.
fn to_json(name: &str, document: &TokenDocument) -> Value {
    let mut to_json = json!({"name": name, "scopes": document.scopes, "expires_at": document.expires_at});
    if let Some(expiry) = document.old_until {
        to_json["old_until"] = json!(expiry);
    }
    to_json
}

/// Adds the secret to the response, unless it repeats an earlier one.
fn with_secret(written: Response, mut answer: Value, secret: &str) -> Response {
    if records::is_replayed(&written) {
        return written;
    }
    answer["token"] = json!(secret);
    written.map(|_| Body::from(answer.to_string()))
}

fn item(stored: &StoredRecord, api: &Api) -> Value {
    let mut item = json!({
        "name": stored.name.name,
        "generation": stored.generation,
        "updated_at": Rfc3339(stored.updated_at),
        "updated_by": stored.updated_by,
    });
    if !stored.reason.is_empty() {
        item["reason"] = json!(stored.reason);
    }
    let now = api.now();
    if let Ok(document) = parse_document(stored) {
        item["scopes"] = json!(document.scopes);
        item["created_by"] = json!(document.created_by);
        item["created_at"] = json!(document.created_at);
        item["expires_at"] = json!(document.expires_at);
        item["expired"] = json!(document.expires_at.is_some_and(|end| end.0 <= now));
        if let Some(expiry) = document.old_until.filter(|expiry| expiry.0 > now) {
            item["old_until"] = json!(expiry);
        }
    }
    item
}

fn parse_document(stored: &StoredRecord) -> Result<TokenDocument, ApiProblem> {
    TokenDocument::parse(stored.document.as_deref().unwrap_or_default()).ok_or_else(|| {
        let detail = "the stored token can't be read; a newer Tollgate may have written it";
        ApiProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "control_failed", detail)
    })
}
