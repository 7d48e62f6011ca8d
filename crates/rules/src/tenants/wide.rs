//! What holds for many callers: globs, emergencies, address ranges. Small, and copied whole when it changes.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;

use tollgate_core::Timestamp;

use super::held::{Limited, OverrideRef, Stage, selects, stage};
use super::{Block, ResolvedBy, Selector, WideCounts};
use crate::model::Network;
use crate::pattern::Pattern;

/// What holds for many callers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wide {
    /// The most specific first.
    quotas: Vec<WideQuota>,
    emergencies: Vec<(Box<str>, Limit)>,
    blocks: Vec<(u64, Pattern, Block)>,
    pub(super) ranges: Ranges,
}

#[derive(Clone, Debug)]
struct WideQuota {
    domain: u64,
    pattern: Pattern,
    stages: Vec<Stage>,
}

/// An emergency.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    /// 0 for all.
    pub(super) domain: u64,
    pub(super) callers: Pattern,
    pub(super) limit: Limited,
}

/// Address ranges, by the lengths of their prefixes.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges {
    /// The lengths that there are, the longest first.
    prefixes: Vec<u8>,
    blocks: HashMap<(u8, u128, u64), Block>,
}

impl Wide {
    pub(super) fn counts(&self) -> WideCounts {
        WideCounts {
            quotas: self.quotas.len(),
            emergencies: self.emergencies.len(),
            blocks: self.blocks.len(),
            ranges: self.ranges.blocks.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.quotas.is_empty() && self.emergencies.is_empty() && self.blocks.is_empty() && self.ranges.blocks.is_empty()
    }

    pub(super) fn set_quota(&mut self, domain: u64, pattern: Pattern, stages: Vec<Stage>) {
        self.quotas.retain(|quota| quota.domain != domain || quota.pattern != pattern);
        if !stages.is_empty() {
            self.quotas.push(WideQuota { domain, pattern, stages });
            self.quotas.sort_by_cached_key(|quota| rank(&quota.pattern));
        }
    }

    pub(super) fn set_emergency(&mut self, name: &str, limit: Option<Limit>) {
        self.emergencies.retain(|(known, _)| &**known != name);
        self.emergencies.extend(limit.map(|limit| (name.into(), limit)));
        self.emergencies.sort_by_cached_key(|(name, one)| (rank(&one.callers), name.clone()));
    }

    pub(super) fn set_block(&mut self, domain: u64, pattern: Pattern, block: Option<Block>) {
        self.blocks.retain(|(of, known, _)| *of != domain || *known != pattern);
        self.blocks.extend(block.map(|block| (domain, pattern, block)));
        self.blocks.sort_by_cached_key(|(_, pattern, _)| rank(pattern));
    }

    /// The emergency for a rule that goes by these names: that of the most specific callers, exact ones before globs.
    pub(super) fn emergency(
        &self,
        domain: u64,
        caller: Option<&str>,
        names: &[Selector],
        now: &dyn Fn() -> Timestamp,
    ) -> Option<OverrideRef<'_>> {
        let mut found = self.emergencies.iter().map(|(_, one)| one).filter(|one| {
            (one.domain == 0 || one.domain == domain)
                && (is_all(&one.callers) || caller.is_some_and(|caller| one.callers.matches(caller)))
                && selects(one.limit.selector, names)
                && one.limit.during.holds_at(now)
        });
        found.next().map(|one| one.limit.found())
    }

    /// The quotas of names like this one, the most specific first.
    pub(super) fn quotas<'w>(
        &'w self,
        domain: u64,
        caller: &str,
        now: &dyn Fn() -> Timestamp,
    ) -> impl Iterator<Item = (&'w Stage, ResolvedBy)> {
        let matching = self.quotas.iter().filter(move |quota| quota.domain == domain && quota.pattern.matches(caller));
        matching.filter_map(|quota| {
            let by = if is_all(&quota.pattern) { ResolvedBy::OverrideAll } else { ResolvedBy::OverrideGlob };
            Some((stage(&quota.stages, now)?, by))
        })
    }

    pub(super) fn block_of_caller(&self, domain: u64, caller: &str, now: &dyn Fn() -> Timestamp) -> Option<Block> {
        let mut found = self.blocks.iter().filter(|(of, pattern, _)| *of == domain && pattern.matches(caller));
        found.find(|(_, _, block)| block.during.holds_at(now)).map(|(_, _, block)| *block)
    }

    pub(super) fn block_of_address(&self, domain: u64, address: &str, now: &dyn Fn() -> Timestamp) -> Option<Block> {
        if self.ranges.blocks.is_empty() {
            return None;
        }
        let bits = bits(address.parse().ok()?);
        let ways = self.ranges.prefixes.iter().flat_map(|prefix| [(prefix, domain), (prefix, 0)]);
        let mut found = ways.filter_map(|(prefix, of)| self.ranges.blocks.get(&(*prefix, masked(bits, *prefix), of)));
        found.find(|block| block.during.holds_at(now)).copied()
    }
}

impl Ranges {
    pub(super) fn set(&mut self, domain: u64, network: Network, block: Option<Block>) {
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

/// IPv4 in its IPv6 form.
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

/// The more a pattern says, the smaller: an exact name says more than any glob. The same on every server, whatever came first.
fn rank(pattern: &Pattern) -> (Reverse<usize>, String) {
    let text = pattern.to_string();
    let said = match pattern {
        Pattern::Exact(_) => usize::MAX,
        _ => text.bytes().filter(|byte| *byte != b'*').count(),
    };
    (Reverse(said), text)
}
