//! Extractors of paths and queries, with rejections as problems.

use std::collections::HashSet;

use axum::extract::FromRequestParts;
use http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::ApiProblem;

/// The parameters of the path, percent-decoded.
pub(crate) struct PathParams<T>(pub(super) T);

/// The parameters of the query.
pub(crate) struct Query<T>(pub(super) T);

/// The pairs of a query, each name once.
pub(super) struct QueryPairs(pub(super) Vec<(String, String)>);

/// Selects a domain.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DomainQuery {
    pub(super) domain: Option<String>,
}

/// Selects a page of a list, of one domain or of all.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PageQuery {
    pub(super) domain: Option<String>,
    pub(super) after: Option<String>,
    pub(super) limit: Option<usize>,
}

/// A query without parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EmptyQuery {}

/// Pairs of a query.
const MAX_PAIRS: usize = 64;

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for PathParams<T> {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<PathParams<T>, ApiProblem> {
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(path)) => Ok(PathParams(path)),
            Err(error) => Err(ApiProblem::bad_request("bad_path", error.body_text())),
        }
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Query<T>, ApiProblem> {
        match axum::extract::Query::from_request_parts(parts, state).await {
            Ok(axum::extract::Query(value)) => Ok(Query(value)),
            Err(error) => Err(ApiProblem::bad_request("bad_query", error.body_text())),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for QueryPairs {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<QueryPairs, ApiProblem> {
        let Query(pairs) = Query::<Vec<(String, String)>>::from_request_parts(parts, state).await?;
        if pairs.len() > MAX_PAIRS {
            return Err(ApiProblem::bad_request(
                "bad_query",
                format!("the query has more than {MAX_PAIRS} parameters"),
            ));
        }
        let mut names = HashSet::new();
        if let Some((name, _)) = pairs.iter().find(|(name, _)| !names.insert(name.as_str())) {
            return Err(ApiProblem::bad_request("bad_query", format!("{name:?} is given twice")));
        }
        Ok(QueryPairs(pairs))
    }
}

impl QueryPairs {
    /// Removes a pair and returns its value.
    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(other, _)| other == name)?;
        Some(self.0.swap_remove(at).1)
    }
}

/// Parses a flag of a query: `?dry_run`, `?dry_run=true`.
pub(super) fn flag(name: &str, value: Option<&str>) -> Result<bool, ApiProblem> {
    match value {
        None | Some("false" | "0") => Ok(false),
        Some("" | "true" | "1") => Ok(true),
        Some(other) => Err(ApiProblem::bad_request(
            "bad_query",
            format!("{name}={other}: use {name}, {name}=true or {name}=false"),
        )),
    }
}
