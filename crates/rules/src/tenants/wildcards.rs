//! Settings that apply to several callers: globs, emergencies, address ranges. Few, and copied as a whole when they
//! change.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU64;

use tollgate_core::{KeySecret, Timestamp, Value};

use super::entry::{OverrideRef, StoredOverride, StoredStage, selects, stage};
use super::{Block, DifferenceCount, ResolvedBy, Selector, TenantsDifference, WildcardCounts};
use crate::address::parse_address;
use crate::model::Network;
use crate::pattern::Pattern;

/// Settings that apply to several callers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wildcards {
    /// The most specific first.
    quotas: Vec<WildcardQuota>,
    emergencies: Vec<(EmergencyName, EmergencyLimit)>,
    blocks: Vec<(NonZeroU64, Pattern, Block)>,
    pub(super) ranges: Ranges,
    pub(super) masked: MaskedCallers,
}

#[derive(Clone, Debug)]
struct WildcardQuota {
    domain: NonZeroU64,
    pattern: Pattern,
    stages: Vec<StoredStage>,
}

/// The identity of an emergency. A pair: joined to one text, `a/b` and `c` would equal `a` and `b/c`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct EmergencyName {
    /// `None` for all domains.
    domain: Option<Box<str>>,
    name: Box<str>,
}

/// An emergency.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EmergencyLimit {
    /// `None` for all domains.
    pub(super) domain: Option<NonZeroU64>,
    pub(super) callers: Pattern,
    pub(super) limit: StoredOverride,
}

/// Address ranges, by the lengths of their prefixes.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges {
    /// The existing lengths, the longest first.
    prefixes: Vec<u8>,
    blocks: HashMap<(u8, u128, Option<NonZeroU64>), Block>,
}

/// Blocks of callers whose names are private.
#[derive(Clone, Debug, Default)]
pub(super) struct MaskedCallers {
    pub(super) secret: Option<KeySecret>,
    /// By domain and the digest of the name.
    blocks: HashMap<(NonZeroU64, u128), Block>,
}

impl MaskedCallers {
    pub(super) fn set(&mut self, domain: NonZeroU64, digest: u128, block: Option<Block>) {
        match block {
            Some(block) => self.blocks.insert((domain, digest), block),
            None => self.blocks.remove(&(domain, digest)),
        };
    }

    fn find(&self, domain: NonZeroU64, caller: &str, now: &dyn Fn() -> Timestamp) -> Option<Block> {
        if self.blocks.is_empty() {
            return None;
        }
        let digest = self.secret?.digest(Value::Text(caller));
        self.blocks.get(&(domain, digest)).filter(|block| block.during.holds_at(now)).copied()
    }
}

impl Wildcards {
    pub(super) fn counts(&self) -> WildcardCounts {
        WildcardCounts {
            quotas: self.quotas.len(),
            emergencies: self.emergencies.len(),
            blocks: self.blocks.len(),
            ranges: self.ranges.blocks.len(),
            masked: self.masked.blocks.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.quotas.is_empty()
            && self.emergencies.is_empty()
            && self.blocks.is_empty()
            && self.ranges.blocks.is_empty()
            && self.masked.blocks.is_empty()
    }

    /// How many of them differ from those of another state.
    pub(super) fn difference(&self, found: &Wildcards) -> TenantsDifference {
        TenantsDifference {
            quotas: DifferenceCount::between(self.keyed_quotas(), found.keyed_quotas()),
            emergencies: DifferenceCount::between(self.keyed_emergencies(), found.keyed_emergencies()),
            blocks: DifferenceCount::between(self.keyed_blocks(), found.keyed_blocks())
                .plus(DifferenceCount::between(&self.ranges.blocks, &found.ranges.blocks))
                .plus(DifferenceCount::between(&self.masked.blocks, &found.masked.blocks)),
        }
    }

    fn keyed_quotas(&self) -> impl Iterator<Item = ((NonZeroU64, &Pattern), &[StoredStage])> {
        self.quotas.iter().map(|quota| ((quota.domain, &quota.pattern), &quota.stages[..]))
    }

    fn keyed_emergencies(&self) -> impl Iterator<Item = (&EmergencyName, &EmergencyLimit)> {
        self.emergencies.iter().map(|(name, limit)| (name, limit))
    }

    fn keyed_blocks(&self) -> impl Iterator<Item = ((NonZeroU64, &Pattern), &Block)> {
        self.blocks.iter().map(|(domain, pattern, block)| ((*domain, pattern), block))
    }

    pub(super) fn set_quota(&mut self, domain: NonZeroU64, pattern: Pattern, stages: Vec<StoredStage>) {
        self.quotas.retain(|quota| quota.domain != domain || quota.pattern != pattern);
        if !stages.is_empty() {
            self.quotas.push(WildcardQuota { domain, pattern, stages });
            self.quotas.sort_by_cached_key(|quota| rank(&quota.pattern));
        }
    }

    pub(super) fn set_emergency(&mut self, domain: Option<&str>, name: &str, limit: Option<EmergencyLimit>) {
        let name = EmergencyName { domain: domain.map(Into::into), name: name.into() };
        self.emergencies.retain(|(known, _)| *known != name);
        self.emergencies.extend(limit.map(|limit| (name, limit)));
        self.emergencies.sort_by_cached_key(|(name, one)| (rank(&one.callers), name.clone()));
    }

    pub(super) fn set_block(&mut self, domain: NonZeroU64, pattern: Pattern, block: Option<Block>) {
        self.blocks.retain(|(of, known, _)| *of != domain || *known != pattern);
        self.blocks.extend(block.map(|block| (domain, pattern, block)));
        self.blocks.sort_by_cached_key(|(_, pattern, _)| rank(pattern));
    }

    /// The emergency for a rule with these selectors: the one for the most specific callers, exact ones before globs.
    pub(super) fn emergency(
        &self,
        domain: NonZeroU64,
        caller: Option<&str>,
        names: &[Selector],
        now: &dyn Fn() -> Timestamp,
    ) -> Option<OverrideRef<'_>> {
        let mut found = self.emergencies.iter().map(|(_, one)| one).filter(|one| {
            one.domain.is_none_or(|of| of == domain)
                && (is_all(&one.callers) || caller.is_some_and(|caller| one.callers.matches(caller)))
                && selects(one.limit.selector, names)
                && one.limit.during.holds_at(now)
        });
        found.next().map(|one| one.limit.to_ref())
    }

    /// The quotas that match a caller, the most specific first.
    pub(super) fn quotas<'w>(
        &'w self,
        domain: NonZeroU64,
        caller: &str,
        now: &dyn Fn() -> Timestamp,
    ) -> impl Iterator<Item = (&'w StoredStage, ResolvedBy)> {
        let matching = self.quotas.iter().filter(move |quota| quota.domain == domain && quota.pattern.matches(caller));
        matching.filter_map(|quota| {
            let by = if is_all(&quota.pattern) { ResolvedBy::OverrideAll } else { ResolvedBy::OverrideGlob };
            Some((stage(&quota.stages, now)?, by))
        })
    }

    pub(super) fn block_of_caller(
        &self,
        domain: NonZeroU64,
        caller: &str,
        now: &dyn Fn() -> Timestamp,
    ) -> Option<Block> {
        let mut found = self.blocks.iter().filter(|(of, pattern, _)| *of == domain && pattern.matches(caller));
        let by_name = found.find(|(_, _, block)| block.during.holds_at(now)).map(|(_, _, block)| *block);
        by_name.or_else(|| self.masked.find(domain, caller, now))
    }

    pub(super) fn block_of_address(
        &self,
        domain: NonZeroU64,
        address: &str,
        now: &dyn Fn() -> Timestamp,
    ) -> Option<Block> {
        if self.ranges.blocks.is_empty() {
            return None;
        }
        let bits = bits(parse_address(address)?);
        let keys = self.ranges.prefixes.iter().flat_map(|prefix| [(prefix, Some(domain)), (prefix, None)]);
        let mut found = keys.filter_map(|(prefix, of)| self.ranges.blocks.get(&(*prefix, masked(bits, *prefix), of)));
        found.find(|block| block.during.holds_at(now)).copied()
    }
}

impl Ranges {
    pub(super) fn set(&mut self, domain: Option<NonZeroU64>, network: Network, block: Option<Block>) {
        let prefix = network.prefix + if network.address.is_ipv4() { 96 } else { 0 };
        let key = (prefix, masked(bits(network.address), prefix), domain);
        match block {
            Some(block) => self.blocks.insert(key, block),
            None => self.blocks.remove(&key),
        };
        self.prefixes = self.blocks.keys().map(|(prefix, ..)| *prefix).collect();
        self.prefixes.sort_unstable_by(|one, other| other.cmp(one));
        self.prefixes.dedup();
    }
}

/// IPv4 in its IPv6-mapped form.
fn bits(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn masked(bits: u128, prefix: u8) -> u128 {
    bits & u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0)
}

fn is_all(pattern: &Pattern) -> bool {
    matches!(pattern, Pattern::Prefix(prefix) if prefix.is_empty())
}

/// The more specific a pattern, the smaller its rank: an exact name ranks before any glob. The same on every server,
/// in whatever order the records arrive.
fn rank(pattern: &Pattern) -> (Reverse<usize>, String) {
    let text = pattern.to_string();
    let literal_chars = match pattern {
        Pattern::Exact(_) => usize::MAX,
        _ => text.bytes().filter(|byte| *byte != b'*').count(),
    };
    (Reverse(literal_chars), text)
}
