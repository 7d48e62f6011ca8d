//! How rules are enforced: modes, shares of callers, switches.

use tollgate_core::{ClaimId, Descriptor, Mode, Request};
use tollgate_rules::Ruleset;

use crate::matching::{check, rules};

#[test]
fn each_mode() {
    let file = "
domain: d
rules:
  - {name: plain, key: [], limit: 1/s}
  - {name: enforced, key: [], limit: 1/s, mode: enforce}
  - {name: shadow, key: [], limit: 1/s, mode: shadow}
  - {name: soft, key: [], limit: 1/s, mode: soft}
  - {name: off, key: [], limit: 1/s, mode: off}
  - {name: disabled, key: [], limit: 1/s, enabled: false}
  - {name: disabled-shadow, key: [], limit: 1/s, mode: shadow, enabled: false}
  - {name: enabled, key: [], limit: 1/s, enabled: true}
  - {name: nobody, key: [], limit: 1/s, enforce: 0%}
  - {name: everybody, key: [], limit: 1/s, enforce: 100%}
  - {name: disabled-unlimited, key: [], limit: unlimited, enabled: false}
";
    check(
        file,
        &[(
            "",
            &[
                "plain() 1/1s",
                "enforced() 1/1s",
                "shadow() 1/1s shadow",
                "soft() 1/1s soft",
                "enabled() 1/1s",
                "nobody() 1/1s shadow",
                "everybody() 1/1s",
            ],
        )],
    );
}

const CALLERS: usize = 10_000;

/// The callers for which each rule of a domain is enforced, among many.
fn drawn(rules: &Ruleset, attribute: &str) -> Vec<Vec<bool>> {
    let mut drawn = vec![Vec::with_capacity(CALLERS); rules.domains()[0].rules().len()];
    for caller in 0..CALLERS {
        let value = format!("caller-{caller}");
        let path = format!("/{}", caller % 7);
        let entries = [(attribute, &*value), ("path", &*path)];
        let descriptors = [Descriptor::new(&entries)];
        let request = Request { domain: None, descriptors: &descriptors, cost: 1, ..Request::default() };
        let resolved = rules.resolve(&request, ClaimId(caller as u128)).unwrap();
        for applied in &resolved.applied {
            drawn[applied.rule.unwrap() as usize].push(applied.mode == Mode::Enforce);
            assert!(matches!(applied.mode, Mode::Enforce | Mode::Shadow));
        }
    }
    drawn
}

fn shared(entity: &str) -> String {
    let rule = |name: &str, key: &str, share: &str| {
        format!("  - {{name: {name}, key: {key}, limit: 1/s, enforce: {share}}}\n")
    };
    let rules = [
        rule("ten", "[user]", "10%"),
        rule("half", "[user]", "50%"),
        rule("most", "[user]", "97.5%"),
        rule("by-path", "[path, user]", "10%"),
    ];
    format!("domain: d\n{entity}rules:\n{}", rules.concat())
}

#[test]
fn a_share_of_callers_is_as_large_as_it_says() {
    for entity in ["", "entity: user\n"] {
        let drawn = drawn(&rules(&shared(entity)), "user");
        // Per mille, with a deviation of at most two percentage points.
        for (of_rule, share) in drawn.iter().zip([100, 500, 975, 100]) {
            assert_eq!(of_rule.len(), CALLERS);
            let enforced = of_rule.iter().filter(|enforced| **enforced).count() * 1000 / CALLERS;
            assert!(enforced.abs_diff(share) <= 20, "{enforced} ‰ for {share} ‰");
        }
    }
}

/// Two servers that compiled their rules separately choose the same callers.
#[test]
fn a_share_is_the_same_callers_everywhere() {
    for entity in ["", "entity: user\n"] {
        let one = drawn(&rules(&shared(entity)), "user");
        // Another position in the file and other rules: the choice depends on rule and caller alone.
        let other = format!(
            "domain: d\n{entity}rules:\n  - {{name: before, key: [], limit: 1/s}}\n  - {{name: ten, key: [user], limit: 9/s, enforce: 10%}}\n"
        );
        let other = drawn(&rules(&other), "user");
        assert_eq!(one[0], other[1], "{entity:?}");
        assert_eq!(one, drawn(&rules(&shared(entity)), "user"));
    }
}

#[test]
fn rules_draw_apart_from_each_other() {
    let file = "
domain: d
entity: user
rules:
  - {name: one, key: [user], limit: 1/s, enforce: 50%}
  - {name: other, key: [user], limit: 1/s, enforce: 50%}
";
    let drawn = drawn(&rules(file), "user");
    let both = drawn[0].iter().zip(&drawn[1]).filter(|(one, other)| **one && **other).count();
    assert!(both.abs_diff(CALLERS / 4) < CALLERS / 50, "{both} callers are drawn by both");
}

/// A caller is chosen as a whole: the rest of the key does not matter.
#[test]
fn a_share_is_of_callers_not_of_counters() {
    let rules = rules("domain: d\nentity: user\nrules:\n  - {name: r, key: [user, path], limit: 1/s, enforce: 50%}\n");
    let mode = |user: &str, path: &str| {
        let line = crate::matching::met(&rules, &format!("user={user}, path={path}")).unwrap().remove(0);
        line.ends_with("shadow")
    };
    let mut seen = [false; 2];
    for user in 0..40 {
        let modes: Vec<bool> = (0..10).map(|path| mode(&user.to_string(), &path.to_string())).collect();
        assert!(modes.iter().all(|mode| *mode == modes[0]), "caller {user} is drawn for some of its counters");
        seen[usize::from(modes[0])] = true;
    }
    assert_eq!(seen, [true; 2]);
}
