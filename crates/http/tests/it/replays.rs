//! Responses to requests that were decided before, by other rules.

use http_body_util::BodyExt;
use tollgate::{Descriptor, Limiter, ManualClock, MemoryConfig, ReceiptWish, Request, Ruleset, Timestamp, poll_once};
use tollgate_http::response::{Detail, ResponseContext, ResponseStyle, respond};

const RULES: &str = "
domain: d
entity: key
rules:
  - {name: day, key: [key], limit: 10/day, algorithm: fixed_window, refund: on_failure}
  - {name: hour, key: [key], limit: 3/hour, algorithm: fixed_window}
";

#[test]
fn a_replay_by_other_rules_has_the_verdict_without_policies() {
    let rules = |text: &str| Ruleset::from_text(text, 1).unwrap().0;
    let clock = ManualClock::at(Timestamp::from_secs(1_767_225_600));
    let limiter = Limiter::new(rules(RULES), MemoryConfig::default().build_with(clock));
    let entries = [("key", "k")];
    let descriptors = [Descriptor::new(&entries)];
    let receipt = ReceiptWish::Always;
    let request = Request { descriptors: &descriptors, once: Some("passes"), cost: 2, receipt, ..Request::default() };
    poll_once(limiter.check_request(&request)).unwrap().unwrap();
    limiter.install(rules(&RULES.replace("10/day", "20/day")));
    let decision = poll_once(limiter.check_request(&request)).unwrap().unwrap();
    let context = ResponseContext { passes: decision.allowed(), level: None, receipt: None };
    let response = respond(&ResponseStyle::default(), &request, &decision, context, Detail::Full).into_response();
    assert_eq!((response.status().as_u16(), response.headers().get("ratelimit-policy")), (200, None));
    assert_eq!(response.headers().get("idempotent-replayed").unwrap(), "true");
    let body = poll_once(response.into_body().collect()).unwrap().unwrap().to_bytes();
    let body = std::str::from_utf8(&body).unwrap();
    assert!(body.contains(r#""allowed":true"#) && !body.contains("hour"), "{body}");
}
