//! Stands in for `utoipa` outside of tests.
//!
//! The OpenAPI documents are generated from annotations by tests, which compare them with the files that the server embeds
//! (`docs/openapi.json`, `docs/openapi-admin.json`). Nothing but those tests needs the annotations, so that no other build compiles
//! utoipa or what its macros generate.

use proc_macro::TokenStream;

/// The operation of a handler: leaves the handler as it is.
#[proc_macro_attribute]
pub fn path(_annotation: TokenStream, item: TokenStream) -> TokenStream {
    item
}

/// The schema of a type: generates nothing.
#[proc_macro_derive(ToSchema, attributes(schema))]
pub fn schema(_item: TokenStream) -> TokenStream {
    TokenStream::new()
}

/// The parameters of an operation: generates nothing.
#[proc_macro_derive(IntoParams, attributes(into_params, param))]
pub fn params(_item: TokenStream) -> TokenStream {
    TokenStream::new()
}
