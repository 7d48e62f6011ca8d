//! Tokens: made, listed, rotated, deleted. Their secrets are shown once, and kept nowhere.
//!
//! Who manages tokens could make one that may do everything, so nobody may who lacks a scope of the admin API. And somebody must
//! always be able to: as long as anybody is set up to come in, there is a token with all of these scopes and without an end, or a
//! token file, or an identity that may do everything.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRef, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate::Span;
use tollgate::control::Moment;
use tollgate::control::documents::Faults;
use tollgate_control::{Expect, Filter, Kind, Name, Stored};
use tollgate_rules::limit_text;

use super::extract::{Path, Query};
use super::names::Page;
use super::records::{self, Made, Writing};
use super::until::reason_fits;
use super::{Answer, Api, Asked, Problem, body, openapi};
use crate::admin::auth::Auth;
use crate::admin::who::Scope;
use crate::tokens::{TokenDocument, drawn, hash, to_hex};

/// What the handlers of tokens have at hand.
#[derive(Clone)]
pub(crate) struct Tokens {
    api: Api,
    auth: Arc<Auth>,
}

/// A token that is to be made.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenBody {
    /// Letters, digits, dots, dashes and underscores.
    #[schema(pattern = "^[A-Za-z0-9._-]{1,64}$")]
    name: String,
    /// `read`, `quota`, `rules`, `emergency`, `audit`, `check`.
    #[schema(min_items = 1)]
    scopes: Vec<String>,
    /// Until when; by default for good.
    #[schema(value_type = Option<String>)]
    expires_at: Option<Moment>,
    /// Or for how long: `90d`.
    r#for: Option<String>,
    reason: Option<String>,
}

/// A secret that is to be replaced.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RotateBody {
    /// For how long the old one holds: 30 days at most, by default `1h`.
    grace: Option<String>,
    reason: Option<String>,
}

/// Which tokens.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listed {
    after: Option<String>,
    limit: Option<usize>,
}

/// The domain of tokens' records: they belong to none.
const DOMAIN: &str = "";
/// The most tokens.
const MOST_TOKENS: usize = 10_000;
/// The longest name.
const LONGEST_NAME: usize = 64;
/// How long the old secret holds where nobody says: programs have that long to learn the new one.
const GRACE: Span = Span::from_secs(3_600);
/// The longest that an old secret may hold.
const LONGEST_GRACE: Span = Span::from_secs(30 * 86_400);
/// The longest that a token may hold which has an end; one without an end holds for ever.
const LONGEST_LIFE: Span = Span::from_secs(10 * 366 * 86_400);

pub(crate) fn routes(api: Api, auth: Arc<Auth>) -> Router {
    Router::new()
        .route("/admin/v1/tokens", get(list).post(create))
        .route("/admin/v1/tokens/{name}", get(show).delete(delete))
        .route("/admin/v1/tokens/{name}/rotate", post(rotate))
        .with_state(Tokens { api, auth })
}

impl FromRef<Tokens> for Api {
    fn from_ref(tokens: &Tokens) -> Api {
        tokens.api.clone()
    }
}

/// Refuses one who may not manage tokens.
fn may_manage(asked: &Asked) -> Result<(), Problem> {
    Scope::ADMIN.into_iter().try_for_each(|scope| asked.may(scope))
}

/// The tokens that there are: all but their secrets
#[utoipa::path(
    get, path = "/admin/v1/tokens", operation_id = "tokens_list", tag = "tokens", params(openapi::Paged),
    responses((status = 200, body = openapi::ListBody), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn list(State(api): State<Api>, asked: Asked, Query(listed): Query<Listed>) -> Answer {
    may_manage(&asked)?;
    let after = listed.after.as_deref().map(named);
    let (page, next) = records::page_of_names(&api, &Filter::of(Kind::Token), after, listed.limit).await?;
    let items: Vec<Value> = page.iter().map(|stored| item(stored, &api)).collect();
    Ok(Json(Page { items, next }).into_response())
}

/// A token: all but its secret
#[utoipa::path(
    get, path = "/admin/v1/tokens/{name}", operation_id = "tokens_show", tag = "tokens",
    responses((status = 200, body = Object), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn show(State(api): State<Api>, asked: Asked, Path(name): Path<String>) -> Answer {
    may_manage(&asked)?;
    let stored = records::get(&api, &named(&name)).await?;
    Ok(records::shown(stored.generation, &item(&stored, &api)))
}

/// Makes a token. Its secret is shown this once
#[utoipa::path(
    post, path = "/admin/v1/tokens", operation_id = "tokens_create", tag = "tokens",
    params(("Idempotency-Key" = Option<String>, Header, description = "Sent again under the same one, it is answered without the secret")),
    request_body = TokenBody,
    responses((status = 200, body = Object), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn create(State(tokens): State<Tokens>, mut asked: Asked, headers: HeaderMap, sent: Body) -> Answer {
    may_manage(&asked)?;
    let sent = body::whole(&headers, sent).await?;
    let wanted: TokenBody = body::parsed(&sent)?;
    tokens.know_all().await?;
    let secret = secret()?;
    let (name, reason, document) = tokens.document(wanted, &asked, &secret)?;
    // Nobody's token is replaced by a new one of the same name, whatever the writer expects.
    asked.expect = Expect::Absent;
    let writing = Writing { asked: &asked, name: named(&name), action: "token.create", reason, body: &sent };
    let answer = told(&name, &document);
    let written = records::write(&tokens.api, writing, |_| {
        let since = (!document.is_keeper()).then(|| tokens.api.generation());
        if since.is_some() && !tokens.is_kept_without(&name) {
            let detail = "the last token that could manage others was deleted meanwhile; make one like it first";
            return Err(Problem::new(StatusCode::CONFLICT, "last_token", detail));
        }
        Ok(Made { since, ..Made::of(&document, answer.clone()) })
    })
    .await;
    let written = written.map_err(|problem| match problem.status {
        StatusCode::PRECONDITION_FAILED => {
            let detail = format!("there is a token {name} already; rotate it, or choose another name");
            Problem::new(StatusCode::CONFLICT, "exists", detail)
        }
        _ => problem,
    })?;
    Ok(shown_once(written, answer, &secret))
}

/// Gives a token a new secret, which is shown this once
#[utoipa::path(
    post, path = "/admin/v1/tokens/{name}/rotate", operation_id = "tokens_rotate", tag = "tokens",
    params(openapi::Conditions), request_body = RotateBody,
    responses((status = 200, body = Object), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn rotate(
    State(tokens): State<Tokens>,
    asked: Asked,
    Path(name): Path<String>,
    headers: HeaderMap,
    sent: Body,
) -> Answer {
    may_manage(&asked)?;
    let sent = body::whole(&headers, sent).await?;
    let wanted: RotateBody = body::parsed(&sent)?;
    let mut faults = Faults::default();
    let grace = wanted.grace.as_deref().map_or(Some(GRACE), |text| span(text, "grace", LONGEST_GRACE, &mut faults));
    let reason = reason(wanted.reason, &mut faults);
    let grace = faults.unless(grace.unwrap_or(GRACE)).map_err(Problem::invalid)?;
    let secret = secret()?;
    let old_until = Moment(tokens.api.now().after(grace));
    let rotated = |stored: Option<&Stored>| -> Result<TokenDocument, Problem> {
        let before = stored.map(parsed).transpose()?.ok_or_else(|| records::missing(&named(&name)))?;
        let hash = to_hex(&hash(secret.as_bytes()));
        Ok(TokenDocument { old_hash: Some(before.hash), old_until: Some(old_until), hash, ..before })
    };
    let writing = Writing { asked: &asked, name: named(&name), action: "token.rotate", reason, body: &sent };
    let answer = std::sync::Mutex::new(Value::Null);
    let written = records::write(&tokens.api, writing, |stored| {
        let document = rotated(stored)?;
        let told = told(&name, &document);
        *answer.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = told.clone();
        Ok(Made::of(&document, told))
    })
    .await?;
    Ok(shown_once(written, answer.into_inner().unwrap_or_default(), &secret))
}

/// Deletes a token: it is not let in any more
#[utoipa::path(
    delete, path = "/admin/v1/tokens/{name}", operation_id = "tokens_delete", tag = "tokens",
    params(openapi::Conditions),
    responses((status = 200, body = Object), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn delete(State(tokens): State<Tokens>, asked: Asked, Path(name): Path<String>) -> Answer {
    may_manage(&asked)?;
    tokens.know_all().await?;
    let writing =
        Writing { asked: &asked, name: named(&name), action: "token.delete", reason: String::new(), body: b"" };
    records::write(&tokens.api, writing, |stored| {
        // What other servers write at the same moment decides, too.
        let since = tokens.api.generation();
        if stored.is_some() {
            tokens.may_go(&name)?;
        }
        Ok(Made { since: Some(since), ..Made::deleted(json!({"name": name, "deleted": true})) })
    })
    .await
}

impl Tokens {
    /// What is to be stored of a token that somebody wants.
    fn document(
        &self,
        wanted: TokenBody,
        asked: &Asked,
        secret: &str,
    ) -> Result<(String, String, TokenDocument), Problem> {
        let (now, mut faults) = (self.api.now(), Faults::default());
        let is_sound = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if wanted.name.is_empty() || wanted.name.len() > LONGEST_NAME || !wanted.name.chars().all(is_sound) {
            let what = format!("write 1 to {LONGEST_NAME} letters, digits, dots, dashes and underscores");
            faults.add("name", what);
        }
        let words: Vec<&str> = Scope::ALL.into_iter().map(Scope::name).collect();
        for (number, word) in wanted.scopes.iter().enumerate() {
            if Scope::parse(word).is_none() {
                let what = format!("{word:?} is no scope; write some of {}", words.join(", "));
                faults.add(format!("scopes[{number}]"), what);
            } else if wanted.scopes.iter().take(number).any(|before| before == word) {
                faults.add(format!("scopes[{number}]"), format!("{word:?} is there twice"));
            }
        }
        if wanted.scopes.is_empty() {
            faults.add("scopes", format!("write some of {}", words.join(", ")));
        }
        let expires_at = match (wanted.expires_at, wanted.r#for.as_deref()) {
            (Some(_), Some(_)) => {
                faults.add("for", "`expires_at` says when it ends too; keep one of the two");
                None
            }
            (end, None) => end,
            (None, Some(text)) => span(text, "for", LONGEST_LIFE, &mut faults).map(|life| Moment(now.after(life))),
        };
        if expires_at.is_some_and(|end| end.0 <= now) {
            faults.add("expires_at", "it is over already");
        }
        let document = TokenDocument {
            hash: to_hex(&hash(secret.as_bytes())),
            old_hash: None,
            old_until: None,
            scopes: wanted.scopes,
            created_by: asked.who.name.clone(),
            created_at: Moment(now),
            expires_at,
        };
        if faults.0.is_empty() && !document.is_keeper() && !self.is_kept_without(&wanted.name) {
            faults.add(
                "scopes",
                "the first token must have every scope of the admin API (read, quota, rules, emergency, audit) and no end, or \
                 nobody could make another",
            );
        }
        let others = self.api.tokens().borrow().len();
        if others >= MOST_TOKENS {
            faults
                .add("name", format!("there are {others} tokens, and no more than {MOST_TOKENS} can be; delete some"));
        }
        let reason = reason(wanted.reason, &mut faults);
        faults.unless((wanted.name, reason, document)).map_err(Problem::invalid)
    }

    /// Makes sure that all tokens are known. A server that started from others' snapshot knows none at first.
    async fn know_all(&self) -> Result<(), Problem> {
        if !self.api.knows_tokens() {
            self.api.catch_up(None).await?;
        }
        Ok(())
    }

    /// Whether somebody may manage tokens if this one is not there.
    fn is_kept_without(&self, name: &str) -> bool {
        let is_keeper = |text: &str| TokenDocument::parse(text).is_some_and(|document| document.is_keeper());
        self.auth.has_keeper()
            || self.api.tokens().borrow().iter().any(|(other, text)| other != name && is_keeper(text))
    }

    /// Refuses to let a token go that keeps the door.
    fn may_go(&self, name: &str) -> Result<(), Problem> {
        let others = self.api.tokens().borrow().keys().any(|other| other != name);
        let last = |detail: &str| Err(Problem::new(StatusCode::CONFLICT, "last_token", detail));
        if self.is_kept_without(name) {
            return Ok(());
        }
        if others || self.auth.has_identities() {
            return last(
                "without this token nobody could manage tokens, and others are in force; delete those first, or make another \
                 with every scope of the admin API and no end",
            );
        }
        if !self.auth.is_local() {
            return last(
                "without a token only this machine would be let in, but the listener is reached from elsewhere; rotate it, or \
                 make another first",
            );
        }
        Ok(())
    }
}

fn named(name: &str) -> Name {
    Name::new(Kind::Token, DOMAIN, name)
}

fn secret() -> Result<String, Problem> {
    drawn().map_err(|why| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "no_secret", why))
}

fn span(text: &str, at: &str, most: Span, faults: &mut Faults) -> Option<Span> {
    match limit_text::duration(text) {
        Ok(span) if span <= most => return Some(span),
        Ok(_) => faults.add(at, format!("it is longer than {} days", most.as_micros() / 86_400_000_000)),
        Err(fault) => faults.add(at, fault.to_string()),
    }
    None
}

fn reason(given: Option<String>, faults: &mut Faults) -> String {
    let reason = given.unwrap_or_default();
    reason_fits(&reason, faults);
    reason
}

/// What is told of a token, and kept for those who send the same write again: all but the secret.
fn told(name: &str, document: &TokenDocument) -> Value {
    let mut told = json!({"name": name, "scopes": document.scopes, "expires_at": document.expires_at});
    if let Some(until) = document.old_until {
        told["old_until"] = json!(until);
    }
    told
}

/// The answer to a write that was done now, with the secret. A write that was done before is answered without.
fn shown_once(written: Response, mut answer: Value, secret: &str) -> Response {
    if records::is_replayed(&written) {
        return written;
    }
    answer["token"] = json!(secret);
    written.map(|_| Body::from(answer.to_string()))
}

fn item(stored: &Stored, api: &Api) -> Value {
    let mut item = json!({
        "name": stored.name.name,
        "generation": stored.generation,
        "updated_at": Moment(stored.updated_at),
        "updated_by": stored.updated_by,
    });
    if !stored.reason.is_empty() {
        item["reason"] = json!(stored.reason);
    }
    let now = api.now();
    if let Ok(document) = parsed(stored) {
        item["scopes"] = json!(document.scopes);
        item["created_by"] = json!(document.created_by);
        item["created_at"] = json!(document.created_at);
        item["expires_at"] = json!(document.expires_at);
        item["expired"] = json!(document.expires_at.is_some_and(|end| end.0 <= now));
        if let Some(until) = document.old_until.filter(|until| until.0 > now) {
            item["old_until"] = json!(until);
        }
    }
    item
}

fn parsed(stored: &Stored) -> Result<TokenDocument, Problem> {
    TokenDocument::parse(stored.document.as_deref().unwrap_or_default()).ok_or_else(|| {
        let detail = "the stored token can't be read, a newer Tollgate may have written it";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "control_failed", detail)
    })
}
