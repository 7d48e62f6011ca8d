//! `docs/openapi.json` and `docs/openapi-admin.json` are what a server answers.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::{http, new_server};

/// Where a server has it, and the file.
const DOCUMENTS: [(&str, &str, &str); 2] =
    [("http", "/openapi.json", "openapi.json"), ("admin", "/admin/openapi.json", "openapi-admin.json")];

#[test]
fn the_openapi_documents_are_those_of_the_server() {
    let server = new_server().listen(&["http", "admin"]).start();
    for (listener, path, file) in DOCUMENTS {
        let served = http::get(&server.url(listener, path)).json();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&path, format!("{}\n", serde_json::to_string_pretty(&served).unwrap())).unwrap();
        }
        let written: Option<Value> = fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let is_same = written.as_ref() == Some(&served);
        assert!(is_same, "docs/{file} is not what the server answers; write it anew with UPDATE_DOCS=1");
    }
}
