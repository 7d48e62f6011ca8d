//! Compiled bans: whom a rule bans, after how many refusals, and for how long.

use std::borrow::Cow;
use std::net::IpAddr;

use smallvec::SmallVec;
use tollgate_core::key::Home;
use tollgate_core::{Key, Limit, Request, Scope, Span, Value};

use crate::address::{is_address, parse_address};
use crate::attributes::AttributeNumbers;
use crate::model::{self, BanAction, BanSubject, BanTerms, Network, NeverBan};
use crate::pattern::Pattern;

/// The ban of a compiled rule.
#[derive(Debug)]
pub struct Ban {
    /// The attribute with the value that is banned.
    attribute: Box<str>,
    is_address: bool,
    is_private: bool,
    ipv6_prefix: u8,
    /// So many refusals in so much time.
    limit: Limit,
    lasts: Span,
    escalate_percent: u64,
    most: Span,
    action: BanAction,
    /// Of the counters of refusals.
    scope: Scope,
}

/// Who is banned: a caller, or the network of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Banned<'r> {
    /// A caller.
    Caller(Cow<'r, str>),
    /// The addresses that count as one.
    Network(Network),
}

/// What no name of a rule begins with.
const KIND: &str = " ban:";

/// The largest number of parts of the window in which refusals count. The more, the less depends on when they were within it.
const MAX_PARTS: u16 = 6;

impl BanTerms {
    /// As a limit on refusals. `None` if the time can't be counted.
    pub(crate) fn limit(&self) -> Option<Limit> {
        let period = tollgate_core::Period::fixed(self.within).ok()?;
        let with = |sub_windows| tollgate_core::Algorithm::SlidingWindow { sub_windows };
        (1..=MAX_PARTS).rev().find_map(|parts| Limit::new(self.after, period.clone(), with(parts)).ok())
    }
}

impl Ban {
    pub(crate) fn compile(rule: &model::Rule, domain: &model::Domain, names: &mut AttributeNumbers) -> Option<Ban> {
        let terms = rule.ban.as_ref()?;
        let attribute = match &terms.who {
            BanSubject::Caller => domain.entity.as_deref()?,
            BanSubject::Address(attribute) => attribute,
        };
        // So that gateways send it.
        names.number(attribute);
        let is_private = domain.private.contains(attribute);
        let limit = terms.limit()?;
        let kind = format!("{KIND}{}", rule.name);
        Some(Ban {
            attribute: attribute.into(),
            is_address: is_address(attribute),
            is_private,
            ipv6_prefix: rule.terms.ipv6_prefix,
            scope: Scope::new(&domain.name, &kind, limit.algorithm(), limit.period(), Home::Own),
            limit,
            lasts: terms.lasts,
            escalate_percent: terms.escalate_percent,
            most: terms.most,
            action: terms.action,
        })
    }

    /// The attribute with the value that is banned.
    pub fn attribute(&self) -> &str {
        &self.attribute
    }

    /// Whether that value is private.
    pub fn is_private(&self) -> bool {
        self.is_private
    }

    /// The number of refusals, and the time in which they count.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// How long the first ban lasts.
    pub fn lasts(&self) -> Span {
        self.lasts
    }

    /// How long each further ban lasts, in percent of the one before.
    pub fn escalate_percent(&self) -> u64 {
        self.escalate_percent
    }

    /// How long a ban lasts at most.
    pub fn most(&self) -> Span {
        self.most
    }

    /// What happens to banned requests.
    pub fn action(&self) -> BanAction {
        self.action
    }

    /// How long the next ban lasts, after one that lasted so long.
    pub fn next_length(&self, before: Option<Span>) -> Span {
        let Some(before) = before else { return self.lasts };
        let longer = u128::from(before.as_micros()) * u128::from(self.escalate_percent) / 100;
        let longer = Span::from_micros(u64::try_from(longer).unwrap_or(u64::MAX));
        longer.clamp(self.lasts, self.most)
    }

    /// Who would be banned for a refusal of this request. `None` if it does not say who it is from.
    pub fn subject<'r>(&self, request: &Request<'r>) -> Option<Banned<'r>> {
        let value = value(request, &self.attribute).filter(|value| !value.is_empty())?;
        if !self.is_address {
            return Some(Banned::Caller(Cow::Borrowed(value)));
        }
        let address = parse_address(value)?.to_canonical();
        let prefix = if address.is_ipv4() { 32 } else { self.ipv6_prefix };
        Some(Banned::Network(Network { address, prefix }.canonical()))
    }

    /// The counter of refusals of someone, by the name of the block that would be the ban.
    pub fn counter<'r>(&'r self, name: &'r str) -> Key<'r> {
        Key::new(&self.scope, SmallVec::from_iter([Value::Text(name)]))
    }
}

impl Banned<'_> {
    /// As a text: the caller, or the network as blocks name it.
    pub fn name(&self) -> Cow<'_, str> {
        match self {
            Banned::Caller(caller) => Cow::Borrowed(caller),
            Banned::Network(network) => Cow::Owned(network.to_string()),
        }
    }

    /// Whether it is a network.
    pub fn is_network(&self) -> bool {
        matches!(self, Banned::Network(_))
    }
}

/// The value of an attribute of a request.
fn value<'r>(request: &Request<'r>, attribute: &str) -> Option<&'r str> {
    let mut entries = request.descriptors.iter().flat_map(|descriptor| descriptor.entries);
    entries.find(|(name, _)| *name == attribute).map(|(_, value)| *value)
}

impl NeverBan {
    /// Whether someone must not be banned for a refusal of this request: by the caller's name, by an address of the request, or
    /// because a ban of the network would reach one of these networks.
    pub(crate) fn exempts(&self, request: &Request<'_>, entity: Option<&str>, banned: &Banned<'_>) -> bool {
        if self.networks.is_empty() && self.callers.is_empty() {
            return false;
        }
        let caller = || entity.and_then(|entity| value(request, entity));
        if !self.callers.is_empty() && caller().is_some_and(|caller| self.has_caller(caller)) {
            return true;
        }
        match banned {
            Banned::Network(network) => self.networks.iter().any(|never| overlap(never, network)),
            Banned::Caller(_) => crate::address::ADDRESSES.iter().any(|attribute| {
                let address = value(request, attribute).and_then(parse_address);
                address.is_some_and(|address| self.has_address(address))
            }),
        }
    }

    /// Whether someone must not be banned, whatever the request.
    pub(crate) fn exempts_subject(&self, banned: &Banned<'_>) -> bool {
        match banned {
            Banned::Network(network) => self.networks.iter().any(|never| overlap(never, network)),
            Banned::Caller(caller) => self.has_caller(caller),
        }
    }

    fn has_caller(&self, caller: &str) -> bool {
        self.callers.iter().any(|pattern: &Pattern| pattern.matches(caller))
    }

    fn has_address(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(address))
    }
}

/// Whether two networks share an address: then one has the first address of the other.
fn overlap(one: &Network, other: &Network) -> bool {
    one.contains(other.canonical().address) || other.contains(one.canonical().address)
}

#[cfg(test)]
mod tests;
