//! envoyproxy/ratelimit's matching, entry by entry.

use crate::matching::check;

const CASES: &str = "
domain: test-domain
descriptors:
  - key: key1
    value: value1
    descriptors:
      - key: subkey1
        rate_limit: {unit: second, requests_per_unit: 5}
      - key: subkey1
        value: subvalue1
        rate_limit: {unit: second, requests_per_unit: 10}
  - key: key2
    rate_limit: {unit: minute, requests_per_unit: 20}
  - key: key2
    value: value2
    rate_limit: {unit: minute, requests_per_unit: 30}
  - key: key2
    value: value3
  - key: key4
    rate_limit: {name: daily, unit: day, requests_per_unit: 1}
  - key: key6
    rate_limit: {unlimited: true}
";

#[test]
fn the_cases_that_its_users_rely_on() {
    check(
        CASES,
        &[
            ("key1=value1, subkey1=x", &["key1=value1/subkey1(value1, x) 5/1s"]),
            ("key1=value1, subkey1=subvalue1", &["key1=value1/subkey1=subvalue1(value1, subvalue1) 10/1s"]),
            ("key1=value1", &[]),
            ("key1=value2, subkey1=x", &[]),
            ("key2=x", &["key2(x) 20/60s"]),
            ("key2=value2", &["key2=value2(value2) 30/60s"]),
            ("key2=value3", &[]),
            ("key2=value2, subkey=y", &[]),
            ("key2=x, subkey=y", &[]),
            ("key4=x", &["daily(x) 1/86400s"]),
            ("key6=x", &["key6 unlimited"]),
            ("KEY2=x", &[]),
            ("key3=x", &[]),
            ("subkey1=x", &[]),
            ("", &[]),
            // Each descriptor by itself, in order.
            (
                "key2=x | key1=value1 | key2=value2 | key6=y",
                &["key2(x) 20/60s", "key2=value2(value2) 30/60s", "key6 unlimited"],
            ),
            ("key2=x | key2=x", &["key2(x) 20/60s", "key2(x) 20/60s"]),
        ],
    );
}

#[test]
fn wildcards() {
    let file = "
domain: d
descriptors:
  - {key: wild, value: 'foo*', rate_limit: {name: foo, unit: second, requests_per_unit: 1}}
  - {key: wild, value: 'bar*b', rate_limit: {name: bar, unit: second, requests_per_unit: 2}}
  - {key: wild, value: 'foo*bar*baz', rate_limit: {name: late, unit: second, requests_per_unit: 3}}
  - {key: wild, value: 'test*', rate_limit: {name: tests, unit: second, requests_per_unit: 4}}
  - {key: wild, value: test1, rate_limit: {name: test1, unit: second, requests_per_unit: 5}}
  - {key: parts, value: 'foo*bar*baz', rate_limit: {name: parts, unit: second, requests_per_unit: 6}}
  - {key: order, value: 'a*', rate_limit: {name: first, unit: second, requests_per_unit: 7}}
  - {key: order, value: 'ab*', rate_limit: {name: second, unit: second, requests_per_unit: 8}}
  - {key: order, value: '*c', rate_limit: {name: third, unit: second, requests_per_unit: 9}}
  - {key: order, value: '*bc', rate_limit: {name: fourth, unit: second, requests_per_unit: 10}}
  - {key: order, rate_limit: {name: any, unit: second, requests_per_unit: 11}}
  - {key: tail, value: '*z', rate_limit: {name: glob-first, unit: second, requests_per_unit: 12}}
  - {key: tail, value: 'a*', rate_limit: {name: prefix-second, unit: second, requests_per_unit: 13}}
";
    check(
        file,
        &[
            ("wild=foo1", &["foo(foo1) 1/1s"]),
            ("wild=foo", &["foo(foo) 1/1s"]),
            ("wild=bar", &[]),
            ("wild=barb", &["bar(barb) 2/1s"]),
            ("wild=bar1b", &["bar(bar1b) 2/1s"]),
            ("wild=bara", &[]),
            ("wild=xbarb", &[]),
            // The `b` of the prefix is not also the `b` of the suffix.
            ("wild=barbb", &["bar(barbb) 2/1s"]),
            ("wild=foobarbaz", &["foo(foobarbaz) 1/1s"]),
            ("parts=foobarbaz", &["parts(foobarbaz) 6/1s"]),
            ("parts=foo1bar2baz", &["parts(foo1bar2baz) 6/1s"]),
            ("parts=foo1baz", &[]),
            ("parts=foobaz", &[]),
            ("parts=foobarba", &[]),
            ("wild=test1", &["test1(test1) 5/1s"]),
            ("wild=test12", &["tests(test12) 4/1s"]),
            // The file's order counts, not the length.
            ("order=abc", &["first(abc) 7/1s"]),
            ("order=xbc", &["third(xbc) 9/1s"]),
            ("order=x", &["any(x) 11/1s"]),
            ("tail=az", &["glob-first(az) 12/1s"]),
            ("tail=ay", &["prefix-second(ay) 13/1s"]),
        ],
    );
}

/// The choice at one level is final, even if another one would have matched further.
#[test]
fn there_is_no_going_back() {
    let file = "
domain: d
descriptors:
  - key: a
    value: x1
    descriptors:
      - {key: b, value: one, rate_limit: {unit: second, requests_per_unit: 1}}
  - key: a
    value: 'x*'
    descriptors:
      - {key: b, value: two, rate_limit: {unit: second, requests_per_unit: 2}}
  - key: a
    descriptors:
      - {key: b, rate_limit: {unit: second, requests_per_unit: 3}}
";
    check(
        file,
        &[
            ("a=x1, b=one", &["a=x1/b=one(x1, one) 1/1s"]),
            ("a=x1, b=two", &[]),
            ("a=x2, b=two", &["a=x*/b=two(x2, two) 2/1s"]),
            ("a=x2, b=one", &[]),
            ("a=y, b=one", &["a/b(y, one) 3/1s"]),
            ("b=one, a=x1", &[]),
        ],
    );
}

const SUFFIXED: &str = "
descriptors:
  - key: a
    rate_limit: {unit: minute, requests_per_unit: 100}
    descriptors:
      - key: b
        descriptors:
          - {key: c, value: x, rate_limit: {unit: minute, requests_per_unit: 20}}
          - {key: c, value: free}
";

#[test]
fn match_parents_charges_the_limits_on_the_way() {
    check(
        &format!("domain: d\n{SUFFIXED}"),
        &[
            ("a=1", &["a(1) 100/60s"]),
            ("a=1, b=2", &[]),
            ("a=1, b=2, c=x", &["a/b/c=x(1, 2, x) 20/60s"]),
            ("a=1, b=2, c=free", &[]),
        ],
    );
    check(
        &format!("domain: d\nmatch_parents: true\n{SUFFIXED}"),
        &[
            ("a=1", &["a(1) 100/60s"]),
            ("a=1, b=2", &["a(1) 100/60s"]),
            ("a=1, b=2, c=x", &["a(1) 100/60s", "a/b/c=x(1, 2, x) 20/60s"]),
            ("a=1, b=2, c=free", &["a(1) 100/60s"]),
            // Whatever the rest of the path is.
            ("a=1, z=2", &["a(1) 100/60s"]),
            ("a=1, b=2, c=x, d=4", &["a(1) 100/60s", "a/b/c=x(1, 2, x) 20/60s"]),
        ],
    );
}

#[test]
fn unlimited_and_replaces() {
    let file = "
domain: d
descriptors:
  - {key: a, rate_limit: {name: base, unit: minute, requests_per_unit: 5}}
  - {key: b, rate_limit: {name: better, unit: minute, requests_per_unit: 50, replaces: [{name: base}]}}
  - {key: c, rate_limit: {unlimited: true, replaces: [{name: base}, {name: better}]}}
  - {key: e, enabled: false, rate_limit: {unit: minute, requests_per_unit: 1, replaces: [{name: base}]}}
  - {key: f, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: g, rate_limit: {unit: minute, requests_per_unit: 5, replaces: [{name: f}]}}
";
    check(
        file,
        &[
            ("a=1", &["base(1) 5/60s"]),
            ("a=1 | b=1", &["better(1) 50/60s"]),
            ("b=1 | a=1", &["better(1) 50/60s"]),
            ("a=1 | c=1", &["c unlimited"]),
            // A limit that is replaced still replaces others.
            ("a=1 | b=1 | c=1", &["c unlimited"]),
            ("a=1 | e=1", &["base(1) 5/60s"]),
            // Only a name from the file can be replaced.
            ("f=1 | g=1", &["f(1) 5/60s", "g(1) 5/60s"]),
        ],
    );
}

#[test]
fn a_shared_threshold_is_one_counter_for_all_values() {
    let file = "
domain: d
descriptors:
  - key: path
    value: '/files/*'
    share_threshold: true
    rate_limit: {unit: second, requests_per_unit: 1}
    descriptors:
      - {key: user, rate_limit: {unit: second, requests_per_unit: 2}}
  - {key: path, value: '/other/*', rate_limit: {unit: second, requests_per_unit: 3}}
";
    check(
        file,
        &[
            ("path=/files/a", &["path=/files/*(/files/*) 1/1s"]),
            ("path=/files/b", &["path=/files/*(/files/*) 1/1s"]),
            ("path=/files/b, user=u", &["path=/files/*/user(/files/*, u) 2/1s"]),
            ("path=/other/a", &["path=/other/*(/other/a) 3/1s"]),
        ],
    );
}

#[test]
fn flags_with_our_own_keys() {
    let file = "
domain: d
descriptors:
  - {key: shadow, shadow_mode: true, rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: quota, quota_mode: true, rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: off, enabled: false, rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: soft, mode: soft, rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: bucket, algorithm: token_bucket, burst: 3x, rate_limit: {unit: second, requests_per_unit: 2}}
  - {key: blocked, rate_limit: {unit: second}}
  - {key: 5, value: 7, rate_limit: {unit: WEEK, requests_per_unit: 1}}
  - {key: month, rate_limit: {unit: Month, requests_per_unit: 1}}
  - {key: year, rate_limit: {unit: year, requests_per_unit: 1}}
";
    check(
        file,
        &[
            ("shadow=1", &["shadow(1) 1/1s shadow"]),
            ("quota=1", &["quota(1) 1/1s any-of"]),
            ("off=1", &[]),
            ("soft=1", &["soft(1) 1/1s soft"]),
            ("bucket=1", &["bucket(1) 2/1s burst 6"]),
            ("blocked=1", &["blocked(1) 0/1s"]),
            ("5=7", &["5=7(7) 1/604800s"]),
            ("month=1", &["month(1) 1/2592000s"]),
            ("year=1", &["year(1) 1/31536000s"]),
        ],
    );
}

/// Values that look like the separators of a name are escaped.
#[test]
fn counters_of_different_nodes_are_different() {
    let file = "
domain: d
descriptors:
  - {key: 'a=b', rate_limit: {name: n1, unit: second, requests_per_unit: 1}}
  - {key: a, value: b, rate_limit: {name: n2, unit: second, requests_per_unit: 1}}
  - {key: 'a→c', rate_limit: {name: n3, unit: second, requests_per_unit: 1}}
  - {key: 'a%3Db', rate_limit: {name: n4, unit: second, requests_per_unit: 1}}
  - key: a
    descriptors:
      - {key: c, rate_limit: {name: n5, unit: second, requests_per_unit: 1}}
";
    let rules = crate::matching::rules(file);
    let entries: [&[(&str, &str)]; 5] =
        [&[("a=b", "x")], &[("a", "b")], &[("a→c", "x")], &[("a%3Db", "x")], &[("a", "z"), ("c", "x")]];
    let descriptors = entries.map(tollgate_core::Descriptor::new);
    let request = tollgate_core::Request {
        domain: None,
        descriptors: &descriptors,
        cost: 1,
        ..tollgate_core::Request::default()
    };
    let resolved = rules.resolve(&request, tollgate_core::ClaimId(1)).unwrap();
    let scopes: std::collections::BTreeSet<&str> =
        resolved.claim.charges.iter().map(|charge| charge.key.scope().name()).collect();
    assert_eq!(scopes.len(), 5, "{scopes:?}");
}
