//! The keys of each section of a rule file, and the errors for unknown ones.

use crate::load::foreign;
use crate::problem::{TextFault, nearest, quoted};
use crate::yaml::YamlEntry;

/// A kind of map in a rule file.
pub(super) struct Section {
    /// The name in messages.
    pub(super) name: &'static str,
    /// The valid keys.
    pub(super) keys: &'static [&'static [&'static str]],
    /// Keys of other sections or programs, with what to write instead.
    instead: &'static [(&'static str, &'static str)],
    /// The sections in which an unknown key is looked up.
    others: &'static [&'static Section],
}

pub(super) static DOMAIN: Section = Section {
    name: "a domain",
    keys: &[&[
        "domain",
        "entity",
        "private",
        "tiers",
        "default_tier",
        "tier_from",
        "default_rule",
        "default_algorithm",
        "lease",
        "match_parents",
        "rules",
        "descriptors",
        "signals",
        "never_ban",
    ]],
    instead: &[("algorithm", "write `default_algorithm` here, or `algorithm` in a rule")],
    others: &[&RULE, &DESCRIPTOR, &RATE_LIMIT, &TIER, &SIGNAL],
};

pub(super) static BAN: Section = Section {
    name: "a ban",
    keys: &[&["after", "within", "for", "escalate", "most", "mode", "who"]],
    instead: &[
        ("limit", "write `after: 20 refusals` and `within: 1m`"),
        ("window", "write `within: 1m`"),
        ("duration", "write `for: 10m`"),
        ("lasts", "write `for: 10m`"),
        ("max", "write `most: 24h`"),
        ("key", "write `who: attribute`"),
    ],
    others: &[&RULE, &DOMAIN],
};

pub(super) static SIGNAL: Section = Section {
    name: "a signal",
    keys: &[&["name", "distinct", "per", "match", "threshold", "window", "ipv6_prefix", "then"]],
    instead: &[
        ("key", "write `per: [attribute]`"),
        ("count", "write `distinct: attribute`"),
        ("limit", "write `threshold: NUMBER` and `window: 1h`"),
        ("when", CONDITIONS),
        ("ban", "write `then: {ban: {for: 1h}}`"),
    ],
    others: &[&RULE, &DOMAIN],
};

pub(super) static THEN: Section = Section { name: "then", keys: &[&["ban"]], instead: &[], others: &[&SIGNAL] };

pub(super) static SIGNAL_BAN: Section = Section {
    name: "the ban of a signal",
    keys: &[&["for", "mode"]],
    instead: &[
        ("after", "write `threshold` in the signal"),
        ("within", "write `window` in the signal"),
        ("who", "remove it: who is banned is what `per` names"),
    ],
    others: &[&BAN, &SIGNAL],
};

pub(super) static TIER: Section =
    Section { name: "a tier", keys: &[&["paid", "priority"]], instead: &[], others: &[&DOMAIN, &RULE] };

/// The keys of a limit in both forms.
const TERMS: &[&str] = &[
    "algorithm",
    "burst",
    "sub_windows",
    "policy",
    "on_failure",
    "mode",
    "enforce",
    "enabled",
    "ipv6_prefix",
    "headers",
    "denied_by_label",
    "shed",
    "settle",
    "refund",
    "reserve_max",
    "hold",
    "lease",
    "ahead",
    "region",
];

/// The remedy for other names of `match`.
const CONDITIONS: &str = "write the conditions as `match: {attribute: value}`";

pub(super) static RULE: Section = Section {
    name: "a rule",
    keys: &[&["name", "key", "match", "limit", "limit_by", "count", "cost", "ban"], TERMS],
    instead: &[
        ("unlimited", "write `limit: unlimited`"),
        ("shadow_mode", "write `mode: shadow`"),
        ("value", "write `match: {attribute: value}`"),
        ("when", CONDITIONS),
        ("if", CONDITIONS),
        ("where", CONDITIONS),
        ("conditions", CONDITIONS),
        ("never_ban", "write it in the domain: it holds for all of its rules"),
    ],
    others: &[&DOMAIN, &DESCRIPTOR, &RATE_LIMIT, &TIER],
};

pub(super) static DESCRIPTOR: Section = Section {
    name: "a descriptor",
    keys: &[
        &[
            "key",
            "value",
            "rate_limit",
            "shadow_mode",
            "quota_mode",
            "detailed_metric",
            "value_to_metric",
            "share_threshold",
            "metadata",
            "descriptors",
        ],
        TERMS,
    ],
    instead: &[
        ("limit", "write `rate_limit: {unit: minute, requests_per_unit: 20}`, or a rule in `rules`"),
        ("match", "write `value`, or a rule in `rules`"),
    ],
    others: &[&RATE_LIMIT, &DOMAIN, &RULE],
};

/// The keys that a descriptor may have only with a limit: they would have no effect without one.
pub(super) const DESCRIPTOR_TERMS: &[&str] = TERMS;

pub(super) static RATE_LIMIT: Section = Section {
    name: "rate_limit",
    keys: &[&["name", "unit", "requests_per_unit", "unlimited", "replaces"]],
    instead: &[],
    others: &[&DESCRIPTOR, &RULE, &DOMAIN],
};

pub(super) static REPLACED: Section =
    Section { name: "an entry of replaces", keys: &[&["name"]], instead: &[], others: &[&RATE_LIMIT, &DESCRIPTOR] };

pub(super) static GLOBAL: Section =
    Section { name: "global", keys: &[&["apart", "debit_threshold"]], instead: &[], others: &[&RULE, &DESCRIPTOR] };

pub(super) static TEST: Section =
    Section { name: "a condition of match", keys: &[&["not", "cidr"]], instead: &[], others: &[] };

pub(super) static REFUSED_TEST: Section =
    Section { name: "a condition under not", keys: &[&["cidr"]], instead: &[], others: &[&TEST] };

impl Section {
    pub(super) fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|keys| keys.contains(&key))
    }

    /// The error for a key that does not belong to this section, which has these entries.
    pub(super) fn refuse(&self, entry: &YamlEntry, entries: &[YamlEntry]) -> TextFault {
        let key = entry.key.text.as_str();
        if std::ptr::eq(self, &RULE)
            && let Some(instead) = foreign::rule_key(entry, entries)
        {
            return TextFault::new(format!("{} does not belong in {}", quoted(key), self.name), instead);
        }
        let own = || self.keys.iter().copied().flatten().copied();
        if let Some((_, instead)) = self.instead.iter().find(|(other, _)| *other == key) {
            return TextFault::new(format!("{} does not belong in {}", quoted(key), self.name), *instead);
        }
        if let Some(other) = self.others.iter().find(|other| other.has(key)) {
            let message = format!("{} does not belong in {}", quoted(key), self.name);
            return TextFault::new(message, format!("write it in {}, or remove it", other.name));
        }
        let message = format!("{} is not a key of {}", quoted(key), self.name);
        match nearest(key, own()) {
            Some(near) => TextFault::new(message, format!("did you mean `{near}`?")),
            None => TextFault::new(message, format!("the keys here are {}", own().collect::<Vec<_>>().join(", "))),
        }
    }
}
