//! The keys of values in Redis.
//!
//! `tg:{DOMAIN/CALLER}` has a caller's buckets and plain windows. Values that can be large have their own keys with
//! the same hash tag, `tg:{DOMAIN/CALLER}:RULE/…`. A counter with a partition of its own has its complete identity
//! inside the hash tag. Everything that a request charges to one caller is therefore in one slot of a cluster.
//!
//! A private value is replaced by its digest, also in the hash tag, unless the fleet counts under names in clear.

use std::fmt::{self, Write};

use tollgate_core::key::{HashSecret, Home};
use tollgate_core::{Key, Scope, Value};
use tollgate_store::NameForm;

/// Builds keys with a prefix, so that several fleets can share a Redis.
#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: Box<str>,
    replicas: Box<str>,
    current_replicas: Box<str>,
    form: NameForm,
    /// Whether the form is that of the fleet. Otherwise only keys without private values have names.
    is_agreed: bool,
    /// The secret of the ids of counters with private values.
    private_ids: HashSecret,
}

/// Distinguishes counters that share a value: a hash of the part of the identity that is not in the value's key. It
/// must be the same on every server, so it has no secret, unless values are private; a caller that finds a collision
/// merges only its own counters.
pub(super) type CounterId = [u8; 16];

const PUBLIC: HashSecret = HashSecret(0x746f_6c6c_6761_7465, 0x7265_6469_732f_6964);

impl Names {
    pub(super) fn new(prefix: &str) -> Names {
        Names {
            prefix: prefix.into(),
            replicas: format!("{prefix}{{{}}}", Names::REPLICAS).into(),
            current_replicas: format!("{prefix}{{{}}}:v2", Names::REPLICAS).into(),
            form: NameForm::Clear,
            is_agreed: false,
            private_ids: PUBLIC,
        }
    }

    /// The same keys, with private values in this form.
    pub(super) fn with_form(&self, form: NameForm) -> Names {
        let private_ids = match form {
            NameForm::Clear => PUBLIC,
            NameForm::Hashed(secret) => secret.hash_secret(),
        };
        Names { form, is_agreed: true, private_ids, ..self.clone() }
    }

    /// The form of private values, if it is that of the fleet.
    pub(super) fn form(&self) -> Option<NameForm> {
        self.is_agreed.then_some(self.form)
    }

    /// The hash tag of the heartbeats.
    pub(super) const REPLICAS: &str = "replicas";

    /// The key of the heartbeats.
    pub(super) fn replicas(&self) -> &str {
        &self.replicas
    }

    /// The key of the heartbeats of servers that agree on the form of names. Earlier versions do not have it.
    pub(super) fn current_replicas(&self) -> &str {
        &self.current_replicas
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
        self.write_tag(&mut tag, key);
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
        self.write_tag(&mut name, key);
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
            self.write_rest(&mut name, key);
        }
        name
    }

    /// Distinguishes a counter from the others in its packed value.
    pub(super) fn id(&self, key: &Key<'_>) -> CounterId {
        // The partition is the value's own key.
        key.hash(self.id_secret(key), 0).to_le_bytes()
    }

    /// Identifies a counter among all counters of the fleet.
    pub(super) fn digest(&self, key: &Key<'_>) -> u128 {
        let secret = self.id_secret(key);
        key.hash(secret, key.partition(secret))
    }

    fn id_secret(&self, key: &Key<'_>) -> HashSecret {
        if key.scope().private().is_empty() { PUBLIC } else { self.private_ids }
    }

    /// Writing to a text or a checksum cannot fail.
    fn write_tag(&self, to: &mut impl Write, key: &Key<'_>) {
        let scope = key.scope();
        match (scope.home(), key.caller()) {
            (Home::Caller(index), Some(caller)) => {
                let domain = scope.name().split('/').next().unwrap_or_default();
                write_scope(to, domain);
                self.write_value(to, scope, index, caller);
            }
            _ => {
                write_scope(to, scope.name());
                self.write_rest(to, key);
            }
        }
    }

    /// The values of a key except the caller's.
    fn write_rest(&self, to: &mut impl Write, key: &Key<'_>) {
        let caller = match key.scope().home() {
            Home::Caller(index) => Some(index),
            Home::Own => None,
        };
        for (at, value) in key.values().iter().enumerate() {
            if Some(at) != caller {
                self.write_value(to, key.scope(), at, *value);
            }
        }
    }

    /// A slash and the value, or its digest.
    fn write_value(&self, to: &mut impl Write, scope: &Scope, index: usize, value: Value<'_>) {
        match self.form {
            NameForm::Hashed(secret) if value != Value::Absent && scope.private().contains(index) => {
                let _ = write!(to, "/~{:032x}", secret.digest(value));
            }
            _ => write_value(to, value),
        }
    }
}

/// Whether the id depends on the request, which it does if a caller has many counters of the rule.
pub(super) fn varies(key: &Key<'_>) -> bool {
    key.caller().is_some() && key.values().len() > 1
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
        assert_ne!(names().id(&all), names().id(&some));
    }

    #[test]
    fn private_values_are_digests_and_all_of_a_caller_stays_in_one_slot() {
        let private = |values: [bool; 2]| values.into_iter().collect();
        let all = scope("api", "all", Home::Caller(0)).with_private(private([true, false]));
        let some = scope("api", "some", Home::Caller(1)).with_private(private([false, true]));
        let other = scope("api", "other", Home::Caller(0)).with_private(private([false, true]));
        let own = scope("api", "own", Home::Own).with_private(private([true, false]));
        let key = "sk_live_51H8mZqT9f3a";
        let all = Key::new(&all, smallvec![Value::Text(key)]);
        let some = Key::new(&some, smallvec![Value::Text("bob"), Value::Text(key)]);
        let other = Key::new(&other, smallvec![Value::Text("bob"), Value::Text(key)]);
        let own = Key::new(&own, smallvec![Value::Text(key), Value::Absent]);
        let secret = tollgate_core::KeySecret::derive(b"a secret of the fleet").unwrap();
        let hashed = names().with_form(NameForm::Hashed(secret));
        let digest = "~26f0a07cd8d2b07554bf762c1189cfe1";
        assert_eq!(hashed.packed(&all), format!("tg:{{api/{digest}}}"));
        assert_eq!(hashed.own(&some), format!("tg:{{api/{digest}}}:some/fixed/60000000us/bob"));
        assert_eq!(hashed.once(&all), format!("tg:{{api/{digest}}}:once:all/fixed/60000000us"));
        assert_eq!(hashed.own(&other), format!("tg:{{api/bob}}:other/fixed/60000000us/{digest}"));
        assert_eq!(hashed.packed(&own), format!("tg:{{api/own/fixed/60000000us/{digest}/-}}"));
        assert_eq!(hashed.slot(&all), hashed.slot(&some));
        assert_eq!(hashed.slot(&all), Names::slot_of(&format!("api/{digest}")));
        // An id in a packed value can't be computed without the secret either.
        assert_ne!(hashed.id(&other), names().id(&other));
        let again = names().with_form(NameForm::Hashed(secret));
        assert_eq!(again.id(&other), hashed.id(&other));
        // In clear nothing is private.
        let clear = hashed.with_form(NameForm::Clear);
        assert_eq!(clear.packed(&all), format!("tg:{{api/{key}}}"));
        assert_eq!(clear.id(&other), names().id(&other));
        let absent = scope("api", "own", Home::Own).with_private(private([true, true]));
        assert!(hashed.packed(&Key::new(&absent, smallvec![Value::Absent])).ends_with("us/-}"));
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
