//! Limits that come with a request: an amount and a unit of time, with their own key space.

use smallvec::SmallVec;
use tollgate_core::key::{Home, Key, PrivateValues};
use tollgate_core::{Descriptor, Limit, LimitError, Period, Scope, Span, Value};

use crate::address::{IPV6_PREFIX, counted, is_address};
use crate::model::{self, Counting, EndTerms, Headers, HoldCounting, Policy, RuleMode, Terms};
use crate::regions::RegionMode;
use crate::rule::{CounterScope, Rule};

/// What a domain needs to count limits that come with requests.
#[derive(Debug)]
pub(crate) struct RequestLimits {
    /// Represents all of them in decisions.
    pub(crate) rule: Rule,
    counting: Counting,
    /// A scope for each supported period.
    scopes: Vec<(Span, Scope)>,
}

/// The units of Envoy's protocol: second to day, week, month, year.
const LENGTHS: [Span; 7] = [
    Span::from_secs(1),
    Span::from_secs(60),
    Span::from_secs(3_600),
    Span::from_secs(86_400),
    Span::from_secs(7 * 86_400),
    Span::from_secs(30 * 86_400),
    Span::from_secs(365 * 86_400),
];

/// The name of such limits, and a text for scopes that no rule of a file has.
const NAME: &str = "request";
const PATH: &str = "⇒request";

impl RequestLimits {
    pub(crate) fn new(domain: &model::Domain) -> RequestLimits {
        let terms = Terms {
            caps: domain.tiers.iter().map(|_| None).collect(),
            by_value: None,
            shed: false,
            mode: RuleMode::Enforce,
            on_failure: domain.tiers.iter().map(|tier| Policy::Comfort.for_tier(tier)).collect(),
            policy: Policy::Comfort,
            ipv6_prefix: IPV6_PREFIX,
            ipv6_prefix_given: false,
            headers: Headers::Full,
            denied_by_label: None,
            ending: EndTerms::default(),
            count: HoldCounting::Exact,
            lease: domain.default_lease,
            ahead: None,
            region: RegionMode::Each,
        };
        // Names and values alternate. Which attributes a request has is not known here, so all values are private.
        let private = PrivateValues::ODD;
        let scope = |length: Span| {
            let (period, algorithm) = (Period::fixed(length).ok()?, domain.default_algorithm.algorithm(0, 1));
            Some((length, Scope::new(&domain.name, PATH, algorithm, &period, Home::Own).with_private(private)))
        };
        let counters =
            CounterScope { domain: &domain.name, path: PATH, home: Home::Own, private, global: None, is_owned: false };
        let mut rule = Rule::with_terms(NAME, &counters, &terms, domain.at.clone());
        rule.named = false;
        RequestLimits {
            rule,
            counting: domain.default_algorithm,
            scopes: LENGTHS.into_iter().filter_map(scope).collect(),
        }
    }

    /// The limit of this amount and period, with the domain's default algorithm.
    pub(crate) fn limit(&self, amount: u64, length: Span) -> Result<Limit, LimitError> {
        Limit::new(amount, Period::fixed(length)?, self.counting.algorithm(amount, 1))
    }

    /// The counter of a descriptor under a limit of this period. `None` if the period is not supported.
    pub(crate) fn key<'a>(&'a self, descriptor: &Descriptor<'a>, length: Span) -> Option<Key<'a>> {
        let (_, scope) = self.scopes.iter().find(|(known, _)| *known == length)?;
        let mut values = SmallVec::new();
        for (name, value) in descriptor.entries {
            values.push(Value::Text(name));
            values.push(if is_address(name) { counted(value, IPV6_PREFIX) } else { Value::Text(value) });
        }
        Some(Key::new(scope, values))
    }
}
