//! Limits by tier.

use crate::matching::check;

#[test]
fn the_tier_comes_from_an_attribute_or_is_the_default() {
    let file = "
domain: d
tiers: {free: {paid: false}, pro: {}, enterprise: {priority: 10}}
default_tier: free
tier_from: plan
rules:
  - {name: all, key: [k], limit: {free: 1/s, pro: 10/s, enterprise: unlimited}}
  - {name: same, key: [k], limit: 7/s}
  - {name: some, key: [k], limit: {pro: 20/m}}
  - {name: default, key: [k], limit: {free: 3/s, enterprise: 30/s}}
descriptors:
  - {key: k, rate_limit: {unit: hour, requests_per_unit: 5}}
";
    check(
        file,
        &[
            ("k=1", &["all(1) 1/1s", "same(1) 7/1s", "default(1) 3/1s", "k(1) 5/3600s"]),
            ("k=1 | plan=free", &["all(1) 1/1s", "same(1) 7/1s", "default(1) 3/1s", "k(1) 5/3600s"]),
            (
                "k=1 | plan=pro",
                &[
                    "all(1) 10/1s @pro",
                    "same(1) 7/1s @pro",
                    "some(1) 20/60s @pro",
                    "default(1) 3/1s @pro",
                    "k(1) 5/3600s @pro",
                ],
            ),
            (
                "k=1 | plan=enterprise",
                &[
                    "same(1) 7/1s @enterprise",
                    "default(1) 30/1s @enterprise",
                    "k(1) 5/3600s @enterprise",
                    "all unlimited @enterprise",
                ],
            ),
            // An unknown tier counts as none.
            ("k=1 | plan=gold", &["all(1) 1/1s", "same(1) 7/1s", "default(1) 3/1s", "k(1) 5/3600s"]),
        ],
    );
}

#[test]
fn without_tier_from_every_caller_has_the_default() {
    let file = "
domain: d
default_tier: pro
rules:
  - {name: r, key: [k], limit: {free: 1/s, pro: 10/s}}
";
    check(file, &[("k=1, tier=free", &["r(1) 10/1s @pro"]), ("k=1", &["r(1) 10/1s @pro"])]);
}

#[test]
fn tiers_that_are_there_without_a_word() {
    let file = "
domain: d
tier_from: plan
rules:
  - {name: r, key: [], limit: {free: 1/s, pro: 2/s, enterprise: 3/s, custom: 4/s}}
";
    check(
        file,
        &[
            ("plan=free", &["r() 1/1s"]),
            ("plan=pro", &["r() 2/1s @pro"]),
            ("plan=enterprise", &["r() 3/1s @enterprise"]),
            ("plan=custom", &["r() 4/1s @custom"]),
        ],
    );
}

#[test]
fn burst_is_a_number_or_a_multiple_of_the_tiers_amount() {
    let file = "
domain: d
tiers: {free: {}, pro: {}}
default_tier: free
tier_from: plan
rules:
  - {name: double, key: [], algorithm: token_bucket, burst: 2x, limit: {free: 100/m, pro: 1000/m}}
  - {name: half-more, key: [], algorithm: gcra, burst: 1.5x, limit: {free: 10/m, pro: 3/m}}
  - {name: number, key: [], algorithm: leaky_bucket, burst: 7, limit: {free: 100/m, pro: 1000/m}}
  - {name: none, key: [], algorithm: token_bucket, limit: {free: 100/m, pro: 1000/m}}
";
    check(
        file,
        &[
            (
                "plan=free",
                &[
                    "double() 100/60s burst 200",
                    "half-more() 10/60s burst 15",
                    "number() 100/60s burst 7",
                    "none() 100/60s burst 100",
                ],
            ),
            (
                "plan=pro",
                &[
                    "double() 1000/60s burst 2000 @pro",
                    "half-more() 3/60s burst 4 @pro",
                    "number() 1000/60s burst 7 @pro",
                    "none() 1000/60s burst 1000 @pro",
                ],
            ),
        ],
    );
}
