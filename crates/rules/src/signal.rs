//! Compiled signals: which requests they count, and for which key.

use smallvec::SmallVec;
use tollgate_core::key::{Home, PrivateValues};
use tollgate_core::{Key, Request, Scope, Span, Value};

use crate::address::{counted, is_address};
use crate::attributes::{Attribute, AttributeNumbers, Attributes, Outline, attribute_places};
use crate::ban::Banned;
use crate::model::{self, SignalBan, Test};

/// A compiled signal.
#[derive(Debug)]
pub struct Signal {
    name: Box<str>,
    distinct: SignalAttribute,
    distinct_name: Box<str>,
    /// Whether the values that are counted are private.
    is_distinct_private: bool,
    per: SmallVec<[SignalAttribute; 2]>,
    per_names: Box<[Box<str>]>,
    clauses: Vec<(Attribute, Test)>,
    threshold: u64,
    window: Span,
    ipv6_prefix: u8,
    ban: Option<SignalBan>,
    /// Identifies its keys, so that they are named and masked like those of counters.
    scope: Scope,
}

#[derive(Clone, Copy, Debug)]
struct SignalAttribute {
    attribute: Attribute,
    is_address: bool,
}

/// A request that a signal counts.
#[derive(Clone, Debug)]
pub struct SignalHit<'r> {
    /// The signal.
    pub signal: &'r Signal,
    /// The values that it counts for.
    pub key: Key<'r>,
    /// The value that is counted.
    pub value: Value<'r>,
}

/// What no rule can have as the name of its counters.
const KIND: &str = "signal:";

/// The signals that count a request. One beyond the bounds counts for none.
pub(crate) fn hits<'r>(
    signals: &'r [Signal],
    names: &AttributeNumbers,
    request: &Request<'r>,
) -> SmallVec<[SignalHit<'r>; 2]> {
    let Ok(outline) = Outline::of(request) else { return SmallVec::new() };
    let places = attribute_places(request, names);
    let attributes = Attributes::new(request, &outline, &places);
    signals.iter().filter_map(|signal| signal.hit(&attributes)).collect()
}

impl Signal {
    pub(crate) fn compile(signal: &model::Signal, domain: &model::Domain, names: &mut AttributeNumbers) -> Signal {
        let mut attribute =
            |name: &str| SignalAttribute { attribute: names.number(name), is_address: is_address(name) };
        let (distinct, per) = (attribute(&signal.distinct), signal.per.iter().map(|name| attribute(name)).collect());
        let private: PrivateValues = signal.per.iter().map(|name| domain.private.contains(name)).collect();
        let scope = Scope::for_records(&domain.name, &format!("{KIND}{}", signal.name), Home::Own);
        Signal {
            name: signal.name.as_str().into(),
            distinct,
            distinct_name: signal.distinct.as_str().into(),
            is_distinct_private: domain.private.contains(&signal.distinct),
            per,
            per_names: signal.per.iter().map(|name| name.as_str().into()).collect(),
            clauses: signal.clauses.iter().map(|one| (names.number(&one.attribute), one.test.clone())).collect(),
            threshold: signal.threshold,
            window: signal.window,
            ipv6_prefix: signal.ipv6_prefix,
            ban: signal.ban,
            scope: scope.with_private(private),
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The attribute whose distinct values are counted.
    pub fn distinct(&self) -> &str {
        &self.distinct_name
    }

    /// Whether the values that are counted are private.
    pub fn is_distinct_private(&self) -> bool {
        self.is_distinct_private
    }

    /// The attributes for whose values they are counted.
    pub fn per(&self) -> impl Iterator<Item = &str> {
        self.per_names.iter().map(|name| &**name)
    }

    /// The number of distinct values from which on it is raised.
    pub fn threshold(&self) -> u64 {
        self.threshold
    }

    /// The ban of those for whom it is raised.
    pub fn ban(&self) -> Option<SignalBan> {
        self.ban
    }

    /// The value for which it is raised, as a subject of its ban. `None` if it is none.
    pub fn subject<'k>(&self, key: &'k str) -> Option<Banned<'k>> {
        let [attribute] = &*self.per_names else { return None };
        match is_address(attribute) {
            true => key.parse::<model::Network>().ok().map(|network| Banned::Network(network.canonical())),
            false => (!key.is_empty()).then_some(Banned::Caller(key.into())),
        }
    }

    /// Whether the values for which it counts are private.
    pub fn is_private(&self) -> bool {
        !self.scope.private().is_empty()
    }

    /// The time in which they are counted.
    pub fn window(&self) -> Span {
        self.window
    }

    /// The request with these attributes, if the signal counts it.
    fn hit<'r>(&'r self, attributes: &Attributes<'_, 'r>) -> Option<SignalHit<'r>> {
        if !self.clauses.iter().all(|(attribute, test)| test.holds(attributes.get(*attribute))) {
            return None;
        }
        let value = self.value(self.distinct, attributes)?;
        let values: Option<SmallVec<_>> = self.per.iter().map(|part| self.value(*part, attributes)).collect();
        Some(SignalHit { signal: self, key: Key::new(&self.scope, values?), value })
    }

    fn value<'r>(&self, of: SignalAttribute, attributes: &Attributes<'_, 'r>) -> Option<Value<'r>> {
        let text = attributes.get(of.attribute)?;
        Some(if of.is_address { counted(text, self.ipv6_prefix) } else { Value::Text(text) })
    }
}
