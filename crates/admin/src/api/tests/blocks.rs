//! Blocks of callers, globs and address ranges.

use serde_json::json;
use tollgate::tenants::BlockAction;

use super::{Bench, SHOP};
use crate::scopes::AccessScope;

async fn blocked(bench: &Bench, caller: &str, address: &str) -> Option<BlockAction> {
    let decision = bench.decide(&[("api_key", caller), ("remote_address", address)], 1).await;
    decision.block().map(|block| block.action)
}

#[tokio::test]
async fn blocked_callers_are_refused_until_the_block_ends() {
    let bench = Bench::new(SHOP).await;
    for (body, reply) in [
        (json!({"reason": "x"}), BlockAction::Forbidden),
        (json!({"reason": "x", "status": 429}), BlockAction::TooMany),
        (json!({"reason": "x", "shadow": true}), BlockAction::Marked),
    ] {
        for (name, caller, address) in [
            ("bad", "bad", "198.51.100.1"),
            ("bad-*", "bad-7", "198.51.100.1"),
            ("203.0.113.0%2F24", "good", "203.0.113.9"),
            ("2001:db8::%2F32", "good", "2001:db8::7"),
        ] {
            let path = format!("/admin/v1/blocks/{name}");
            assert_eq!(blocked(&bench, caller, address).await, None, "{name}");
            bench.put(&path, &body).await.ok();
            assert_eq!(blocked(&bench, caller, address).await, Some(reply), "{name}");
            assert_eq!(blocked(&bench, "good", "198.51.100.1").await, None, "{name}");
            assert_eq!(bench.get(&path).await.ok()["shadow"], reply == BlockAction::Marked, "{name}");
            bench.delete(&path).await.ok();
            assert_eq!(blocked(&bench, caller, address).await, None, "{name}");
        }
    }
    bench.put("/admin/v1/blocks/bad", &json!({"reason": "x", "for": "1h"})).await.ok();
    bench.pass(3_599);
    assert_eq!(blocked(&bench, "bad", "198.51.100.1").await, Some(BlockAction::Forbidden));
    bench.pass(1);
    assert_eq!(blocked(&bench, "bad", "198.51.100.1").await, None);
    assert_eq!(bench.get("/admin/v1/blocks/bad").await.ok()["in_force"], false);
}

#[tokio::test]
async fn a_network_has_one_name() {
    let bench = Bench::new(SHOP).await;
    let reply = bench.put("/admin/v1/blocks/10.0.0.1%2F8", &json!({"reason": "x"})).await.ok();
    assert_eq!((&reply["name"], &reply["range"], &reply["domain"]), (&json!("10.0.0.0/8"), &json!(true), &json!(null)));
    bench.put("/admin/v1/blocks/10.9.9.9%2F8", &json!({"reason": "y"})).await.ok();
    let listed = bench.get("/admin/v1/blocks").await.ok();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert_eq!(listed["items"][0]["reason"], "y");
    // In one domain it is another.
    bench.put("/admin/v1/blocks/10.0.0.0%2F8?domain=shop", &json!({"reason": "z"})).await.ok();
    assert_eq!(bench.get("/admin/v1/blocks?domain=shop").await.ok()["items"].as_array().unwrap().len(), 1);
    bench.delete("/admin/v1/blocks/10.1.1.1%2F8").await.ok();
    assert_eq!(blocked(&bench, "k", "10.2.2.2").await, Some(BlockAction::Forbidden));
    bench.delete("/admin/v1/blocks/10.1.1.1%2F8?domain=shop").await.ok();
    assert_eq!(blocked(&bench, "k", "10.2.2.2").await, None);
}

#[tokio::test]
async fn a_caller_may_be_called_like_an_address() {
    let bench = Bench::new(SHOP).await;
    let reply = bench.put("/admin/v1/blocks/10.0.0.1", &json!({"reason": "x", "range": false})).await.ok();
    assert_eq!((&reply["range"], &reply["domain"]), (&json!(false), &json!("shop")));
    assert_eq!(blocked(&bench, "10.0.0.1", "192.0.2.1").await, Some(BlockAction::Forbidden));
    assert_eq!(blocked(&bench, "k", "10.0.0.1").await, None);
    assert_eq!(bench.get("/admin/v1/blocks/10.0.0.1").await.code(404), "not_found");
    assert_eq!(bench.get("/admin/v1/blocks/10.0.0.1?range=false").await.ok()["range"], false);
    // It becomes the other of the two, and is no more what it was.
    bench.put("/admin/v1/blocks/10.0.0.1?domain=shop", &json!({"reason": "x"})).await.ok();
    assert_eq!(blocked(&bench, "10.0.0.1", "192.0.2.1").await, None);
    assert_eq!(blocked(&bench, "k", "10.0.0.1").await, Some(BlockAction::Forbidden));
}

#[tokio::test]
async fn a_malformed_network_is_no_caller_unless_it_is_said() {
    let bench = Bench::new(SHOP).await;
    for name in ["203.0.113.0%2F33", "203.0.113%2F24", "203.0.113.300", "203.0.113.0-203.0.113.255", "203.0.113.7:443"]
    {
        let path = format!("/admin/v1/blocks/{name}");
        let answered = bench.put(&path, &json!({"reason": "x"})).await;
        let faults = answered.faults();
        assert!(faults[0].0 == "range" && faults[0].1.contains("looks like an address"), "{name} {faults:?}");
        assert_eq!(bench.get(&path).await.code(404), "not_found");
    }
    assert_eq!(bench.control.generation(), 0);
    let path = "/admin/v1/blocks/203.0.113.300";
    bench.put(path, &json!({"reason": "x", "range": false})).await.ok();
    assert_eq!(blocked(&bench, "203.0.113.300", "192.0.2.1").await, Some(BlockAction::Forbidden));
    bench.delete(path).await.ok();
    bench.put(&format!("{path}?range=false"), &json!({"reason": "x"})).await.ok();
    assert_eq!(blocked(&bench, "203.0.113.300", "192.0.2.1").await, Some(BlockAction::Forbidden));
}

#[tokio::test]
async fn what_is_wrong_with_a_block_is_reported() {
    let bench = Bench::new(SHOP).await;
    for (name, body, places) in [
        ("k", json!({}), &["reason"][..]),
        ("k", json!({"reason": "x", "status": 500}), &["status"]),
        ("k", json!({"reason": "x", "status": 429, "shadow": true}), &["status"]),
        ("k", json!({"reason": "x", "range": true}), &["range"]),
        ("k", json!({"reason": "", "for": "1h", "expires_at": "2030-01-01T00:00:00Z"}), &["for", "reason"]),
        ("k", json!({"reason": "x", "expires_at": "2020-01-01T00:00:00Z"}), &["expires_at"]),
        ("k", json!({"reason": "x", "why": 7}), &[""]),
    ] {
        let answered = bench.put(&format!("/admin/v1/blocks/{name}"), &body).await;
        let at: Vec<&str> = answered.faults().iter().map(|(at, _)| *at).collect();
        assert_eq!(at, places, "{body}");
    }
    let good = json!({"reason": "x"});
    assert_eq!(bench.put("/admin/v1/blocks/k?domain=bank", &good).await.code(404), "unknown_domain");
    assert_eq!(bench.put("/admin/v1/blocks/k?domain=", &good).await.code(404), "unknown_domain");
    assert_eq!(bench.put("/admin/v1/blocks/10.0.0.1?domain=bank", &good).await.code(404), "unknown_domain");
    let refused = bench.ask_as(&[AccessScope::Quota], ("PUT", "/admin/v1/blocks/k"), &[], &good.to_string()).await;
    assert_eq!(refused.code(403), "forbidden");
    assert_eq!(bench.control.generation(), 0);
}

#[tokio::test]
async fn a_domain_without_callers_has_none_to_block() {
    let bench = Bench::new("domain: d\nrules:\n- {name: r, key: [user], limit: 1/hour}\n").await;
    assert_eq!(bench.put("/admin/v1/blocks/k?domain=d", &json!({"reason": "x"})).await.code(400), "no_entity");
    assert_eq!(bench.put("/admin/v1/quotas/k?domain=d", &json!({})).await.code(400), "no_entity");
    bench.put("/admin/v1/blocks/10.0.0.1?domain=d", &json!({"reason": "x"})).await.ok();
}

#[tokio::test]
async fn lists_of_callers_are_for_those_who_may_see_or_change_them() {
    use crate::scopes::AccessScope::{Audit, Emergency, Quota, Read, Rules};
    let bench = Bench::new(SHOP).await;
    bench.put("/admin/v1/blocks/thief", &json!({"reason": "x"})).await.ok();
    bench.put("/admin/v1/quotas/ann", &json!({"tier": "pro"})).await.ok();
    let status = async |scopes: &[_], path: &str| bench.ask_as(scopes, ("GET", path), &[], "").await.status;
    for (path, change) in [("/admin/v1/quotas", Quota), ("/admin/v1/export", Quota), ("/admin/v1/blocks", Emergency)] {
        assert_eq!(status(&[Read, Audit], path).await, 200, "{path}");
        assert_eq!(status(&[Read, change], path).await, 200, "{path}");
        assert_eq!(status(&[Read, Rules], path).await, 403, "{path}");
        assert_eq!(status(&[Audit, change], path).await, 403, "{path}");
    }
    // Whoever knows a name may ask for it.
    for path in ["/admin/v1/quotas/ann", "/admin/v1/blocks/thief"] {
        assert_eq!(status(&[Read], path).await, 200, "{path}");
    }
    for (list, name, of) in [("quotas", "ann", "api_key"), ("blocks", "thief", "name")] {
        let path = format!("/admin/v1/{list}?name={name}");
        let found = bench.ask_as(&[Read], ("GET", &path), &[], "").await.ok();
        assert_eq!(
            (found["items"].as_array().map(Vec::len), &found["items"][0][of]),
            (Some(1), &json!(name)),
            "{found}"
        );
        assert_eq!(status(&[Audit], &path).await, 403, "{path}");
        for filter in ["prefix=", &format!("prefix={name}"), "limit=1", "after="] {
            assert_eq!(status(&[Read], &format!("/admin/v1/{list}?{filter}")).await, 403, "{list} {filter}");
        }
        // It is a name, and no pattern.
        for absent in [&name[..2], "*", ""] {
            let found = bench.ask_as(&[Read], ("GET", &format!("/admin/v1/{list}?name={absent}")), &[], "").await.ok();
            assert_eq!(found["items"], json!([]), "{list} {absent:?}");
        }
    }
}
