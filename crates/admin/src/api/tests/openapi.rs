//! The description of the API has every route.

use std::collections::BTreeSet;

use super::super::description::generate;
use super::{Bench, SHOP};

/// Paths with methods, as the routers' own texts have them.
fn routes() -> BTreeSet<String> {
    let texts = [include_str!("../mod.rs"), include_str!("../observability/mod.rs"), include_str!("../tokens.rs")];
    let mut found = BTreeSet::new();
    for route in texts.iter().flat_map(|text| text.split(".route(").skip(1)) {
        let path = route.split('"').nth(1).unwrap();
        let end = route.find("\n        .").unwrap_or(route.len());
        for method in ["get", "put", "post", "delete"] {
            if route[..end].contains(&format!("{method}(")) {
                found.insert(format!("{method} {path}"));
            }
        }
    }
    found
}

#[tokio::test]
async fn every_route_is_described() {
    let document = generate();
    let mut described = BTreeSet::new();
    let mut operations = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            described.insert(format!("{method} {path}"));
            assert!(operations.insert(operation["operationId"].as_str().unwrap().to_owned()), "{path} {method}");
            let named = operation["parameters"].as_array().unwrap().iter().filter(|one| one["in"] == "path").count();
            assert_eq!(named, path.matches('{').count(), "{path} {method}");
        }
    }
    assert!(routes().len() > 35, "{:?}", routes());
    assert_eq!(described, routes());
    let bench = Bench::new(SHOP).await;
    assert_eq!(bench.get("/admin/openapi.json").await.ok(), document);
}

#[test]
fn the_embedded_document_is_the_generated_one() {
    let document = serde_json::to_string_pretty(&generate()).unwrap();
    tollgate_testing::assert_generated("openapi-admin.json", &(document + "\n"));
}
