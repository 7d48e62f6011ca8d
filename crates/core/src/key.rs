//! Keys: the identity of a counter and the partition in which it lives.
//!
//! A key consists of domain, rule, algorithm, period and values. A changed amount therefore continues the same
//! counter, and a changed period or algorithm starts a new one: a state is never reinterpreted.

use std::fmt::{self, Write as _};
use std::net::Ipv6Addr;
use std::sync::Arc;

use siphasher::sip128::SipHasher13;
use smallvec::SmallVec;

use crate::calendar::CalendarUnit;
use crate::limit::{Algorithm, Period};
use crate::region::{GlobalTerms, RegionId};

/// The part of a key that does not depend on the request. Built once for each rule at load time. Clones share its texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    name: Arc<str>,
    domain: Arc<str>,
    rule: Arc<str>,
    home: Home,
    digest: u128,
    domain_digest: u128,
    private: PrivateValues,
    global: Option<GlobalTerms>,
    is_owned: bool,
}

/// Which values of a key are private: names and logs contain digests of them. A bit for each index. It identifies
/// nothing: keys and their hashes do not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrivateValues(u64);

/// The partition in which the counters of a scope live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// The partition of the caller, together with the caller's other counters. The index of the caller's value in the
    /// key.
    Caller(usize),
    /// A partition for each counter.
    Own,
}

/// The identity of one counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    scope: &'a Scope,
    values: SmallVec<[Value<'a>; 2]>,
    region: RegionId,
}

/// A [`Key`] that owns its data, for claims that outlive their requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedKey {
    scope: Scope,
    values: SmallVec<[OwnedValue; 2]>,
    region: RegionId,
}

/// The secret of a keyed hash. Without it nobody can choose values that collide.
#[derive(Clone, Copy, Debug)]
pub struct HashSecret(pub u64, pub u64);

/// One value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value<'a> {
    /// An optional part that the request does not have. Distinct from an empty text.
    Absent,
    /// The text of an attribute.
    Text(&'a str),
    /// A value that is not valid UTF-8. Built by [`Value::bytes`], so that every value has exactly one
    /// representation.
    Bytes(&'a [u8]),
    /// All addresses that share the first `prefix` bits. The other bits are zero.
    Network {
        /// The network's address; IPv4 in its IPv6-mapped form. Two words, so that a value is copied by words.
        address: [u64; 2],
        /// The number of significant bits.
        prefix: u8,
    },
}

/// A [`Value`] that owns its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedValue {
    /// As [`Value::Absent`].
    Absent,
    /// As [`Value::Text`].
    Text(Box<str>),
    /// As [`Value::Bytes`].
    Bytes(Box<[u8]>),
    /// As [`Value::Network`].
    Network {
        /// The network's address.
        address: [u64; 2],
        /// The number of significant bits.
        prefix: u8,
    },
}

/// Not a secret: every server must find the same home.
const HOMES: HashSecret = HashSecret(0x746f_6c6c_6761_7465, 0x686f_6d65_732f_7631);

impl Scope {
    /// The scope of a rule's counters.
    pub fn new(domain: &str, rule: &str, algorithm: Algorithm, period: &Period, home: Home) -> Scope {
        Scope::named(domain, rule, &machine(algorithm, period), home)
    }

    /// The scope of idempotency records. `kind` is a text that no rule can have as its name.
    pub fn for_records(domain: &str, kind: &str, home: Home) -> Scope {
        Scope::named(domain, kind, "record", home)
    }

    fn named(domain: &str, rule: &str, machine: &str, home: Home) -> Scope {
        let mut name = String::with_capacity(domain.len() + rule.len() + machine.len() + 2);
        for part in [domain, rule] {
            escape(&mut name, part);
            name.push('/');
        }
        name.push_str(machine);
        Scope {
            digest: digest(name.as_bytes()),
            domain_digest: digest(domain.as_bytes()),
            name: name.into(),
            domain: domain.into(),
            rule: rule.into(),
            home,
            private: PrivateValues::default(),
            global: None,
            is_owned: false,
        }
    }

    /// The same scope with private values.
    pub fn with_private(self, private: PrivateValues) -> Scope {
        Scope { private, ..self }
    }

    /// The same scope, of counters whose units are debited in other regions. It identifies nothing.
    pub fn with_global(self, global: Option<GlobalTerms>) -> Scope {
        Scope { global, ..self }
    }

    /// Domain, rule, algorithm and period as one text. Unique for each scope.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The domain.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// The rule.
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// The partition of its counters.
    pub fn home(&self) -> Home {
        self.home
    }

    /// Which values of its keys are private.
    pub fn private(&self) -> PrivateValues {
        self.private
    }

    /// The same scope, of counters of which each is in one region, which the others call. It identifies nothing.
    pub fn with_owner(self, is_owned: bool) -> Scope {
        Scope { is_owned, ..self }
    }

    /// Whether each of its counters is in one region, which the others call.
    pub fn is_owned(&self) -> bool {
        self.is_owned
    }

    /// If units of its counters are debited in other regions: on which terms.
    #[inline]
    pub fn global(&self) -> Option<GlobalTerms> {
        self.global
    }

    /// A digest of the domain's name.
    pub fn domain_digest(&self) -> u128 {
        self.domain_digest
    }

    /// A digest that is short enough for receipts, and long enough to distinguish all rules of a fleet.
    pub fn short(&self) -> u64 {
        self.digest as u64
    }

    /// A digest of the name. The hash of a key starts with it.
    pub fn digest(&self) -> u128 {
        self.digest
    }
}

impl PrivateValues {
    /// The values with an odd index, where a key alternates names and values.
    pub const ODD: PrivateValues = PrivateValues(0xaaaa_aaaa_aaaa_aaaa);

    /// Whether no value is private.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the value at this index is private. Beyond the last bit, all are as the last.
    pub fn contains(self, index: usize) -> bool {
        self.0 >> index.min(63) & 1 == 1
    }
}

impl FromIterator<bool> for PrivateValues {
    /// Whether each value, in order, is private.
    fn from_iter<I: IntoIterator<Item = bool>>(values: I) -> PrivateValues {
        let bits = values.into_iter().enumerate().filter(|(_, is_private)| *is_private);
        PrivateValues(bits.fold(0, |all, (index, _)| all | 1 << index.min(63)))
    }
}

impl<'a> Key<'a> {
    /// The counter of these values.
    pub fn new(scope: &'a Scope, values: SmallVec<[Value<'a>; 2]>) -> Key<'a> {
        Key { scope, values, region: RegionId::HERE }
    }

    /// The counter of the same name in a region. Counters are called the same everywhere: no hash of a key depends on
    /// its region.
    #[must_use]
    pub fn in_region(self, region: RegionId) -> Key<'a> {
        Key { region, ..self }
    }

    /// The region in whose store the counter is.
    #[inline]
    pub fn region(&self) -> RegionId {
        self.region
    }

    /// The part that does not depend on the request.
    pub fn scope(&self) -> &'a Scope {
        self.scope
    }

    /// The part that comes from the request.
    pub fn values(&self) -> &[Value<'a>] {
        &self.values
    }

    /// The value of the caller in whose partition the counter lives, if any.
    #[inline]
    pub fn caller(&self) -> Option<Value<'a>> {
        match self.scope.home {
            Home::Caller(place) => self.values.get(place).copied(),
            Home::Own => None,
        }
    }

    /// Whether both counters live in the partition of the same caller, in the same region.
    pub fn shares_partition_with(&self, other: &Key<'_>) -> bool {
        let caller = self.caller();
        caller.is_some()
            && caller == other.caller()
            && self.scope.domain_digest == other.scope.domain_digest
            && self.region == other.region
    }

    /// A keyed hash of the counter's partition.
    #[inline]
    pub fn partition(&self, secret: HashSecret) -> u128 {
        match self.caller() {
            Some(caller) => caller.digest(secret, self.scope.domain_digest),
            // With an empty fold the result would be the scope's digest, which `hash` would cancel out again. No list
            // of values begins like this.
            None if self.values.is_empty() => Value::Absent.digest(secret, !self.scope.digest),
            None => self.values.iter().fold(self.scope.digest, |before, value| value.digest(secret, before)),
        }
    }

    /// A hash of the counter's partition that is the same on every server, to find the region that owns it.
    pub fn home_hash(&self) -> u128 {
        self.partition(HOMES)
    }

    /// A keyed hash of the whole key, given the hash of its partition. It does not depend on the region.
    ///
    /// The partition is a keyed hash, which callers cannot influence, and the digest is the rule's. Their combination
    /// collides no more often than a hash of both would.
    #[inline]
    pub fn hash(&self, secret: HashSecret, partition: u128) -> u128 {
        let begun = partition ^ self.scope.digest;
        match self.scope.home {
            Home::Own => begun,
            // The caller's value is in the partition's hash.
            Home::Caller(_) if self.values.len() == 1 => begun,
            Home::Caller(place) => {
                let rest = self.values.iter().enumerate().filter(|(at, _)| *at != place);
                rest.fold(begun, |before, (_, value)| value.digest(secret, before))
            }
        }
    }

    /// The same for tables of one process, in which counters of several regions are.
    #[inline]
    pub fn local_hash(&self, secret: HashSecret, partition: u128) -> u128 {
        // Hashes are random, so another region's key is as unlikely to collide as any other key.
        self.hash(secret, partition) ^ u128::from(self.region.number()) << 64
    }
}

impl<'a> Value<'a> {
    /// A value of any bytes. Valid UTF-8 becomes [`Value::Text`].
    pub fn bytes(bytes: &'a [u8]) -> Value<'a> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Value::Text(text),
            Err(_) => Value::Bytes(bytes),
        }
    }

    /// The network of an address.
    pub fn network(address: Ipv6Addr, prefix: u8) -> Value<'static> {
        let prefix = prefix.min(128);
        let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
        let bits = address.to_bits() & mask;
        Value::Network { address: [(bits >> 64) as u64, bits as u64], prefix }
    }

    /// A keyed hash of this value, chained to the hash of the values before it.
    #[inline]
    pub fn digest(&self, secret: HashSecret, before: u128) -> u128 {
        let octets;
        let (kind, bytes): (u64, &[u8]) = match self {
            Value::Absent => (0, &[]),
            Value::Text(text) => (1, text.as_bytes()),
            // No text has these bytes, so texts and other bytes need no distinction.
            Value::Bytes(bytes) => (1, bytes),
            Value::Network { address, prefix } => {
                octets = joined(*address).octets();
                (2 + u64::from(*prefix), &octets)
            }
        };
        let (high, low) = ((before >> 64) as u64, before as u64);
        SipHasher13::new_with_keys(secret.0 ^ low, secret.1 ^ high ^ kind).hash(bytes).as_u128()
    }
}

impl OwnedKey {
    /// The region in whose store the counter is.
    pub fn region(&self) -> RegionId {
        self.region
    }

    /// The borrowed form.
    pub fn key(&self) -> Key<'_> {
        Key::new(&self.scope, self.values.iter().map(OwnedValue::value).collect()).in_region(self.region)
    }
}

impl From<&Key<'_>> for OwnedKey {
    fn from(key: &Key<'_>) -> OwnedKey {
        let values = key.values.iter().map(|value| OwnedValue::from(*value)).collect();
        OwnedKey { scope: key.scope.clone(), values, region: key.region }
    }
}

impl OwnedValue {
    /// The borrowed form.
    pub fn value(&self) -> Value<'_> {
        match self {
            OwnedValue::Absent => Value::Absent,
            OwnedValue::Text(text) => Value::Text(text),
            OwnedValue::Bytes(bytes) => Value::Bytes(bytes),
            OwnedValue::Network { address, prefix } => Value::Network { address: *address, prefix: *prefix },
        }
    }
}

impl From<Value<'_>> for OwnedValue {
    fn from(value: Value<'_>) -> OwnedValue {
        match value {
            Value::Absent => OwnedValue::Absent,
            Value::Text(text) => OwnedValue::Text(text.into()),
            Value::Bytes(bytes) => OwnedValue::Bytes(bytes.into()),
            Value::Network { address, prefix } => OwnedValue::Network { address, prefix },
        }
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Absent => Ok(()),
            Value::Text(text) => f.write_str(text),
            Value::Bytes(bytes) => write!(f, "{}", bytes.escape_ascii()),
            Value::Network { address, prefix } => match (joined(*address).to_ipv4_mapped(), prefix) {
                (Some(address), 128) => write!(f, "{address}"),
                _ => write!(f, "{}/{prefix}", joined(*address)),
            },
        }
    }
}

fn joined([high, low]: [u64; 2]) -> Ipv6Addr {
    Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low))
}

/// The part of a scope's name that determines the format of its states.
fn machine(algorithm: Algorithm, period: &Period) -> String {
    let mut name = match algorithm {
        Algorithm::Bucket { .. } => "bucket".to_owned(),
        Algorithm::FixedWindow => "fixed".to_owned(),
        Algorithm::SlidingWindow { sub_windows } => format!("sliding{sub_windows}"),
        Algorithm::SlidingLog => "log".to_owned(),
        // Each hold contains its own expiry.
        Algorithm::Concurrency => return "holds".to_owned(),
    };
    name.push('/');
    // Writing to a String can't fail.
    let _ = match period.as_calendar() {
        None => write!(name, "{}us", period.span().as_micros()),
        Some(calendar) => match calendar.unit() {
            CalendarUnit::Month { from_day } => write!(name, "month from {from_day} in {}", calendar.zone()),
            unit => write!(name, "{} in {}", unit.name(), calendar.zone()),
        },
    };
    name
}

/// Writes a part of a name with the separators in it escaped.
fn escape(name: &mut String, part: &str) {
    for c in part.chars() {
        match c {
            '%' => name.push_str("%25"),
            '/' => name.push_str("%2F"),
            _ => name.push(c),
        }
    }
}

/// Names come from operators, not from callers, so this hash needs no secret. It must be the same on every server.
fn digest(bytes: &[u8]) -> u128 {
    SipHasher13::new_with_keys(0x746f_6c6c_6761_7465, 0x7363_6f70_652f_7631).hash(bytes).as_u128()
}
