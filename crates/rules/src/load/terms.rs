//! The keys of a limit in both forms: its algorithm, its mode, and its behaviour while the store is unavailable.

use std::fmt;

use tollgate_core::{Algorithm, Limit, OnFailure, Period, Span};

use crate::address::IPV6_PREFIX;
use crate::lease::{self, NotLeased};
use crate::limit_text::{self, Burst, LimitText};
use crate::load::count;
use crate::load::domain::DomainSettings;
use crate::load::limit_by::ValueLimits;
use crate::load::reader::{Fields, FileReader};
use crate::load::region::{self, RegionText};
use crate::load::shed::Shed;
use crate::model::{Cap, Counting, EndTerms, Headers, HoldCounting, Lease, Policy, RuleMode, Terms, Tier};
use crate::regions::RegionMode;
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

/// The maximum time to wait for the end of a request.
const MAX_HOLD: Span = Span::from_secs(7 * 86_400);

/// The largest `ahead`, in basis points.
const MAX_AHEAD: u16 = 5_000;

pub(crate) const LEASES: &[(&str, Lease)] = &[("auto", Lease::Auto), ("on", Lease::On), ("off", Lease::Off)];

const REFUNDS: &[(&str, bool)] = &[("on_failure", true), ("never", false)];

/// A value and its line.
#[derive(Clone, Copy, Debug)]
pub(super) struct WithLine<T> {
    pub(super) value: T,
    pub(super) line: usize,
}

/// The limits of the tiers in the file: each text once, and the index of each tier's text.
pub(super) struct TierLimits {
    pub(super) texts: Vec<WithLine<LimitText>>,
    pub(super) by_tier: Vec<Option<usize>>,
    /// With `limit_by`, the indexes of the texts of some values; the others have that of the tiers.
    pub(super) by_value: Option<ValueLimits>,
}

/// The keys of a limit in the file.
pub(super) struct LimitKeys {
    algorithm: Option<WithLine<Counting>>,
    /// The algorithm is invalid, so keys that depend on it cannot be checked.
    algorithm_unknown: bool,
    burst: Option<WithLine<Burst>>,
    sub_windows: Option<WithLine<u16>>,
    hold: Option<WithLine<Span>>,
    count: Option<WithLine<HoldCounting>>,
    settle: Option<WithLine<bool>>,
    refund: Option<WithLine<bool>>,
    reserve_max: Option<WithLine<u16>>,
    lease: Option<WithLine<Lease>>,
    ahead: Option<WithLine<u16>>,
    region: Option<WithLine<RegionText>>,
    /// `region` is invalid.
    region_unknown: bool,
    policy: Option<Policy>,
    on_failure: Option<OnFailure>,
    pub(super) mode: RuleMode,
    ipv6_prefix: Option<u8>,
    headers: Headers,
    denied_by_label: Option<String>,
    shed: Option<Shed>,
}

// === impl Quotas ===

impl TierLimits {
    /// The same limit for every tier.
    pub(super) fn same(text: WithLine<LimitText>, tiers: &[Tier]) -> TierLimits {
        TierLimits { texts: vec![text], by_tier: vec![Some(0); tiers.len()], by_value: None }
    }

    fn any(&self, test: impl Fn(&LimitText) -> bool) -> bool {
        self.texts.iter().any(|text| test(&text.value))
    }
}

// === impl Wording ===

impl LimitKeys {
    pub(super) fn read(reader: &mut FileReader<'_>, fields: &Fields<'_>) -> LimitKeys {
        let ipv6_prefix = fields.get("ipv6_prefix").and_then(|value| reader.number(value, "ipv6_prefix", 1..=128));
        let algorithm = with_line(fields, "algorithm", |value| reader.word(value, "algorithm", ALGORITHMS));
        let region = fields.get("region").and_then(|value| region::read(value, reader));
        LimitKeys {
            region_unknown: fields.get("region").is_some() && region.is_none(),
            region,
            algorithm_unknown: fields.get("algorithm").is_some() && algorithm.is_none(),
            algorithm,
            burst: with_line(fields, "burst", |value| {
                let text = reader.text(value, "burst")?;
                reader.sound(value.line, "burst", limit_text::burst(text))
            }),
            sub_windows: with_line(fields, "sub_windows", |value| {
                let parts = reader.number(value, "sub_windows", 1..=Limit::MAX_SUB_WINDOWS.into())?;
                u16::try_from(parts).ok()
            }),
            hold: with_line(fields, "hold", |value| {
                let text = reader.text(value, "hold")?;
                reader.sound(value.line, "hold", limit_text::duration(text))
            }),
            count: count::read(reader, fields),
            settle: with_line(fields, "settle", |value| reader.boolean(value, "settle")),
            refund: with_line(fields, "refund", |value| reader.word(value, "refund", REFUNDS)),
            reserve_max: with_line(fields, "reserve_max", |value| {
                let text = reader.text(value, "reserve_max")?;
                reader.sound(value.line, "reserve_max", limit_text::percent(text))
            }),
            lease: with_line(fields, "lease", |value| reader.word(value, "lease", LEASES)),
            ahead: with_line(fields, "ahead", |value| {
                let text = reader.text(value, "ahead")?;
                reader.sound(value.line, "ahead", limit_text::percent(text))
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
            shed: Shed::read(reader, fields),
        }
    }

    /// The terms of these limits. `None` if they are invalid, which has been reported.
    pub(super) fn terms(
        self,
        quotas: &TierLimits,
        settings: &DomainSettings,
        reader: &mut FileReader<'_>,
    ) -> Option<Terms> {
        if self.algorithm_unknown {
            return None;
        }
        let fitting = self.check_fit(quotas, settings, reader);
        let caps: Vec<Option<Cap>> = quotas.texts.iter().map(|text| self.cap(text, settings, reader)).collect();
        let sheds = self.shed.is_none_or(|shed| shed.is_possible(self.policy, self.on_failure, reader));
        if !fitting || !sheds || !self.hold_is_sound(reader) || caps.contains(&None) {
            return None;
        }
        let calendar =
            quotas.any(|text| matches!(text, LimitText::Rate { period, .. } if period.as_calendar().is_some()));
        let is_quota = calendar && self.shed.is_none();
        let policy = self.policy.unwrap_or(if is_quota { Policy::Quota } else { Policy::Comfort });
        if !self.lease_is_possible(policy, &caps, reader) || !self.ahead_is_possible(policy, &caps, settings, reader) {
            return None;
        }
        if self.count.is_some_and(|count| !count::is_possible(count, policy, self.on_failure, reader)) {
            return None;
        }
        let region = region::mode(self.region.as_ref(), policy, limits(&caps), &settings.regions, reader)?;
        if self.region_unknown || !self.count.is_none_or(|count| count::fits_region(count, &region, reader)) {
            return None;
        }
        if !self.ahead_fits_region(&region, reader) {
            return None;
        }
        // Without its home nobody knows what is left. A rule that sheds must not refuse for that.
        let fails_closed = region.is_home() && self.shed.is_none();
        let by_value = match &quotas.by_value {
            Some(values) => Some(values.caps(&caps, reader)?),
            None => None,
        };
        Some(Terms {
            by_value,
            shed: self.shed.is_some(),
            caps: quotas.by_tier.iter().map(|text| text.and_then(|text| caps.get(text).cloned().flatten())).collect(),
            mode: self.mode,
            on_failure: settings
                .tiers
                .iter()
                .map(|tier| match self.on_failure {
                    Some(given) => given,
                    None if fails_closed => OnFailure::Deny,
                    None => policy.for_tier(tier),
                })
                .collect(),
            policy,
            ipv6_prefix: self.ipv6_prefix.unwrap_or(IPV6_PREFIX),
            ipv6_prefix_given: self.ipv6_prefix.is_some(),
            headers: if self.shed.is_some() { Headers::Hidden } else { self.headers },
            ending: self.ending(),
            count: self.count.map_or(HoldCounting::Exact, |given| given.value),
            lease: self.lease.map_or(settings.default_lease, |given| given.value),
            ahead: self.ahead.map(|given| given.value),
            region,
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

    fn hold_is_sound(&self, reader: &mut FileReader<'_>) -> bool {
        let Some(hold) = self.hold.filter(|hold| hold.value < Period::MIN || hold.value > MAX_HOLD) else {
            return true;
        };
        reader.error(
            hold.line,
            "`hold` is shorter than a millisecond, or longer than a week",
            "write for instance `hold: 60s`",
        );
        false
    }

    /// Whether `lease: on` is possible with every limit. The first one with which it is not is reported.
    fn lease_is_possible(&self, policy: Policy, caps: &[Option<Cap>], reader: &mut FileReader<'_>) -> bool {
        let Some(given) = self.lease.filter(|given| given.value == Lease::On) else { return true };
        let Some(reason) = self.why_never_leased(policy, caps) else { return true };
        reader.error(given.line, format!("`lease: on` is not possible: {reason}"), reason.remedy());
        false
    }

    /// Whether `ahead` is possible: it is a looser kind of lease.
    fn ahead_is_possible(
        &self,
        policy: Policy,
        caps: &[Option<Cap>],
        settings: &DomainSettings,
        reader: &mut FileReader<'_>,
    ) -> bool {
        let Some(given) = self.ahead else { return true };
        let lease = self.lease.map_or(settings.default_lease, |given| given.value);
        let not_possible = |reason: &dyn fmt::Display| format!("`ahead` is not possible: {reason}");
        let problem = if !(1..=MAX_AHEAD).contains(&given.value) {
            let problem = "`ahead` is the part of a limit by which it may be exceeded, from 0.01% to 50%";
            Some((problem.to_owned(), "write for instance `ahead: 5%`, or remove it"))
        } else if policy != Policy::Comfort {
            let problem = not_possible(&NotLeased::Policy(policy));
            Some((problem, "remove it; only limits of policy comfort may be exceeded"))
        } else if lease == Lease::Off {
            Some((not_possible(&NotLeased::Off), "remove it, or remove `lease: off`"))
        } else if let Some(reason) = self.why_never_leased(policy, caps) {
            Some((not_possible(&reason), reason.remedy()))
        } else if lease == Lease::Auto
            && let Some(reason) = why_none_is_leased(caps)
        {
            Some((not_possible(&reason), "write `lease: on`, or remove it"))
        } else {
            None
        };
        let Some((problem, remedy)) = problem else { return true };
        reader.error(given.line, problem, remedy);
        false
    }

    /// Whether servers of several regions would not admit the part of the limit each region for itself.
    fn ahead_fits_region(&self, region: &RegionMode, reader: &mut FileReader<'_>) -> bool {
        let Some(given) = self.ahead.filter(|_| region.is_home()) else { return true };
        reader.error(
            given.line,
            "`ahead` shares a part of the limit among the servers of one region, and those of all regions admit units of a \
             counter that one region owns",
            "remove it; leases save most calls for busy keys; or write another `region`",
        );
        false
    }

    /// Why one of the limits can't be leased, whatever the rule says.
    fn why_never_leased(&self, policy: Policy, caps: &[Option<Cap>]) -> Option<NotLeased> {
        let ends = self.settles() || self.refunds();
        limits(caps).filter_map(|limit| lease::impossible(policy, ends, limit)).next()
    }

    fn settles(&self) -> bool {
        self.settle.is_some_and(|given| given.value)
    }

    fn refunds(&self) -> bool {
        self.refund.is_some_and(|given| given.value)
    }

    /// Whether every key has an effect with these limits. Each key without effect is reported once, whatever the
    /// number of tiers.
    fn check_fit(&self, quotas: &TierLimits, settings: &DomainSettings, reader: &mut FileReader<'_>) -> bool {
        let concurrent = quotas.any(|text| matches!(text, LimitText::Concurrent(_)));
        let counted = |algorithms: &[Counting]| {
            quotas.any(|text| match text {
                LimitText::Rate { period, .. } => algorithms.contains(&self.counting(period, settings)),
                // Without a counter there is nothing to contradict.
                LimitText::Unlimited => self.algorithm.is_some_and(|named| algorithms.contains(&named.value)),
                LimitText::Concurrent(_) => false,
            })
        };
        let mut ineffective: Vec<(usize, &str, &str)> = Vec::new();
        if concurrent {
            let keys = [
                ("`algorithm`", self.algorithm.map(|given| given.line)),
                ("`burst`", self.burst.map(|given| given.line)),
                ("`sub_windows`", self.sub_windows.map(|given| given.line)),
                ("`settle`", self.settle.map(|given| given.line)),
                ("`refund`", self.refund.map(|given| given.line)),
                ("`reserve_max`", self.reserve_max.map(|given| given.line)),
            ];
            for (key, line) in keys.into_iter().filter_map(|(key, line)| line.map(|line| (key, line))) {
                ineffective.push((
                    line,
                    key,
                    "remove it; concurrent requests are counted one by one, and released when they end",
                ));
            }
        } else {
            if let Some(hold) = self.hold.filter(|_| !self.settles() && !self.refunds()) {
                let remedy =
                    "remove it, or write `settle: true`, `refund: on_failure` or a limit such as `20 concurrent`";
                ineffective.push((hold.line, "`hold`", remedy));
            }
            if let Some(count) = self.count {
                let remedy = "remove it; it is for limits such as `2000 concurrent`";
                ineffective.push((count.line, "`count`", remedy));
            }
            if let Some(most) = self.reserve_max.filter(|_| !self.settles()) {
                ineffective.push((most.line, "`reserve_max`", "add `settle: true`, or remove it"));
            }
            if let Some(burst) = self.burst.filter(|_| !counted(&[Counting::Bucket, Counting::LeakyBucket])) {
                ineffective.push((burst.line, "`burst`", "add `algorithm: token_bucket`, or remove it"));
            }
            if let Some(parts) = self.sub_windows.filter(|_| !counted(&[Counting::SlidingWindow])) {
                ineffective.push((parts.line, "`sub_windows`", "add `algorithm: sliding_window`, or remove it"));
            }
        }
        for (line, key, remedy) in &ineffective {
            reader.error(*line, format!("{key} has no effect with this limit"), *remedy);
        }
        ineffective.is_empty()
    }

    fn cap(&self, text: &WithLine<LimitText>, settings: &DomainSettings, reader: &mut FileReader<'_>) -> Option<Cap> {
        let limit = match &text.value {
            LimitText::Unlimited => return Some(Cap::Unlimited),
            LimitText::Concurrent(most) => {
                // An invalid hold has been reported.
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

    fn algorithm_of(&self, amount: u64, period: &Period, settings: &DomainSettings) -> Algorithm {
        let burst = self.burst.map_or(amount, |burst| burst.value.for_amount(amount));
        let sub_windows = self.sub_windows.map_or(1, |parts| parts.value);
        self.counting(period, settings).algorithm(burst, sub_windows)
    }

    /// The rule's own algorithm; otherwise that of calendar periods, which restarts with each period; otherwise the
    /// domain's.
    fn counting(&self, period: &Period, settings: &DomainSettings) -> Counting {
        match self.algorithm {
            Some(algorithm) => algorithm.value,
            None if period.as_calendar().is_some() => Counting::FixedWindow,
            None => settings.default_algorithm,
        }
    }
}

/// `enabled`, `mode` and `enforce`. The last two exclude each other.
fn mode(reader: &mut FileReader<'_>, fields: &Fields<'_>) -> RuleMode {
    let enabled = fields.get("enabled").and_then(|value| reader.boolean(value, "enabled")).unwrap_or(true);
    let mode = fields.get("mode").and_then(|value| reader.word(value, "mode", MODES));
    let share = fields.get("enforce").and_then(|value| {
        let text = reader.text(value, "enforce")?;
        reader.sound(value.line, "enforce", limit_text::percent(text))
    });
    if let (Some(_), Some(enforce)) = (fields.get("mode"), fields.entry("enforce")) {
        reader.error(
            enforce.line,
            "`enforce` conflicts with `mode`",
            "keep one: a share is always enforced, the rest is shadow",
        );
    }
    match (enabled, mode, share) {
        (false, ..) => RuleMode::Off,
        (true, Some(mode), _) => mode,
        (true, None, Some(bps)) => RuleMode::Share { bps },
        (true, None, None) => RuleMode::Enforce,
    }
}

fn with_line<T>(fields: &Fields<'_>, key: &str, read: impl FnOnce(&Yaml) -> Option<T>) -> Option<WithLine<T>> {
    let value = fields.get(key)?;
    read(value).map(|read| WithLine { value: read, line: value.line })
}

fn limits(caps: &[Option<Cap>]) -> impl Iterator<Item = &Limit> + Clone {
    caps.iter().flatten().filter_map(|cap| match cap {
        Cap::Limit(limit) => Some(limit),
        Cap::Unlimited => None,
    })
}

/// Why none of the limits is leased by default. `None` if one is.
fn why_none_is_leased(caps: &[Option<Cap>]) -> Option<NotLeased> {
    let reasons: Option<Vec<NotLeased>> = limits(caps).map(lease::not_by_default).collect();
    reasons?.first().copied()
}
