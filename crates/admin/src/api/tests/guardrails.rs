//! Guardrails: which writes are held, and what makes them.

use serde_json::{Value, json};

use super::{Answered, Bench, SHOP};
use crate::scopes::{AccessScope, Principal};

/// 40 requests of callers who don't pay, and 10 of one who does.
async fn with_traffic() -> Bench {
    let bench = Bench::new(SHOP).await;
    bench.put("/admin/v1/quotas/bob", &json!({"tier": "pro"})).await.ok();
    send_traffic(&bench).await;
    bench
}

async fn send_traffic(bench: &Bench) {
    for number in 0..40 {
        bench.decide(&[("api_key", &format!("free-{}", number % 5)), ("endpoint", "GET /a")], 1).await;
    }
    for _ in 0..10 {
        bench.decide(&[("api_key", "bob"), ("endpoint", "GET /a")], 1).await;
    }
}

fn somebody(name: &str) -> Principal {
    Principal { name: name.to_owned(), from: "192.0.2.1".to_owned(), scopes: AccessScope::ADMIN.into_iter().collect() }
}

/// A write, confirmed by a plan or not.
async fn write(bench: &Bench, who: &str, (method, path): (&str, &str), plan: Option<&str>, body: &Value) -> Answered {
    let headers: Vec<(&str, &str)> = plan.map(|id| ("tollgate-confirm", id)).into_iter().collect();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    bench.ask_by(somebody(who), (method, path), &headers, &body).await
}

fn id(held: &Answered) -> String {
    held.body["plan"]["id"].as_str().unwrap_or_else(|| panic!("{}", held.body)).to_owned()
}

fn rule(limit: Value) -> Value {
    json!({"rule": {"key": ["api_key"], "limit": limit, "algorithm": "fixed_window"}})
}

const QUOTA: (&str, &str) = ("PUT", "/admin/v1/quotas/bob");
const RULE: (&str, &str) = ("PUT", "/v1/ratelimit/config/per-key");

fn zero() -> Value {
    json!({"tier": "pro", "overrides": [{"rule": "per-key", "limit": "0/year"}]})
}

async fn actions(bench: &Bench) -> Vec<String> {
    let audit = bench.get("/admin/v1/audit?kind=plan").await.ok();
    audit["items"].as_array().unwrap().iter().map(|item| item["action"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn writes_are_held_by_what_they_would_refuse() {
    let strict = |free: &str, pro: &str| rule(json!({"free": free, "pro": pro}));
    let half_off = json!({"mode": "enforce", "reason": "tests"});
    let rows = [
        ("nothing", RULE, strict("10/year", "1000/year"), None),
        ("2 of 50", RULE, strict("10/year", "8/year"), None),
        ("5 of 50", RULE, strict("7/year", "1000/year"), Some("needs_confirmation")),
        ("25 of 50", RULE, strict("3/year", "1000/year"), Some("needs_confirmation")),
        ("30 of 50", RULE, strict("2/year", "1000/year"), Some("needs_approval")),
        (
            "6 of 10 of a paid caller",
            QUOTA,
            json!({"overrides": [{"rule": "per-key", "limit": "4/year"}]}),
            Some("needs_confirmation"),
        ),
        ("another caller", ("PUT", "/admin/v1/quotas/eve"), zero(), None),
        ("everybody", ("PUT", "/admin/v1/quotas/*"), zero(), Some("needs_approval")),
        ("a switch that refuses nothing", ("PUT", "/admin/v1/switches/everything"), half_off, None),
    ];
    for (what, target, body, code) in rows {
        let bench = with_traffic().await;
        let answered = write(&bench, "token ann", target, None, &body).await;
        match code {
            None => drop(answered.ok()),
            Some(code) => assert_eq!(answered.code(409), code, "{what}: {}", answered.body),
        }
    }
}

#[tokio::test]
async fn a_confirmation_is_for_the_same_request_and_is_used_once() {
    let bench = with_traffic().await;
    let held = write(&bench, "token ann", QUOTA, None, &zero()).await;
    assert_eq!(held.code(409), "needs_confirmation");
    let plan = &held.body["plan"];
    assert_eq!((&plan["needs"], &plan["report"]["newly_refused"]), (&json!("confirmation"), &json!(10)));
    assert_eq!(plan["report"]["worst_paid_caller"]["newly_refused_percent"], json!(100.0));
    assert!(bench.decide(&[("api_key", "bob")], 1).await.allowed());
    let id = id(&held);
    // The same request is held as the same plan.
    let again = write(&bench, "token ann", QUOTA, None, &zero()).await;
    assert_eq!(again.body["plan"]["id"], json!(id));
    let other = json!({"tier": "pro", "overrides": [{"rule": "per-key", "limit": "1/year"}]});
    assert_eq!(write(&bench, "token ann", QUOTA, Some(&id), &other).await.code(409), "other_plan");
    let elsewhere = ("PUT", "/admin/v1/quotas/free-1");
    assert_eq!(write(&bench, "token ann", elsewhere, Some(&id), &zero()).await.code(409), "other_plan");
    write(&bench, "token ann", QUOTA, Some(&id), &zero()).await.ok();
    assert!(!bench.decide(&[("api_key", "bob")], 1).await.allowed());
    assert_eq!(write(&bench, "token ann", QUOTA, Some(&id), &zero()).await.code(409), "no_plan");
    assert_eq!(actions(&bench).await, ["plan.hold", "plan.confirm"]);
    assert_eq!(bench.get("/admin/v1/plans").await.ok()["items"], json!([]));
}

#[tokio::test]
async fn a_repeated_request_is_answered_as_before() {
    let bench = with_traffic().await;
    let send = async |plan: Option<&str>| {
        let mut headers = vec![("idempotency-key", "k-1")];
        headers.extend(plan.map(|id| ("tollgate-confirm", id)));
        bench.ask_by(somebody("token ann"), ("DELETE", "/v1/ratelimit/config/per-key"), &headers, "").await
    };
    write(&bench, "token ann", RULE, None, &rule(json!("100000/year"))).await.ok();
    for _ in 0..15 {
        bench.decide(&[("api_key", "free-0"), ("endpoint", "GET /a")], 1).await;
    }
    // The rule of the file applies again, and 13 of 65 would have been refused.
    let held = send(None).await;
    assert_eq!(held.code(409), "needs_confirmation");
    let id = id(&held);
    let first = send(Some(&id)).await.ok();
    let second = send(Some(&id)).await;
    assert_eq!((second.headers.contains_key("idempotent-replayed"), second.ok()), (true, first));
}

#[tokio::test]
async fn an_approval_comes_from_somebody_else() {
    let bench = with_traffic().await;
    let strict = rule(json!("1/year"));
    let held = write(&bench, "token ann", RULE, None, &strict).await;
    assert_eq!(held.code(409), "needs_approval");
    let id = id(&held);
    assert_eq!(write(&bench, "token ann", RULE, Some(&id), &strict).await.code(409), "needs_approval");
    let path = format!("/admin/v1/plans/{id}/approve");
    let approve = ("POST", path.as_str());
    let reason = json!({"reason": "as agreed"});
    assert_eq!(write(&bench, "token ann", approve, None, &reason).await.code(403), "same_identity");
    let reader = bench.ask_as(&[AccessScope::Read, AccessScope::Quota], approve, &[], "{}").await;
    assert_eq!(reader.code(403), "forbidden");
    let approved = write(&bench, "token bob", approve, None, &reason).await.ok();
    assert_eq!((&approved["approved"], &approved["approvals"][0]["by"]), (&json!(true), &json!("token bob")));
    // Once is enough.
    assert_eq!(write(&bench, "token bob", approve, None, &reason).await.ok()["approvals"].as_array().unwrap().len(), 1);
    write(&bench, "token ann", RULE, Some(&id), &strict).await.ok();
    assert_eq!(actions(&bench).await, ["plan.hold", "plan.approve", "plan.confirm"]);
    assert_eq!(write(&bench, "token bob", approve, None, &reason).await.code(404), "not_found");
}

#[tokio::test]
async fn who_is_alone_confirms() {
    let bench = with_traffic().await;
    let strict = rule(json!("1/year"));
    let held = write(&bench, "loopback", RULE, None, &strict).await;
    assert_eq!(held.code(409), "needs_confirmation");
    write(&bench, "loopback", RULE, Some(&id(&held)), &strict).await.ok();
}

#[tokio::test]
async fn a_plan_expires_after_an_hour_or_is_dropped() {
    let bench = with_traffic().await;
    let first = id(&write(&bench, "token ann", QUOTA, None, &zero()).await);
    bench.pass(3_599);
    assert_eq!(bench.get("/admin/v1/plans").await.ok()["items"][0]["id"], json!(first));
    bench.pass(1);
    assert_eq!(bench.get("/admin/v1/plans").await.ok()["items"], json!([]));
    assert_eq!(write(&bench, "token ann", QUOTA, Some(&first), &zero()).await.code(409), "no_plan");
    let bench = with_traffic().await;
    let second = id(&write(&bench, "token ann", QUOTA, None, &zero()).await);
    let path = format!("/admin/v1/plans/{second}");
    assert_eq!(bench.get(&path).await.ok()["by"], json!("token ann"));
    let reader = bench.ask_as(&[AccessScope::Read], ("DELETE", &path), &[], "").await;
    assert_eq!(reader.code(403), "forbidden");
    bench.delete(&path).await.ok();
    assert_eq!(write(&bench, "token ann", QUOTA, Some(&second), &zero()).await.code(409), "no_plan");
    assert_eq!(actions(&bench).await, ["plan.hold", "plan.drop"]);
}

#[tokio::test]
async fn what_became_worse_than_what_was_confirmed_is_held_anew() {
    let bench = with_traffic().await;
    let strict = rule(json!({"free": "4/year", "pro": "1000/year"}));
    let held = write(&bench, "token ann", RULE, None, &strict).await;
    assert_eq!(held.code(409), "needs_confirmation");
    for number in 0..300 {
        bench.decide(&[("api_key", &format!("more-{}", number % 30)), ("endpoint", "GET /a")], 1).await;
    }
    // 20 of 50 became 200 of 350.
    let worse = write(&bench, "token ann", RULE, Some(&id(&held)), &strict).await;
    assert_eq!(worse.code(409), "needs_approval");
    assert_ne!(id(&worse), id(&held));
}

#[tokio::test]
async fn without_recent_traffic_writes_pass_and_say_so() {
    let bench = Bench::new(SHOP).await;
    let note = |answered: &Answered| {
        answered.headers.get("tollgate-guardrail").map(|note| note.to_str().unwrap().to_owned()).unwrap_or_default()
    };
    let strict = rule(json!("0/year"));
    let passed = write(&bench, "token ann", RULE, None, &strict).await;
    assert_eq!((note(&passed).as_str(), passed.status), ("no requests were recorded in the last 15 minutes", 200));
    let bench = Bench::new(SHOP).await;
    bench.decide(&[("api_key", "ann")], 1).await;
    let passed = write(&bench, "token ann", RULE, None, &strict).await;
    assert_eq!(
        (note(&passed).as_str(), passed.status),
        ("fewer than 20 requests were recorded in the last 15 minutes: 1", 200)
    );
}

#[tokio::test]
async fn emergencies_are_made_with_a_warning() {
    let bench = with_traffic().await;
    let flood = json!({"limit": "1/year", "reason": "a flood", "for": "1h"});
    let made = bench.put("/admin/v1/emergencies/flood", &flood).await.ok();
    assert!(made["warning"].as_str().unwrap().starts_with("it would newly refuse 44 of 50"), "{made}");
    assert!(!bench.decide(&[("api_key", "bob")], 1).await.allowed());
    assert_eq!(actions(&bench).await, ["emergency.warn"]);
    let harmless = json!({"callers": "eve", "limit": "1/year", "reason": "eve", "for": "1h"});
    assert_eq!(bench.put("/admin/v1/emergencies/eve", &harmless).await.ok()["warning"], Value::Null);
}

#[tokio::test]
async fn imports_are_judged_as_a_whole() {
    let bench = with_traffic().await;
    let import = async |plan: Option<&str>, text: &str| {
        let mut headers = vec![("content-type", "application/jsonl")];
        headers.extend(plan.map(|id| ("tollgate-confirm", id)));
        bench.ask_by(somebody("token ann"), ("POST", "/admin/v1/import"), &headers, text).await
    };
    let line = |name: &str, limit: &str| {
        json!({"api_key": name, "overrides": [{"rule": "per-key", "limit": limit}]}).to_string() + "\n"
    };
    let strangers: String = (0..3_000).map(|number| line(&format!("stranger-{number}"), "0/year")).collect();
    assert_eq!(import(None, &strangers).await.status, 200);
    let strict = strangers + &line("free-1", "0/year");
    let held = import(None, &strict).await;
    assert_eq!(held.code(409), "needs_confirmation");
    let id = id(&held);
    assert!(bench.decide(&[("api_key", "free-1")], 1).await.allowed());
    assert_eq!(import(Some(&id), &line("free-1", "0/year")).await.code(409), "other_plan");
    let made = import(Some(&id), &strict).await;
    assert!(made.body.as_str().unwrap().contains("\"done\":true"), "{}", made.body);
    assert!(!bench.decide(&[("api_key", "free-1")], 1).await.allowed());
    assert_eq!(import(Some(&id), &strict).await.code(409), "no_plan");
}

#[tokio::test]
async fn a_scheduled_zero_is_held_and_so_is_one_that_ends() {
    let bench = with_traffic().await;
    for times in [json!({"effective_at": "2300-01-01T00:00:00Z"}), json!({"expires_at": "2300-01-01T00:00:00Z"})] {
        let mut body = zero();
        body.as_object_mut().unwrap().extend(times.as_object().unwrap().clone());
        assert_eq!(write(&bench, "token ann", QUOTA, None, &body).await.code(409), "needs_confirmation");
    }
}

#[tokio::test]
async fn callers_are_hashed_for_those_who_may_not_see_them() {
    let bench = with_traffic().await;
    let only_quota = bench.ask_as(&[AccessScope::Quota], QUOTA, &[], &zero().to_string()).await;
    assert_eq!(only_quota.code(409), "needs_confirmation");
    let report = &only_quota.body["plan"]["report"];
    assert!(report["worst_paid_caller"]["caller"].as_str().unwrap().starts_with('#'), "{report}");
    let reader = bench.ask_as(&[AccessScope::Read], ("GET", "/admin/v1/plans"), &[], "").await.ok();
    assert!(reader["items"][0]["name"].as_str().unwrap().starts_with('#'), "{reader}");
    assert!(!reader.to_string().contains("\"bob\""), "{reader}");
}

#[tokio::test]
async fn of_two_confirmations_one_wins() {
    let bench = with_traffic().await;
    let id = id(&write(&bench, "token ann", QUOTA, None, &zero()).await);
    let zero = zero();
    let (one, other) = tokio::join!(
        write(&bench, "token ann", QUOTA, Some(&id), &zero),
        write(&bench, "token bob", QUOTA, Some(&id), &zero),
    );
    let mut statuses = [one.status, other.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409], "{} {}", one.body, other.body);
    assert_eq!(actions(&bench).await, ["plan.hold", "plan.confirm"]);
}

#[tokio::test]
async fn a_version_of_rule_files_is_released() {
    let bench = Bench::new(SHOP).await;
    assert_eq!(bench.get("/admin/v1/files").await.ok(), json!({"held": null}));
    let release = async |version: &str| {
        bench.post(&format!("/admin/v1/files/{version}/release"), &json!({"reason": "tests"})).await
    };
    assert_eq!(release("much").await.faults()[0].0, "version");
    let version = "3f2a9c01d4e5b6a7";
    assert_eq!(release(version).await.ok(), json!({"version": version, "released": true}));
    assert_eq!(bench.control.current_layer().released_files, [version]);
    let reader = ("POST", "/admin/v1/files/3f2a9c01d4e5b6a7/release");
    assert_eq!(bench.ask_as(&[AccessScope::Read], reader, &[], "{}").await.code(403), "forbidden");
    // A month later the release is deleted.
    bench.pass(32 * 24 * 3_600);
    assert_eq!(bench.control.sweep_expired().await, Ok(1));
    assert_eq!(bench.control.current_layer().released_files, [""; 0]);
}
