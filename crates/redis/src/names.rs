//! The keys of values in Redis.
//!
//! `tg:{DOMAIN/CALLER}` has a caller's buckets and plain windows. Values that can be large have their own keys with
//! the same hash tag, `tg:{DOMAIN/CALLER}:RULE/…`. A counter with a partition of its own has its complete identity
//! inside the hash tag. Everything that a request charges to one caller is therefore in one slot of a cluster.

use std::fmt::{self, Write};

use tollgate_core::key::HashSecret;
use tollgate_core::{Key, Scope, Value};

/// Builds keys with a prefix, so that several fleets can share a Redis.
#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: Box<str>,
    replicas: Box<str>,
}

/// Distinguishes counters that share a value: a hash of the part of the identity that is not in the value's key. It
/// must be the same on every server, so it has no secret; a caller that finds a collision merges only its own
/// counters.
pub(super) type CounterId = [u8; 16];

const PUBLIC: HashSecret = HashSecret(0x746f_6c6c_6761_7465, 0x7265_6469_732f_6964);

impl Names {
    pub(super) fn new(prefix: &str) -> Names {
        Names { prefix: prefix.into(), replicas: format!("{prefix}{{{}}}", Names::REPLICAS).into() }
    }

    /// The hash tag of the heartbeats.
    pub(super) const REPLICAS: &str = "replicas";

    /// The key of the heartbeats.
    pub(super) fn replicas(&self) -> &str {
        &self.replicas
    }

    /// The hash tag of the agreed values. Like that of the heartbeats it has no slash, unlike every counter's.
    pub(super) const AGREED: &str = "agreed";

    /// The key of an agreed value.
    pub(super) fn agreed(&self, name: &str) -> String {
        format!("{}{{{}}}:{name}", self.prefix, Names::AGREED)
    }

    /// The slot of a Redis Cluster in which a key's counter lives.
    pub(super) fn slot(&self, key: &Key<'_>) -> u16 {
        let mut tag = Crc16(0);
        write_tag(&mut tag, key);
        tag.0 % 16_384
    }

    /// The key that a probe writes.
    pub(super) fn probe(&self, tag: &str) -> String {
        format!("{}{{{tag}}}:probe", self.prefix)
    }

    /// The slot of a key with this hash tag.
    pub(super) fn slot_of(tag: &str) -> u16 {
        let mut crc = Crc16(0);
        let _ = crc.write_str(tag);
        crc.0 % 16_384
    }

    /// The key of the value in which a counter is packed with the others of its partition.
    pub(super) fn packed(&self, key: &Key<'_>) -> String {
        let mut name = String::with_capacity(self.prefix.len() + 64);
        name.push_str(&self.prefix);
        name.push('{');
        write_tag(&mut name, key);
        name.push('}');
        name
    }

    /// The key of a counter with a value of its own.
    pub(super) fn own(&self, key: &Key<'_>) -> String {
        self.with_suffix(key, ":")
    }

    /// The key of an idempotency record.
    pub(super) fn once(&self, key: &Key<'_>) -> String {
        self.with_suffix(key, ":once:")
    }

    /// The key of the record of a claim's part that lives with this counter and not with the claim's own record.
    pub(super) fn part(&self, key: &Key<'_>, name: u128) -> String {
        let mut part = self.packed(key);
        let _ = write!(part, ":part:{name:032x}");
        part
    }

    fn with_suffix(&self, key: &Key<'_>, suffix: &str) -> String {
        let mut name = self.packed(key);
        name.push_str(suffix);
        if key.caller().is_some() {
            write_scope(&mut name, within_domain(key.scope()));
            write_rest(&mut name, key);
        }
        name
    }
}

/// Distinguishes a counter from the others in its packed value.
pub(super) fn id(key: &Key<'_>) -> CounterId {
    // The partition is the value's own key.
    key.hash(PUBLIC, 0).to_le_bytes()
}

/// Whether the id depends on the request, which it does if a caller has many counters of the rule.
pub(super) fn varies(key: &Key<'_>) -> bool {
    key.caller().is_some() && key.values().len() > 1
}

/// Writing to a text or a checksum cannot fail.
fn write_tag(to: &mut impl Write, key: &Key<'_>) {
    let scope = key.scope();
    match key.caller() {
        Some(caller) => {
            let domain = scope.name().split('/').next().unwrap_or_default();
            write_scope(to, domain);
            write_value(to, caller);
        }
        None => {
            write_scope(to, scope.name());
            write_rest(to, key);
        }
    }
}

/// The values of a key except the caller's.
fn write_rest(to: &mut impl Write, key: &Key<'_>) {
    let caller = match key.scope().home() {
        tollgate_core::key::Home::Caller(index) => Some(index),
        tollgate_core::key::Home::Own => None,
    };
    for (at, value) in key.values().iter().enumerate() {
        if Some(at) != caller {
            write_value(to, *value);
        }
    }
}

/// Rule, algorithm and period: the scope's name has the domain before the first slash.
fn within_domain(scope: &Scope) -> &str {
    scope.name().split_once('/').map_or("", |(_, rest)| rest)
}

/// A scope's name is already escaped, except for braces and unreadable characters.
fn write_scope(to: &mut impl Write, name: &str) {
    escape(to, name, |c| matches!(c, '{' | '}') || is_unreadable(c));
}

/// A slash and the value. Each type of value has a distinct form.
fn write_value(to: &mut impl Write, value: Value<'_>) {
    let _ = to.write_char('/');
    let _ = match value {
        Value::Absent => to.write_char('-'),
        Value::Text(text) => {
            let mut rest = text.chars();
            match rest.next() {
                Some(first @ ('-' | '@' | '#')) => {
                    let _ = write!(to, "%{:02X}", u32::from(first));
                    write_text(to, rest.as_str());
                }
                _ => write_text(to, text),
            }
            Ok(())
        }
        Value::Bytes(bytes) => {
            let _ = to.write_char('#');
            bytes.iter().try_for_each(|byte| write!(to, "{byte:02x}"))
        }
        Value::Network { .. } => {
            let _ = to.write_char('@');
            write!(Escaped(to), "{value}")
        }
    };
}

fn write_text(to: &mut impl Write, text: &str) {
    escape(to, text, |c| matches!(c, '%' | '/' | '{' | '}') || is_unreadable(c));
}

fn is_unreadable(c: char) -> bool {
    c == ' ' || c.is_ascii_control()
}

/// All characters that must be escaped are ASCII.
fn escape(to: &mut impl Write, text: &str, must: impl Fn(char) -> bool) {
    let mut rest = text;
    while let Some(at) = rest.find(&must) {
        let (plain, from) = rest.split_at(at);
        let _ = to.write_str(plain);
        let mut chars = from.chars();
        if let Some(c) = chars.next() {
            let _ = write!(to, "%{:02X}", u32::from(c));
        }
        rest = chars.as_str();
    }
    let _ = to.write_str(rest);
}

struct Escaped<'w, W>(&'w mut W);

impl<W: Write> Write for Escaped<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        write_text(self.0, text);
        Ok(())
    }
}

/// CRC-16/XMODEM, the hash of Redis Cluster.
struct Crc16(u16);

const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut value = (at as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 0x8000 == 0 { value << 1 } else { (value << 1) ^ 0x1021 };
            bit += 1;
        }
        table[at] = value;
        at += 1;
    }
    table
};

impl Write for Crc16 {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 << 8) ^ CRC16[usize::from((self.0 >> 8) as u8 ^ byte)];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;
    use tollgate_core::key::Home;
    use tollgate_core::{Algorithm, Period, Span};

    use super::*;

    fn scope(domain: &str, rule: &str, home: Home) -> Scope {
        let period = Period::fixed(Span::from_secs(60)).unwrap();
        Scope::new(domain, rule, Algorithm::FixedWindow, &period, home)
    }

    fn names() -> Names {
        Names::new("tg:")
    }

    #[test]
    fn a_callers_counters_share_a_value_and_a_slot() {
        let (all, some) = (scope("api", "all", Home::Caller(0)), scope("api", "some", Home::Caller(1)));
        let all = Key::new(&all, smallvec![Value::Text("acme")]);
        let some = Key::new(&some, smallvec![Value::Text("bob"), Value::Text("acme")]);
        assert_eq!(names().packed(&all), "tg:{api/acme}");
        assert_eq!(names().packed(&some), "tg:{api/acme}");
        assert_eq!(names().own(&some), "tg:{api/acme}:some/fixed/60000000us/bob");
        assert_eq!(names().once(&all), "tg:{api/acme}:once:all/fixed/60000000us");
        assert_eq!(names().part(&some, 0xab), format!("tg:{{api/acme}}:part:{:032x}", 0xab));
        assert_eq!(names().slot(&all), names().slot(&some));
        assert_ne!(id(&all), id(&some));
    }

    #[test]
    fn a_counter_by_itself_is_called_by_all_that_names_it() {
        let everyone = scope("api", "every/one", Home::Own);
        assert_eq!(names().packed(&Key::new(&everyone, smallvec![])), "tg:{api/every%2Fone/fixed/60000000us}");
        let two = Key::new(&everyone, smallvec![Value::Text("a/b"), Value::Absent]);
        assert_eq!(names().packed(&two), "tg:{api/every%2Fone/fixed/60000000us/a%2Fb/-}");
    }

    #[test]
    fn no_two_values_have_one_name_and_none_ends_the_tag() {
        let scope = scope("{d}", "}r{", Home::Own);
        let values = [
            Value::Absent,
            Value::Text(""),
            Value::Text("-"),
            Value::Text("%2D"),
            Value::Text("@10.0.0.1"),
            Value::Text("#ff"),
            Value::bytes(&[0xff]),
            Value::network("::ffff:10.0.0.1".parse().unwrap(), 128),
            Value::network("2001:db8::".parse().unwrap(), 56),
            Value::Text("a}b{c d\r\n%/"),
            Value::Text("é"),
        ];
        let mut seen = std::collections::HashSet::new();
        for value in values {
            let name = names().packed(&Key::new(&scope, smallvec![value]));
            assert!(name.starts_with("tg:{%7Bd%7D/%7Dr%7B/fixed/60000000us/"), "{name}");
            assert_eq!((name.matches('{').count(), name.matches('}').count()), (1, 1), "{name}");
            assert!(!name.contains(char::is_whitespace), "{name}");
            assert!(seen.insert(name));
        }
    }

    #[test]
    fn slots_are_those_of_redis() {
        // CLUSTER KEYSLOT 123456789 and CLUSTER KEYSLOT api/acme
        let slot = |text: &str| {
            let mut crc = Crc16(0);
            let _ = crc.write_str(text);
            crc.0 % 16_384
        };
        assert_eq!(slot("123456789"), 12_739);
        assert_eq!(slot("foo"), 12_182);
        assert_eq!(slot("user1000"), 3_443);
    }
}
