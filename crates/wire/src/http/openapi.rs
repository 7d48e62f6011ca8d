//! `GET /openapi.json`: the description of this wire.
//!
//! The document is embedded. Tests generate it from the annotations of the handlers and compare.

use serde_json::{Value, json};

use super::{AUTHORIZE, PUBLIC_PATHS};

/// The document of a server without tokens.
pub(super) const DOCUMENT: &str = include_str!("../../../../docs/openapi.json");

/// The document, with the authentication if tokens are required.
pub(super) fn document(needs_token: bool) -> String {
    // A test parses it.
    let mut document = serde_json::from_str(DOCUMENT).unwrap_or_default();
    if needs_token {
        describe_tokens(&mut document);
    }
    document.to_string()
}

/// Describes where a token is required, how it is sent, and the response without one.
fn describe_tokens(document: &mut Value) {
    document["components"]["securitySchemes"] = json!({
        "bearer": {"type": "http", "scheme": "bearer", "description": "A token with the scope `check`"},
        "header": {"type": "apiKey", "in": "header", "name": "X-Tollgate-Token", "description": "The same token in its own header"},
    });
    let no_token = json!({
        "description": "A token with the scope `check` is missing",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemBody"}}},
    });
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    for (path, item) in paths.filter(|(path, _)| !PUBLIC_PATHS.contains(&path.as_str())) {
        let security = match path.as_str() {
            // Its `Authorization` is that of the original request.
            AUTHORIZE => json!([{"header": []}]),
            _ => json!([{"bearer": []}, {"header": []}]),
        };
        for operation in item.as_object_mut().into_iter().flat_map(|item| item.values_mut()) {
            operation["security"] = security.clone();
            operation["responses"]["401"] = no_token.clone();
        }
    }
}
