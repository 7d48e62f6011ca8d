//! From a request to a claim: which limits it meets, with which keys, for how much. Pure, on one snapshot.

use smallvec::SmallVec;
use tollgate_core::{
    Ask, Charge, Claim, ClaimId, Descriptor, Key, Limit, Mode, ReceiptWish, Request, Timestamp, Value,
};

use crate::attributes::Attributes;
use crate::compiled::{Domain, Rule, Ruleset};
use crate::error::RequestError;
use crate::index::Id;
use crate::model::RuleMode;
use crate::tenants::{Block, BlockedAs, CapRef, Found, ResolvedBy, Room, Sought, Tenants};

/// A claim, and where each of its charges comes from.
#[derive(Debug)]
pub struct Resolved<'a> {
    /// The domain.
    pub domain: &'a Domain,
    /// What is asked of the store.
    pub claim: Claim<'a>,
    /// The rule behind each charge, in their order.
    pub applied: SmallVec<[Applied; 4]>,
    /// Rules that apply and do not limit.
    pub unlimited: SmallVec<[Applied; 1]>,
}

/// Where what is known of callers is found, and what that takes.
#[derive(Clone, Copy)]
pub struct Known<'a, 't> {
    /// What is known.
    pub tenants: &'t Tenants,
    /// Tells the time, which is asked only if it matters.
    pub now: &'t dyn Fn() -> Timestamp,
    /// Where limits are that no rule has.
    pub room: &'a Room,
}

/// The rules that a request meets, by their numbers.
#[derive(Clone, Debug, Default)]
pub struct Matched {
    /// The domain's place in the ruleset.
    pub domain: usize,
    /// The rule behind each charge, in their order.
    pub applied: SmallVec<[Applied; 4]>,
    /// Rules that apply and do not limit.
    pub unlimited: SmallVec<[Applied; 1]>,
    /// Limits that no rule has: those that came with the request, and those of overrides.
    pub limits: Vec<Limit>,
    /// Whether something was claimed that is to be settled when the request has ended.
    pub needs_receipt: bool,
    /// How many limits on requests in flight did not apply, since the caller could not release what it would hold.
    pub not_held: u32,
    /// The caller, or its address, is blocked. Unless it is only marked, nothing is claimed.
    pub block: Option<Block>,
}

/// A rule that applies to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The rule's place in its domain.
    pub rule: u32,
    /// Where its limit is.
    pub terms: AppliedTerms,
    /// How that came to be the one that applies.
    pub by: ResolvedBy,
    /// What follows if there is no room; chosen by caller where the rule is enforced for a share of them.
    pub mode: Mode,
    /// The descriptors of the request that have to do with it, a bit for each.
    pub touches: u64,
}

/// Where the limit of an applied rule is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppliedTerms {
    /// The rule, for this tier.
    Tier(u16),
    /// The request: this place in [`Matched::limits`].
    Requested(u16),
    /// An override: this place in [`Matched::limits`].
    Override(u16),
}

impl Ruleset {
    /// What a request asks of the store.
    pub fn resolve<'a>(&'a self, request: &Request<'a>, id: ClaimId) -> Result<Resolved<'a>, RequestError> {
        self.resolved(request, id, None)
    }

    /// The same for a caller of whom something may be known.
    pub fn resolve_known<'a>(
        &'a self,
        request: &Request<'a>,
        id: ClaimId,
        known: &Known<'a, '_>,
    ) -> Result<Resolved<'a>, RequestError> {
        self.resolved(request, id, Some(known))
    }

    fn resolved<'a>(
        &'a self,
        request: &Request<'a>,
        id: ClaimId,
        known: Option<&Known<'a, '_>>,
    ) -> Result<Resolved<'a>, RequestError> {
        let mut claim = Claim { id, charges: SmallVec::new(), once: None, patience: None };
        let mut matched = Matched::default();
        self.resolve_into(request, known, &mut claim, &mut matched)?;
        let Matched { domain, applied, unlimited, .. } = matched;
        Ok(Resolved { domain: &self.domains()[domain], claim, applied, unlimited })
    }

    /// The same, added to an empty claim where it stands: a claim is large to move, and this is the path of every request.
    #[inline]
    pub fn resolve_into<'a>(
        &'a self,
        request: &Request<'a>,
        known: Option<&Known<'a, '_>>,
        claim: &mut Claim<'a>,
        matched: &mut Matched,
    ) -> Result<(), RequestError> {
        matched.domain = self.domain_of(request.domain)?;
        if request.once.is_some_and(|name| name.is_empty() || name.len() > Request::LONGEST_ONCE) {
            return Err(RequestError::BadOnce);
        }
        let is_named = request.claim.is_some();
        let holds = match request.ask {
            Ask::Exactly | Ask::UpTo => (is_named || request.receipt != ReceiptWish::Never).then_some(request.ask),
            Ask::Return { .. } => is_named.then_some(request.ask),
            // What it cost in the end is known when it has ended. Holds know no moments.
            Ask::Regardless => is_named.then_some(Ask::Return { taken_at: Timestamp::default() }),
            Ask::Credit => None,
            Ask::Reset => Some(Ask::Reset),
        };
        // What is returned under a claim's own name is what that claim holds.
        let rates = !(holds.is_some() && matches!(request.ask, Ask::Return { .. }));
        let domain = &self.domains()[matched.domain];
        Resolving { domain, claim, matched, ask: request.ask, holds, rates, known, found: None }.fill(request)
    }

    /// The place of a domain that a request names.
    fn domain_of(&self, name: Option<&str>) -> Result<usize, RequestError> {
        self.domain_number(name).ok_or(match name {
            Some(_) => RequestError::UnknownDomain,
            None => RequestError::NoDomain,
        })
    }

    /// The domain of this name, or the only one.
    ///
    /// # Errors
    /// If there is none, or none is named and there are several.
    pub fn domain(&self, name: Option<&str>) -> Result<&Domain, RequestError> {
        Ok(&self.domains()[self.domain_of(name)?])
    }
}

impl<'a> Resolved<'a> {
    /// The rule behind the charge at this place.
    pub fn rule(&self, charge: usize) -> Option<&'a Rule> {
        self.domain.rule(self.applied.get(charge)?)
    }
}

/// A claim on its way.
struct Resolving<'r, 'a> {
    domain: &'a Domain,
    claim: &'r mut Claim<'a>,
    matched: &'r mut Matched,
    ask: Ask,
    /// What is asked of limits on requests in flight, if they apply.
    holds: Option<Ask>,
    /// Whether the others do.
    rates: bool,
    known: Option<&'r Known<'a, 'r>>,
    /// What is known of the caller.
    found: Option<Found<'r>>,
}

impl<'a> Resolving<'_, 'a> {
    fn fill(&mut self, request: &Request<'a>) -> Result<(), RequestError> {
        let domain = self.domain;
        let mut attributes = Attributes::default();
        attributes.read(request, domain)?;
        let sought = self.known.map(|known| Sought::of(known.tenants, domain, domain.caller(&attributes)));
        let mut candidates = SmallVec::new();
        domain.find_candidates(&attributes, &mut candidates);
        self.found = self.known.zip(sought).and_then(|(known, sought)| Found::of(known.tenants, &sought, known.now));
        if let Some(found) = self.found.as_ref().filter(|_| self.ask == Ask::Exactly) {
            self.matched.block = found.block(domain.addresses.iter().filter_map(|address| attributes.get(*address)));
            if self.matched.block.is_some_and(|block| block.told != BlockedAs::Marked) {
                return Ok(());
            }
        }
        let tier = domain.tier(&attributes, self.found.as_ref());
        for &number in &candidates {
            let rule = &domain.rules[number as usize];
            if rule.misses(&attributes, rule.pivot).is_none() {
                self.listed(number, rule, &attributes, tier)?;
            }
        }
        if !domain.tree.is_empty() {
            self.tree(request, tier);
        }
        for (number, descriptor) in request.descriptors.iter().enumerate() {
            if let Some(limit) = descriptor.limit {
                self.requested(number, descriptor, limit, request, tier)?;
            }
        }
        match self.claim.charges.len() {
            ..=Claim::MOST_CHARGES => Ok(()),
            _ => Err(RequestError::TooMany { what: "limits that apply", most: Claim::MOST_CHARGES }),
        }
    }

    fn listed(
        &mut self,
        number: Id,
        rule: &'a Rule,
        attributes: &Attributes<'a>,
        tier: usize,
    ) -> Result<(), RequestError> {
        let Some((cap, by)) = self.cap(rule, tier) else { return Ok(()) };
        let Some(mut units) = rule.units(attributes, self.domain)? else { return Ok(()) };
        if cap.is_concurrency() {
            units = match self.holds {
                None => {
                    self.matched.not_held += u32::from(self.ask == Ask::Exactly);
                    return Ok(());
                }
                // Whatever the request costs: it is one request in flight that has ended.
                Some(Ask::Return { .. }) => 1,
                // It is one request in flight, or a look.
                Some(_) => attributes.cost.min(1),
            };
        }
        let mut values = SmallVec::new();
        for part in &rule.key {
            values.push(rule.key_value(part, attributes));
        }
        self.add(number, tier, attributes.touched_by(rule), (cap, by), values, units);
        Ok(())
    }

    fn tree(&mut self, request: &Request<'a>, tier: usize) {
        let domain = self.domain;
        let walks: SmallVec<[_; 4]> =
            request.descriptors.iter().map(|descriptor| domain.tree.walk(descriptor.entries)).collect();
        let mut replaced: SmallVec<[&str; 4]> = SmallVec::new();
        for (walk, descriptor) in walks.iter().zip(request.descriptors).filter(|(_, one)| one.limit.is_none()) {
            for met in domain.tree.met(walk, descriptor.entries) {
                if domain.rules[met.limit.rule as usize].mode != RuleMode::Off {
                    replaced.extend(met.limit.replaces.iter().map(|name| &**name));
                }
            }
        }
        for (number, (walk, descriptor)) in walks.iter().zip(request.descriptors).enumerate() {
            if descriptor.limit.is_some() {
                continue;
            }
            let units = descriptor.hits.unwrap_or(request.cost);
            for met in domain.tree.met(walk, descriptor.entries) {
                let rule = &domain.rules[met.limit.rule as usize];
                let is_replaced = met.limit.name.as_deref().is_some_and(|name| replaced.contains(&name));
                if is_replaced || rule.mode == RuleMode::Off {
                    continue;
                }
                if let Some(cap) = self.cap(rule, tier) {
                    self.add(met.limit.rule, tier, 1 << number, cap, met.values, units);
                }
            }
        }
    }

    /// A limit that came with the request.
    fn requested(
        &mut self,
        number: usize,
        descriptor: &Descriptor<'a>,
        limit: &'a Limit,
        request: &Request<'a>,
        tier: usize,
    ) -> Result<(), RequestError> {
        let requested = &self.domain.requested;
        let key = requested.key(descriptor, limit.period().span()).ok_or(RequestError::UnknownUnit)?;
        let on_failure = requested.rule.tiers[tier].on_failure;
        let units = descriptor.hits.unwrap_or(request.cost);
        if !self.rates {
            return Ok(());
        }
        self.claim.charges.push(Charge {
            key,
            limit,
            ask: self.ask,
            units,
            mode: Mode::Enforce,
            on_failure,
            strict: false,
        });
        let terms = AppliedTerms::Requested(self.matched.limits.len() as u16);
        let (by, mode) = (ResolvedBy::Request, Mode::Enforce);
        self.matched.applied.push(Applied { rule: u32::MAX, terms, by, mode, touches: 1 << number });
        self.matched.limits.push(limit.clone());
        Ok(())
    }

    /// What the caller is held to under a rule, and how that came to be.
    #[inline]
    fn cap(&self, rule: &'a Rule, tier: usize) -> Option<(CapRef<'a>, ResolvedBy)> {
        match self.known {
            Some(known) => rule.cap_under(tier, self.found.as_ref(), known.room),
            None => rule.own_cap(tier),
        }
    }

    #[inline]
    fn add(
        &mut self,
        number: Id,
        tier: usize,
        touches: u64,
        (cap, by): (CapRef<'a>, ResolvedBy),
        values: SmallVec<[Value<'a>; 2]>,
        units: u64,
    ) {
        let rule = &self.domain.rules[number as usize];
        let applied = |terms, mode| Applied { rule: number, terms, by, mode, touches };
        let CapRef::Limit { limit, scope } = cap else {
            self.matched.unlimited.push(applied(AppliedTerms::Tier(tier as u16), Mode::Enforce));
            return;
        };
        let ask = match self.holds {
            Some(ask) if cap.is_concurrency() => ask,
            _ if self.rates => self.ask,
            _ => return,
        };
        let units = match rule.ending.reserve_max {
            Some(most) if self.ask == Ask::Exactly => units.min(share(limit.quota(), most)),
            _ => units,
        };
        let key = Key::new(scope, values);
        let mode = rule.mode_for(&key);
        let (on_failure, strict) = (rule.tiers[tier].on_failure, rule.is_strict());
        self.matched.needs_receipt |= rule.needs_receipt(limit);
        self.claim.charges.push(Charge { key, limit, ask, units, mode, on_failure, strict });
        let terms = match by {
            ResolvedBy::Default | ResolvedBy::Tier => AppliedTerms::Tier(tier as u16),
            _ => {
                self.matched.limits.push(limit.clone());
                AppliedTerms::Override(self.matched.limits.len() as u16 - 1)
            }
        };
        self.matched.applied.push(applied(terms, mode));
    }
}

/// So many ten-thousandths of a quota, and a unit at least.
fn share(quota: u64, of_10_000: u16) -> u64 {
    let share = u128::from(quota) * u128::from(of_10_000) / 10_000;
    u64::try_from(share).unwrap_or(u64::MAX).max(1)
}

impl Domain {
    /// Who asks.
    #[inline]
    pub(crate) fn caller<'a>(&self, attributes: &Attributes<'a>) -> Option<&'a str> {
        attributes.get(self.caller?)
    }

    /// The place of the caller's tier: the one that it is known to have, else the one that the request names, else the usual one.
    pub(crate) fn tier(&self, attributes: &Attributes<'_>, found: Option<&Found<'_>>) -> usize {
        if let Some(digest) = found.and_then(Found::tier)
            && let Some(place) = self.tier_digests.iter().position(|known| *known == digest)
        {
            return place;
        }
        self.tier_from
            .and_then(|attribute| attributes.get(attribute))
            .and_then(|name| self.tiers.iter().position(|tier| tier.name == name))
            .unwrap_or(self.default_tier)
    }

    /// The rules of the list that may apply, in their order.
    pub(crate) fn find_candidates(&self, attributes: &Attributes<'_>, candidates: &mut SmallVec<[Id; 8]>) {
        self.index.find(attributes, candidates);
        if candidates.len() > 1 {
            candidates.sort_unstable();
            candidates.dedup();
        }
    }
}
