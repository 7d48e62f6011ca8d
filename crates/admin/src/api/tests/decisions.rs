//! Why was I limited?

use serde_json::json;

use super::{Bench, SHOP};
use crate::scopes::AccessScope;

const LOG: &str = "/admin/v1/decisions";

/// Ten pass, the others are refused.
async fn twelve(bench: &Bench, key: &str) {
    for _ in 0..12 {
        bench.decide(&[("api_key", key)], 1).await;
    }
}

#[tokio::test]
async fn a_refusal_is_reported_with_its_reason_at_once() {
    let bench = Bench::new(SHOP).await;
    twelve(&bench, "k").await;
    let reply = bench.get(&format!("{LOG}?caller=k")).await.ok();
    let decisions = reply["decisions"].as_array().unwrap();
    assert_eq!((&reply["caller"], &reply["dropped"], decisions.len()), (&json!("k"), &json!(0), 2));
    let refused = &decisions[0];
    assert_eq!(
        (&refused["verdict"], &refused["rule"], &refused["cost"]),
        (&json!("deny"), &json!("per-key"), &json!(1))
    );
    // The key is masked, and found by what it is or by what it is masked as.
    let masked = refused["caller"].as_str().unwrap();
    assert!(masked.len() == 33 && masked.starts_with('#'), "{masked}");
    assert_eq!(refused["descriptors"], json!([{"entries": [{"key": "api_key", "value": masked}]}]));
    assert_eq!(refused["limits"][0]["key"], masked);
    let by_mask = bench.get(&format!("{LOG}?caller=%23{}", &masked[1..])).await.ok();
    assert_eq!(by_mask["decisions"], reply["decisions"]);
    assert_eq!((&refused["limits"][0]["used"], &refused["limits"][0]["limit"]), (&json!(10), &json!(10)));
    let why = refused["why"].as_str().unwrap();
    assert!(
        why.starts_with(&format!(
            "{masked} was refused: per-key allows 10/365d to the tier free, it had used 10 of 10, and there was room again "
        )),
        "{why}"
    );
    assert_eq!(reply["log"], json!({"place": "memory", "keep_seconds": 86_400.0, "sample": 0.0, "callers": 0.0}));
}

#[tokio::test]
async fn callers_have_any_names_and_answers_any_bounds() {
    let bench = Bench::new(SHOP).await;
    let odd = "a b/ü\"&=%";
    twelve(&bench, odd).await;
    twelve(&bench, "k").await;
    let path = format!("{LOG}?caller=a%20b%2F%C3%BC%22%26%3D%25");
    let count = async |path: &str| bench.get(path).await.ok()["decisions"].as_array().unwrap().len();
    assert_eq!(count(&path).await, 2);
    for (query, expected) in [
        ("&limit=1", 1),
        ("&domain=shop&rule=per-key", 2),
        ("&domain=bank", 0),
        ("&rule=orders", 0),
        ("&from=2020-01-01T00:00:00Z", 2),
        ("&to=2020-01-01T00:00:00Z", 0),
        ("&from=2020-01-01T00:00:00%2B01:00&to=2222-01-01T00:00:00Z", 2),
    ] {
        assert_eq!(count(&format!("{path}{query}")).await, expected, "{query}");
    }
    assert_eq!(count(&format!("{LOG}?caller=nobody")).await, 0);
}

#[tokio::test]
async fn what_makes_no_sense_is_reported() {
    let bench = Bench::new(SHOP).await;
    for (query, code, says) in [
        ("", "bad_query", "caller"),
        ("?caller=k&from=noon", "bad_query", "noon"),
        ("?caller=k&to=14:32:17", "bad_query", "14:32:17"),
        ("?caller=k&from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", "bad_query", "from must be before to"),
        ("?caller=k&limit=0", "bad_limit", "between 1 and 1000"),
        ("?caller=k&limit=1001", "bad_limit", "between 1 and 1000"),
        ("?caller=k&limit=many", "bad_query", "limit"),
        ("?caller=k&callers=l", "bad_query", "callers"),
    ] {
        let answered = bench.get(&format!("{LOG}{query}")).await;
        assert_eq!(answered.code(400), code, "{query}");
        assert!(answered.body["detail"].as_str().unwrap().contains(says), "{query}: {}", answered.body);
    }
    let others = [AccessScope::Read, AccessScope::Quota];
    assert_eq!(bench.ask_as(&others, ("GET", &format!("{LOG}?caller=k")), &[], "").await.code(403), "forbidden");
}

#[tokio::test]
async fn the_version_of_a_rule_by_api_is_reported() {
    let bench = Bench::new(SHOP).await;
    for version in 1..=2 {
        let rule = json!({"key_pattern": "{api_key}", "rate": version, "unit": "hour"});
        bench.put("/v1/ratelimit/config/by-api", &rule).await.ok();
        bench.decide(&[("api_key", "k")], 5).await;
        let reply = bench.get(&format!("{LOG}?caller=k&rule=by-api&limit=1")).await.ok();
        assert_eq!(reply["decisions"][0]["rule_version"], version, "{reply}");
    }
    // A rule of a file has none.
    twelve(&bench, "l").await;
    bench.decide(&[("api_key", "l")], 11).await;
    let reply = bench.get(&format!("{LOG}?caller=l&rule=per-key")).await.ok();
    assert_eq!(reply["decisions"][0]["rule_version"], json!(null), "{reply}");
}
