//! What both forms may say of a limit: how it counts, what follows at it, and what happens when the store is away.

use tollgate_core::{Algorithm, Limit, OnFailure, Period, Span};

use crate::limit_text::{self, Burst, LimitText};
use crate::load::domain::Settings;
use crate::load::reader::{Fields, Reader};
use crate::model::{Cap, Counting, EndTerms, Headers, Policy, RuleMode, Terms, Tier};
use crate::yaml::Yaml;

pub(crate) const ALGORITHMS: &[(&str, Counting)] = &[
    ("sliding_window", Counting::SlidingWindow),
    ("token_bucket", Counting::Bucket),
    ("gcra", Counting::Bucket),
    ("leaky_bucket", Counting::LeakyBucket),
    ("fixed_window", Counting::FixedWindow),
    ("sliding_log", Counting::SlidingLog),
];

const MODES: &[(&str, RuleMode)] =
    &[("enforce", RuleMode::Enforce), ("shadow", RuleMode::Shadow), ("soft", RuleMode::Soft), ("off", RuleMode::Off)];

const POLICIES: &[(&str, Policy)] =
    &[("comfort", Policy::Comfort), ("security", Policy::Security), ("cost", Policy::Cost), ("quota", Policy::Quota)];

const FAILURES: &[(&str, OnFailure)] =
    &[("allow", OnFailure::Allow), ("deny", OnFailure::Deny), ("local", OnFailure::Local)];

const HEADERS: &[(&str, Headers)] =
    &[("full", Headers::Full), ("standard", Headers::Standard), ("hidden", Headers::Hidden)];

/// How many bits of an IPv6 address name a counter: what a provider commonly gives to one customer.
const IPV6_PREFIX: u8 = 56;

/// The longest that is waited for a request to end.
const LONGEST_HOLD: Span = Span::from_secs(7 * 86_400);

const REFUNDS: &[(&str, bool)] = &[("on_failure", true), ("never", false)];

/// A value and the line that it stands in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lined<T> {
    pub(super) value: T,
    pub(super) line: usize,
}

/// What each tier is held to, as the file says it: each text once, and which of them is a tier's.
pub(super) struct Quotas {
    pub(super) texts: Vec<Lined<LimitText>>,
    pub(super) by_tier: Vec<Option<usize>>,
}

/// The keys that both forms share, as the file says them.
pub(super) struct Wording {
    algorithm: Option<Lined<Counting>>,
    /// It names no algorithm, so what would fit it can't be said.
    algorithm_unknown: bool,
    burst: Option<Lined<Burst>>,
    sub_windows: Option<Lined<u16>>,
    hold: Option<Lined<Span>>,
    settle: Option<Lined<bool>>,
    refund: Option<Lined<bool>>,
    reserve_max: Option<Lined<u16>>,
    policy: Option<Policy>,
    on_failure: Option<OnFailure>,
    pub(super) mode: RuleMode,
    ipv6_prefix: Option<u8>,
    headers: Headers,
    denied_by_label: Option<String>,
}

// === impl Quotas ===

impl Quotas {
    /// The same for every tier.
    pub(super) fn same(text: Lined<LimitText>, tiers: &[Tier]) -> Quotas {
        Quotas { texts: vec![text], by_tier: vec![Some(0); tiers.len()] }
    }

    fn any(&self, test: impl Fn(&LimitText) -> bool) -> bool {
        self.texts.iter().any(|text| test(&text.value))
    }
}

// === impl Wording ===

impl Wording {
    pub(super) fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Wording {
        let ipv6_prefix = fields.get("ipv6_prefix").and_then(|value| reader.number(value, "ipv6_prefix", 1..=128));
        let algorithm = lined(fields, "algorithm", |value| reader.word(value, "algorithm", ALGORITHMS));
        Wording {
            algorithm_unknown: fields.get("algorithm").is_some() && algorithm.is_none(),
            algorithm,
            burst: lined(fields, "burst", |value| {
                let text = reader.text(value, "burst")?;
                reader.sound(value.line, "burst", limit_text::burst(text))
            }),
            sub_windows: lined(fields, "sub_windows", |value| {
                let parts = reader.number(value, "sub_windows", 1..=Limit::MOST_SUB_WINDOWS.into())?;
                u16::try_from(parts).ok()
            }),
            hold: lined(fields, "hold", |value| {
                let text = reader.text(value, "hold")?;
                reader.sound(value.line, "hold", limit_text::duration(text))
            }),
            settle: lined(fields, "settle", |value| reader.boolean(value, "settle")),
            refund: lined(fields, "refund", |value| reader.word(value, "refund", REFUNDS)),
            reserve_max: lined(fields, "reserve_max", |value| {
                let text = reader.text(value, "reserve_max")?;
                reader.sound(value.line, "reserve_max", limit_text::percent(text))
            }),
            policy: fields.get("policy").and_then(|value| reader.word(value, "policy", POLICIES)),
            on_failure: fields.get("on_failure").and_then(|value| reader.word(value, "on_failure", FAILURES)),
            mode: mode(reader, fields),
            ipv6_prefix: ipv6_prefix.and_then(|prefix| u8::try_from(prefix).ok()),
            headers: fields
                .get("headers")
                .and_then(|value| reader.word(value, "headers", HEADERS))
                .unwrap_or(Headers::Full),
            denied_by_label: fields.get("denied_by_label").and_then(|value| reader.name(value, "denied_by_label")),
        }
    }

    /// The terms of these quotas. `None` if they can't be, which has been told.
    pub(super) fn terms(self, quotas: &Quotas, settings: &Settings, reader: &mut Reader<'_>) -> Option<Terms> {
        if self.algorithm_unknown {
            return None;
        }
        let fitting = self.check_fit(quotas, settings, reader);
        let caps: Vec<Option<Cap>> = quotas.texts.iter().map(|text| self.cap(text, settings, reader)).collect();
        if !fitting || !self.hold_is_sound(reader) || caps.contains(&None) {
            return None;
        }
        let calendar =
            quotas.any(|text| matches!(text, LimitText::Rate { period, .. } if period.as_calendar().is_some()));
        let policy = self.policy.unwrap_or(if calendar { Policy::Quota } else { Policy::Comfort });
        Some(Terms {
            caps: quotas.by_tier.iter().map(|text| text.and_then(|text| caps.get(text).cloned().flatten())).collect(),
            mode: self.mode,
            on_failure: settings
                .tiers
                .iter()
                .map(|tier| self.on_failure.unwrap_or_else(|| policy.for_tier(tier)))
                .collect(),
            policy,
            ipv6_prefix: self.ipv6_prefix.unwrap_or(IPV6_PREFIX),
            ipv6_prefix_given: self.ipv6_prefix.is_some(),
            headers: self.headers,
            ending: self.ending(),
            denied_by_label: self.denied_by_label,
        })
    }

    fn ending(&self) -> EndTerms {
        EndTerms {
            settle: self.settles(),
            refund: self.refunds(),
            reserve_max: self.reserve_max.map(|given| given.value),
            hold: self.hold.map_or(EndTerms::HOLD, |given| given.value),
        }
    }

    fn hold_is_sound(&self, reader: &mut Reader<'_>) -> bool {
        let Some(hold) = self.hold.filter(|hold| hold.value < Period::SHORTEST || hold.value > LONGEST_HOLD) else {
            return true;
        };
        reader.error(
            hold.line,
            "`hold` is shorter than a millisecond, or longer than a week",
            "write for instance `hold: 60s`",
        );
        false
    }

    fn settles(&self) -> bool {
        self.settle.is_some_and(|given| given.value)
    }

    fn refunds(&self) -> bool {
        self.refund.is_some_and(|given| given.value)
    }

    /// Whether every key means something beside these quotas; what does not is told once, however many tiers there are.
    fn check_fit(&self, quotas: &Quotas, settings: &Settings, reader: &mut Reader<'_>) -> bool {
        let concurrent = quotas.any(|text| matches!(text, LimitText::Concurrent(_)));
        let counted = |wanted: &[Counting]| {
            quotas.any(|text| match text {
                LimitText::Rate { period, .. } => wanted.contains(&self.counting(period, settings)),
                // No counter, so nothing that it would contradict.
                LimitText::Unlimited => self.algorithm.is_some_and(|named| wanted.contains(&named.value)),
                LimitText::Concurrent(_) => false,
            })
        };
        let mut misfits: Vec<(usize, &str, &str)> = Vec::new();
        if concurrent {
            let beside = [
                ("`algorithm`", self.algorithm.map(|given| given.line)),
                ("`burst`", self.burst.map(|given| given.line)),
                ("`sub_windows`", self.sub_windows.map(|given| given.line)),
                ("`settle`", self.settle.map(|given| given.line)),
                ("`refund`", self.refund.map(|given| given.line)),
                ("`reserve_max`", self.reserve_max.map(|given| given.line)),
            ];
            for (key, line) in beside.into_iter().filter_map(|(key, line)| line.map(|line| (key, line))) {
                misfits.push((
                    line,
                    key,
                    "remove it; concurrent requests are counted one by one, and released when they end",
                ));
            }
        } else {
            if let Some(hold) = self.hold.filter(|_| !self.settles() && !self.refunds()) {
                let remedy =
                    "remove it, or write `settle: true`, `refund: on_failure` or a limit such as `20 concurrent`";
                misfits.push((hold.line, "`hold`", remedy));
            }
            if let Some(most) = self.reserve_max.filter(|_| !self.settles()) {
                misfits.push((most.line, "`reserve_max`", "add `settle: true`, or remove it"));
            }
            if let Some(burst) = self.burst.filter(|_| !counted(&[Counting::Bucket, Counting::LeakyBucket])) {
                misfits.push((burst.line, "`burst`", "add `algorithm: token_bucket`, or remove it"));
            }
            if let Some(parts) = self.sub_windows.filter(|_| !counted(&[Counting::SlidingWindow])) {
                misfits.push((parts.line, "`sub_windows`", "add `algorithm: sliding_window`, or remove it"));
            }
        }
        for (line, key, remedy) in &misfits {
            reader.error(*line, format!("{key} means nothing beside this limit"), *remedy);
        }
        misfits.is_empty()
    }

    fn cap(&self, text: &Lined<LimitText>, settings: &Settings, reader: &mut Reader<'_>) -> Option<Cap> {
        let limit = match &text.value {
            LimitText::Unlimited => return Some(Cap::Unlimited),
            LimitText::Concurrent(most) => {
                // What can't be a hold has been told.
                let period = Period::fixed(self.hold.map_or(EndTerms::HOLD, |hold| hold.value)).ok()?;
                Limit::new(*most, period, Algorithm::Concurrency)
            }
            LimitText::Rate { amount, period } => {
                let algorithm = self.algorithm_of(*amount, period, settings);
                Limit::new(*amount, period.clone(), algorithm)
            }
        };
        let limit = limit.map_err(|error| limit_text::limit_fault(&error));
        reader.sound(text.line, "limit", limit).map(Cap::Limit)
    }

    fn algorithm_of(&self, amount: u64, period: &Period, settings: &Settings) -> Algorithm {
        let burst = self.burst.map_or(amount, |burst| burst.value.of(amount));
        let sub_windows = self.sub_windows.map_or(1, |parts| parts.value);
        self.counting(period, settings).algorithm(burst, sub_windows)
    }

    /// The rule's own algorithm; else a calendar's, which begins anew with each period; else the domain's.
    fn counting(&self, period: &Period, settings: &Settings) -> Counting {
        match self.algorithm {
            Some(algorithm) => algorithm.value,
            None if period.as_calendar().is_some() => Counting::FixedWindow,
            None => settings.default_algorithm,
        }
    }
}

/// `enabled`, `mode` and `enforce`, of which the last two say the same thing.
fn mode(reader: &mut Reader<'_>, fields: &Fields<'_>) -> RuleMode {
    let enabled = fields.get("enabled").and_then(|value| reader.boolean(value, "enabled")).unwrap_or(true);
    let mode = fields.get("mode").and_then(|value| reader.word(value, "mode", MODES));
    let share = fields.get("enforce").and_then(|value| {
        let text = reader.text(value, "enforce")?;
        reader.sound(value.line, "enforce", limit_text::percent(text))
    });
    if let (Some(_), Some(enforce)) = (fields.get("mode"), fields.entry("enforce")) {
        reader.error(
            enforce.line,
            "`enforce` stands beside `mode`",
            "keep one: a share is always enforced, the rest is shadow",
        );
    }
    match (enabled, mode, share) {
        (false, ..) => RuleMode::Off,
        (true, Some(mode), _) => mode,
        (true, None, Some(of_10_000)) => RuleMode::Share { of_10_000 },
        (true, None, None) => RuleMode::Enforce,
    }
}

fn lined<T>(fields: &Fields<'_>, key: &str, read: impl FnOnce(&Yaml) -> Option<T>) -> Option<Lined<T>> {
    let value = fields.get(key)?;
    read(value).map(|read| Lined { value: read, line: value.line })
}
