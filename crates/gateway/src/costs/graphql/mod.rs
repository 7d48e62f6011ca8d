//! The cost of GraphQL requests: each field is 1, a field with a list of `n` entries is `1 + n × (its fields)`, and
//! each operation is 1 more. There is no schema, so a list is known by its arguments (`first`, `last`, `limit`,
//! `after`, …) and by the names `edges` and `nodes`.
//!
//! The parser is our own: costs depend on a small part of the executable language, and it borrows everything from the
//! query. `apollo-parser` (on rowan) and `async-graphql-parser` (on pest) build much more than is read here, and bring
//! several dependencies to the path of requests.
//! Everything here is linear in the length of the query, which is at most [`MAX_BODY_BYTES`].

mod complexity;
mod lexer;
mod parser;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use http::header::CONTENT_TYPE;
use http::request::Parts;
use serde_json::{Map, Value};

use super::{CostRefusal, MAX_BODY_BYTES, has_type, is_encoded};
use crate::model::GraphQlBounds;
use crate::single::Repeated;
use crate::{query, strict_json};

/// A query, with what belongs to it.
struct QueryRequest<'b> {
    query: Cow<'b, str>,
    /// Objects only: others have no variables.
    variables: Map<String, Value>,
    /// Which operation of the query is executed.
    operation: Option<Cow<'b, str>>,
}

/// The members of a request that its cost depends on.
const MEMBERS: [&str; 3] = ["query", "variables", "operationName"];

/// The cost of all queries of a request: of its body, and of the `query` parameter that GET requests have. `None` if
/// there are none, such as with the digest of a query that the upstream knows.
pub(super) fn cost(bounds: &GraphQlBounds, parts: &Parts, body: Option<&[u8]>) -> Result<Option<u64>, CostRefusal> {
    let mut requests = Vec::new();
    requests.extend(parts.uri.query().map(|query| form(query.as_bytes())).transpose()?.flatten());
    if let Some(body) = body.filter(|body| !body.is_empty()) {
        in_body(parts, body, bounds, &mut requests)?;
    }
    let mut total: Option<u64> = None;
    for request in &requests {
        let document = parser::parse(&request.query)?;
        let cost = complexity::cost(&document, request.operation.as_deref(), &request.variables, bounds)?;
        total = Some(total.unwrap_or(0).saturating_add(cost));
    }
    Ok(total)
}

fn in_body<'b>(
    parts: &Parts,
    body: &'b [u8],
    bounds: &GraphQlBounds,
    requests: &mut Vec<QueryRequest<'b>>,
) -> Result<(), CostRefusal> {
    if has_type(&parts.headers, "multipart/form-data") {
        let refusal = "A GraphQL request in multipart/form-data can't be measured; send application/json.";
        return Err(CostRefusal::new(refusal));
    }
    // The upstream may go by another one.
    if parts.headers.get_all(CONTENT_TYPE).iter().count() > 1 {
        return Err(CostRefusal::new("A GraphQL request has one Content-Type."));
    }
    if body.len() > MAX_BODY_BYTES {
        return Err(CostRefusal::new(format!("A GraphQL request has at most {MAX_BODY_BYTES} bytes.")));
    }
    if is_encoded(&parts.headers) {
        return Err(CostRefusal::new("A GraphQL request must not be compressed."));
    }
    if has_type(&parts.headers, "application/graphql") {
        let query = std::str::from_utf8(body).map_err(|_| CostRefusal::new("The query is not text."))?;
        requests.push(QueryRequest { query: query.into(), variables: Map::new(), operation: None });
        return Ok(());
    }
    if has_type(&parts.headers, "application/x-www-form-urlencoded") {
        requests.extend(form(body)?);
        return Ok(());
    }
    // What has a member twice is refused: the upstream may read the other one.
    match strict_json::value(body) {
        Some(Value::Array(batch)) if batch.len() as u64 > u64::from(bounds.batch) => {
            Err(CostRefusal::new(format!("A batch has at most {} queries.", bounds.batch)))
        }
        Some(Value::Array(batch)) => batch.into_iter().try_for_each(|entry| {
            requests.extend(json(entry)?);
            Ok(())
        }),
        Some(entry) => {
            requests.extend(json(entry)?);
            Ok(())
        }
        None => Err(CostRefusal::new("The body is not a GraphQL request in JSON.")),
    }
}

/// `{"query": …, "variables": …, "operationName": …}`.
fn json(entry: Value) -> Result<Option<QueryRequest<'static>>, CostRefusal> {
    let Value::Object(mut members) = entry else {
        return Err(CostRefusal::new("A GraphQL request is an object with a `query`."));
    };
    // Go reads `Query` as `query`.
    let is_other = |name: &str| MEMBERS.iter().any(|own| name != *own && name.eq_ignore_ascii_case(own));
    if members.keys().any(|name| is_other(name)) {
        return Err(CostRefusal::new(format!("The members of a GraphQL request are written {}.", MEMBERS.join(", "))));
    }
    let query = match members.remove("query") {
        Some(Value::String(query)) if !query.is_empty() => query,
        None | Some(Value::Null | Value::String(_)) => return Ok(None),
        Some(_) => return Err(CostRefusal::new("The `query` of a GraphQL request is a text.")),
    };
    let variables = match members.remove("variables") {
        Some(Value::Object(variables)) => variables,
        _ => Map::new(),
    };
    let operation = match members.remove("operationName") {
        Some(Value::String(name)) => Some(Cow::Owned(name)),
        _ => None,
    };
    Ok(Some(QueryRequest { query: query.into(), variables, operation }))
}

/// The same as the parameters of a form.
fn form(parameters: &[u8]) -> Result<Option<QueryRequest<'_>>, CostRefusal> {
    let text = |name| {
        let value = query::parameter(parameters, name);
        value
            .map_err(|Repeated| CostRefusal::new(format!("A GraphQL request has one `{name}`.")))?
            .map(text)
            .transpose()
    };
    let Some(query) = text("query")?.filter(|query| !query.is_empty()) else { return Ok(None) };
    let variables = text("variables")?.and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default();
    Ok(Some(QueryRequest { query, variables, operation: text("operationName")? }))
}

fn text(value: Cow<'_, [u8]>) -> Result<Cow<'_, str>, CostRefusal> {
    let refusal = || CostRefusal::new("The query is not text.");
    match value {
        Cow::Borrowed(value) => str::from_utf8(value).map(Cow::Borrowed).map_err(|_| refusal()),
        Cow::Owned(value) => String::from_utf8(value).map(Cow::Owned).map_err(|_| refusal()),
    }
}
