//! One whole decision, in process.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use tollgate::{Descriptor, Limiter, MemoryConfig, MemoryStore, Request, Ruleset, now};
use tollgate_core::{Algorithm, Limit, OnFailure, Period, Span};
use tollgate_rules::model::*;

use crate::workload::Workload;

pub fn domain(rules: Vec<Rule>) -> Domain {
    Domain {
        name: "api".into(), entity: Some("api_key".into()),
        tiers: vec![Tier { name: "free".into(), paid: false, priority: 0 }],
        default_tier: 0, tier_from: None, default_rule: None, rules, tree: vec![], match_parents: false,
        at: Place { file: "x".into(), line: 1 },
    }
}
pub fn rule(name: &str, amount: u64, secs: u64) -> Rule {
    let period = Period::fixed(Span::from_secs(secs)).unwrap();
    Rule {
        name: name.into(), key: vec![KeyPart { attribute: "api_key".into(), optional: false }], clauses: vec![], cost: Cost::Request,
        terms: Terms {
            caps: vec![Some(Cap::Limit(Limit::new(amount, period, Algorithm::Bucket { burst: amount, paced: false }).unwrap()))],
            mode: RuleMode::Enforce, on_failure: vec![OnFailure::Local], policy: Policy::Comfort, ipv6_prefix: 56,
            ipv6_prefix_given: false, headers: Headers::Full, denied_by_label: None,
        },
        at: Place { file: "x".into(), line: 1 },
    }
}

fn tollgate_check(limiter: &Limiter<MemoryStore>, key: &str) -> bool {
    let entries = [("api_key", key)];
    let descriptors = [Descriptor { entries: &entries, hits: None }];
    let request = Request { domain: None, descriptors: &descriptors, cost: 1, claim: None };
    now(limiter.check(&request)).unwrap().unwrap().allowed()
}

pub fn run() {
    let w = Arc::new(Workload::zipf(1_000_000, 2_000_000));
    let one = Limiter::new(Ruleset::compile(vec![domain(vec![rule("a", 100, 60)])], 1).unwrap(), MemoryConfig::default().build());
    let four = Limiter::new(
        Ruleset::compile(vec![domain(vec![rule("a", 100, 60), rule("b", 1000, 3600), rule("c", 5000, 86400), rule("d", 20, 1)])], 1).unwrap(),
        MemoryConfig::default().build(),
    );
    let gov: DefaultKeyedRateLimiter<String> = RateLimiter::keyed(Quota::per_minute(NonZeroU32::new(100).unwrap()));
    let time = |f: &(dyn Fn(&str) -> bool + Sync), threads: usize| {
        let start = Instant::now();
        let n = w.order.len() / threads;
        std::thread::scope(|s| {
            for t in 0..threads {
                let w = &w;
                s.spawn(move || {
                    let mut ok = 0u64;
                    for i in &w.order[t * n..(t + 1) * n] { ok += u64::from(f(&w.keys[*i as usize])); }
                    std::hint::black_box(ok);
                });
            }
        });
        start.elapsed().as_nanos() as f64 / n as f64
    };
    let g = |k: &str| gov.check_key(&k.to_owned()).is_ok();
    let g2 = |_k: &str| true;
    let _ = g;
    for round in 0..6 {
        let gstart = Instant::now();
        for i in &w.order { std::hint::black_box(gov.check_key(&w.keys[*i as usize]).is_ok()); }
        let gn = gstart.elapsed().as_nanos() as f64 / w.order.len() as f64;
        let base = time(&g2, 1);
        let t1 = time(&|k| tollgate_check(&one, k), 1);
        let t4 = time(&|k| tollgate_check(&four, k), 1);
        let n = w.order.len() / 2;
        let s = Instant::now();
        std::thread::scope(|sc| { for t in 0..2 { let w = &w; let gov = &gov; sc.spawn(move || for i in &w.order[t * n..(t + 1) * n] { std::hint::black_box(gov.check_key(&w.keys[*i as usize]).is_ok()); }); } });
        let gn2 = s.elapsed().as_nanos() as f64 / n as f64;
        let t12 = time(&|k| tollgate_check(&one, k), 2);
        println!("round {round}: base {base:.0} governor {gn:.0} tollgate {t1:.0} ({:.2}) four {t4:.0} ({:.2}) | 2 threads: governor {gn2:.0} tollgate {t12:.0} ({:.2})", t1 / gn, t4 / t1, t12 / gn2);
    }
}

pub fn profile_small() {
    let w = Arc::new(Workload::zipf(2_000, 100_000));
    let one = Limiter::new(Ruleset::compile(vec![domain(vec![rule("a", 100_000, 60)])], 1).unwrap(), MemoryConfig::default().build());
    for _ in 0..2 { for i in &w.order { std::hint::black_box(tollgate_check(&one, &w.keys[*i as usize])); } }
}
pub fn profile_gov() {
    let w = Arc::new(Workload::zipf(2_000, 100_000));
    let gov: DefaultKeyedRateLimiter<String> = RateLimiter::keyed(Quota::per_minute(NonZeroU32::new(100_000).unwrap()));
    for _ in 0..2 { for i in &w.order { std::hint::black_box(gov.check_key(&w.keys[*i as usize]).is_ok()); } }
}
pub fn profile() {
    let w = Arc::new(Workload::zipf(1_000_000, 2_000_000));
    let one = Limiter::new(Ruleset::compile(vec![domain(vec![rule("a", 100, 60)])], 1).unwrap(), MemoryConfig::default().build());
    for _ in 0..6 {
    let s = Instant::now();
    for i in &w.order { std::hint::black_box(tollgate_check(&one, &w.keys[*i as usize])); }
    println!("{}", s.elapsed().as_nanos() as f64 / w.order.len() as f64);
    }
}
