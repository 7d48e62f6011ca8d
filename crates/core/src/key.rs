//! What names a counter, and where it lives.
//!
//! A key names domain, rule, algorithm, period and values. So a changed amount keeps the counter, and a changed period or
//! algorithm starts a new one: state is never reinterpreted.

use std::fmt::{self, Write as _};
use std::net::Ipv6Addr;

use siphasher::sip128::SipHasher13;
use smallvec::SmallVec;

use crate::calendar::CalendarUnit;
use crate::limit::{Algorithm, Period};

/// All of a key that is known before a request comes: made once for each rule when it is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    name: Box<str>,
    domain: Box<str>,
    rule: Box<str>,
    home: Home,
    digest: u128,
    domain_digest: u128,
}

/// Where the counters of a scope live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// With all others of one caller: the value at this place in the key.
    Caller(usize),
    /// Each by itself.
    Own,
}

/// One counter, as a request names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    scope: &'a Scope,
    values: SmallVec<[Value<'a>; 2]>,
}

/// The key of a keyed hash: who does not know it can't choose values that collide.
#[derive(Clone, Copy, Debug)]
pub struct Secret(pub u64, pub u64);

/// One value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value<'a> {
    /// An optional part that the request does not have. Not the same as an empty one.
    Absent,
    /// The text of an attribute.
    Text(&'a str),
    /// A value that is no text: made by [`Value::bytes`], so that no value has two forms.
    Bytes(&'a [u8]),
    /// All addresses that share the first `prefix` bits; the others are zero.
    Network {
        /// The network's address; IPv4 in its IPv6 form. In two words, so that a value is copied by words.
        address: [u64; 2],
        /// How many bits count.
        prefix: u8,
    },
}

/// A value that borrows nothing.
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
        /// How many bits count.
        prefix: u8,
    },
}

impl Scope {
    /// The scope of a rule's counters.
    pub fn new(domain: &str, rule: &str, algorithm: Algorithm, period: &Period, home: Home) -> Scope {
        Scope::named(domain, rule, &machine(algorithm, period), home)
    }

    /// The scope of records of claims that are settled once: `kind` is a text that no rule has.
    pub fn of_records(domain: &str, kind: &str, home: Home) -> Scope {
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
        }
    }

    /// Domain, rule, algorithm and period as one text that no other scope has.
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

    /// Where its counters live.
    pub fn home(&self) -> Home {
        self.home
    }

    /// A digest of the domain's name.
    pub fn domain_digest(&self) -> u128 {
        self.domain_digest
    }

    /// A digest that is short enough for receipts, and long enough to tell all rules of a fleet apart.
    pub fn short(&self) -> u64 {
        self.digest as u64
    }

    /// A digest of the name: what a hash of the key starts from.
    pub fn digest(&self) -> u128 {
        self.digest
    }
}

impl<'a> Key<'a> {
    /// The counter of these values.
    pub fn new(scope: &'a Scope, values: SmallVec<[Value<'a>; 2]>) -> Key<'a> {
        Key { scope, values }
    }

    /// What was known before the request.
    pub fn scope(&self) -> &'a Scope {
        self.scope
    }

    /// What the request brought.
    pub fn values(&self) -> &[Value<'a>] {
        &self.values
    }

    /// The caller in whose partition this counter lives, if it has one.
    pub fn caller(&self) -> Option<Value<'a>> {
        match self.scope.home {
            Home::Caller(place) => self.values.get(place).copied(),
            Home::Own => None,
        }
    }

    /// Whether both counters live in one caller's partition.
    pub fn is_beside(&self, other: &Key<'_>) -> bool {
        let caller = self.caller();
        caller.is_some() && caller == other.caller() && self.scope.domain_digest == other.scope.domain_digest
    }

    /// A keyed hash of the partition in which the counter lives.
    pub fn partition(&self, secret: Secret) -> u128 {
        match self.caller() {
            Some(caller) => caller.digest(secret, self.scope.domain_digest),
            // Else it would be the scope's digest, which `whole` would take away again. No list of values begins like this.
            None if self.values.is_empty() => Value::Absent.digest(secret, !self.scope.digest),
            None => self.values.iter().fold(self.scope.digest, |before, value| value.digest(secret, before)),
        }
    }

    /// A keyed hash of the whole key, given that of its partition.
    ///
    /// The partition is a keyed hash, which callers can't steer, and the digest is the rule's: their combination collides no
    /// more often than a hash of both would.
    pub fn whole(&self, secret: Secret, partition: u128) -> u128 {
        let begun = partition ^ self.scope.digest;
        match self.scope.home {
            Home::Own => begun,
            Home::Caller(place) => {
                let rest = self.values.iter().enumerate().filter(|(at, _)| *at != place);
                rest.fold(begun, |before, (_, value)| value.digest(secret, before))
            }
        }
    }
}

impl<'a> Value<'a> {
    /// Any bytes; those that are a text are that text.
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

    /// A keyed hash of this value, after what came before it.
    pub fn digest(&self, secret: Secret, before: u128) -> u128 {
        let octets;
        let (kind, bytes): (u64, &[u8]) = match self {
            Value::Absent => (0, &[]),
            Value::Text(text) => (1, text.as_bytes()),
            // No text has these bytes, so that texts and bytes need not be told apart.
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

impl OwnedValue {
    /// The value, borrowed.
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

/// The part of a name that says how the state is to be read.
fn machine(algorithm: Algorithm, period: &Period) -> String {
    let mut name = match algorithm {
        Algorithm::Bucket { .. } => "bucket".to_owned(),
        Algorithm::FixedWindow => "fixed".to_owned(),
        Algorithm::SlidingWindow { sub_windows } => format!("sliding{sub_windows}"),
        Algorithm::SlidingLog => "log".to_owned(),
        // How long a hold lasts is written in each hold.
        Algorithm::Concurrency => return "holds".to_owned(),
    };
    name.push('/');
    // Writing to a String can't fail.
    let _ = match period.as_calendar() {
        None => write!(name, "{}us", period.span().as_micros()),
        Some(calendar) => match calendar.unit() {
            CalendarUnit::Day => write!(name, "day in {}", calendar.zone()),
            CalendarUnit::Week => write!(name, "week in {}", calendar.zone()),
            CalendarUnit::Month { from_day } => write!(name, "month from {from_day} in {}", calendar.zone()),
            CalendarUnit::Year => write!(name, "year in {}", calendar.zone()),
        },
    };
    name
}

/// Writes a part of a name so that the separators in it can't be taken for ours.
fn escape(name: &mut String, part: &str) {
    for c in part.chars() {
        match c {
            '%' => name.push_str("%25"),
            '/' => name.push_str("%2F"),
            _ => name.push(c),
        }
    }
}

/// Names come from operators, not from callers, so this hash needs no secret; it must be the same everywhere.
fn digest(bytes: &[u8]) -> u128 {
    SipHasher13::new_with_keys(0x746f_6c6c_6761_7465, 0x7363_6f70_652f_7631).hash(bytes).as_u128()
}
