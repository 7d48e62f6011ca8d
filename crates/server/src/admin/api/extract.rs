//! Paths and queries, with what is wrong with them told as a problem.

use std::collections::HashSet;

use axum::extract::FromRequestParts;
use http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Problem;

/// What the path names, percent-decoded.
pub(crate) struct Path<T>(pub(super) T);

/// What the query says.
pub(crate) struct Query<T>(pub(super) T);

/// The pairs of a query, each name once.
pub(crate) struct Pairs(pub(super) Vec<(String, String)>);

/// Which domain.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InDomain {
    pub(super) domain: Option<String>,
}

/// Which part of a list, of one domain or of all.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listed {
    pub(super) domain: Option<String>,
    pub(super) after: Option<String>,
    pub(super) limit: Option<usize>,
}

/// A query that says nothing.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// The most pairs of a query.
const MOST_PAIRS: usize = 64;

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Path<T>, Problem> {
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(named)) => Ok(Path(named)),
            Err(error) => Err(Problem::bad_request("bad_path", error.body_text())),
        }
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Query<T>, Problem> {
        match axum::extract::Query::from_request_parts(parts, state).await {
            Ok(axum::extract::Query(said)) => Ok(Query(said)),
            Err(error) => Err(Problem::bad_request("bad_query", error.body_text())),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Pairs {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Pairs, Problem> {
        let Query(pairs) = Query::<Vec<(String, String)>>::from_request_parts(parts, state).await?;
        if pairs.len() > MOST_PAIRS {
            return Err(Problem::bad_request("bad_query", format!("the query has more than {MOST_PAIRS} parameters")));
        }
        let mut names = HashSet::new();
        if let Some((name, _)) = pairs.iter().find(|(name, _)| !names.insert(name.as_str())) {
            return Err(Problem::bad_request("bad_query", format!("{name:?} is there twice; write it once")));
        }
        Ok(Pairs(pairs))
    }
}

impl Pairs {
    /// Takes the value of a name out.
    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.swap_remove(at).1)
    }
}

/// A switch of a query: `?dry_run`, `?dry_run=true`.
pub(super) fn flag(name: &str, said: Option<&str>) -> Result<bool, Problem> {
    match said {
        None | Some("false" | "0") => Ok(false),
        Some("" | "true" | "1") => Ok(true),
        Some(other) => {
            Err(Problem::bad_request("bad_query", format!("{name}={other}: write {name}, {name}=true or {name}=false")))
        }
    }
}
