//! Requests that were shed: by a gateway, and by a rule.

use super::*;

#[test]
fn shed_requests_are_logged_masked_and_summarized_by_route_and_class() {
    let bench = Bench::new(LogConfig { max_single: 2, ..REFUSALS });
    let rules = bench.limiter.rules();
    let shed = |user: &str, class: &'static str, domain| {
        let entries = [("user", user), ("route", "list"), ("priority", class)];
        let descriptors = [Descriptor::new(&entries)];
        bench.observer.record_shed(&ShedRequest {
            by: "adaptive",
            class,
            route: "list",
            upstream: "orders",
            domain,
            descriptors: &descriptors,
            rules_generation: 3,
            at: Timestamp::from_micros(5),
            wait: Span::from_secs(2),
        });
    };
    let domain = &rules.domains()[0];
    for user in ["a", "b", "c", "d", "e"] {
        shed(user, "get", Some(domain));
    }
    shed("f", "test", None);
    let entries = bench.log().take();
    let seen: Vec<_> = entries.iter().map(|entry| (entry.caller.as_deref(), entry.descriptors.len())).collect();
    assert_eq!(seen, [(Some("a"), 1), (Some("b"), 1), (None, 0)], "attributes of an unknown domain may be private");
    let first = &entries[0];
    assert_eq!(
        (first.outcome, first.source, first.wait),
        (DecisionOutcome::Deny, Source::Shed, Wait::For(Span::from_secs(2)))
    );
    let reason = first.shed.as_ref().unwrap();
    assert_eq!(
        (&*reason.by, reason.class.as_deref(), reason.route.as_deref(), reason.upstream.as_deref()),
        ("adaptive", Some("get"), Some("list"), Some("orders"))
    );
    let summary = bench.log().take_summaries(None);
    assert_eq!((summary.len(), summary[0].repetition.map(|repetition| repetition.count)), (1, Some(3)));
    assert_eq!(bench.log().counts(), LogCounts { queued: 3, summarized: 3, ..LogCounts::default() });
    let off = Bench::new(LogConfig { on: false, ..ALL });
    off.observer.record_shed(&ShedRequest {
        by: "worker",
        class: "get",
        route: "list",
        upstream: "orders",
        domain: None,
        descriptors: &[],
        rules_generation: 1,
        at: Timestamp::default(),
        wait: Span::ZERO,
    });
    assert_eq!(off.log().take(), []);
}

#[test]
fn a_rule_that_sheds_gives_the_reason_with_class_and_route() {
    let rules = "domain: api\nrules:\n  - {name: fleet, key: [], limit_by: priority, limit: {critical: 2 concurrent, default: 1 concurrent}, shed: true}\n";
    let bench = Bench::with(rules, ObserverConfig { log: REFUSALS, ..ObserverConfig::default() }, Arc::default());
    let check = |class: &str| bench.check(&[("priority", class), ("route", "list")]);
    assert_eq!([check("get"), check("get"), check("critical"), check("critical")], [true, false, true, false]);
    let entries = bench.log().take();
    let reasons: Vec<_> = entries.iter().map(|entry| entry.shed.clone().unwrap()).collect();
    assert_eq!(reasons[0], shed("fleet"));
    assert_eq!(reasons[1].class.as_deref(), Some("critical"));
    let tiers: Vec<_> = entries.iter().map(|entry| (&*entry.limits[0].tier, entry.limits[0].amount)).collect();
    assert_eq!(tiers, [("default", 1), ("critical", 2)]);
}
