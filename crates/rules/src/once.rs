//! The keys of idempotency records: of checks with an idempotency key, and of receipts.

use tollgate_core::key::{HashSecret, Home};
use tollgate_core::{Ask, Claim, ClaimId, Key, Limit, Mode, Once, Request, Scope, Span, Value};

use crate::address::{IPV6_PREFIX, counted, is_address};

/// The scopes of a domain's records.
#[derive(Debug)]
pub(crate) struct OnceScopes {
    checks: RecordScopes,
    receipts: RecordScopes,
}

/// Records live with the counters of the caller if there is one, otherwise by themselves. The caller comes from the
/// request or the receipt, never from the rules that apply to it: other rules must find the same record.
#[derive(Debug)]
struct RecordScopes {
    with_caller: Scope,
    alone: Scope,
}

/// A digest of the request's attributes. It identifies the caller if the request does not name one.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallerDigest([u8; 16]);

/// Texts for scopes that no rule of a file has.
const CHECK: &str = "⇒once";
const RECEIPT: &str = "⇒receipt";

/// Not a secret: it must be the same on every server.
const DIGEST: HashSecret = HashSecret(0x746f_6c6c_6761_7465, 0x6f6e_6365_2f76_3100);

impl OnceScopes {
    /// `is_private`: callers are identified by a private attribute.
    pub(crate) fn new(domain: &str, is_private: bool) -> OnceScopes {
        let scopes = |name| RecordScopes::new(domain, name, is_private);
        OnceScopes { checks: scopes(CHECK), receipts: scopes(RECEIPT) }
    }

    /// The record of a check. `entity` is the attribute that names the caller.
    pub(crate) fn of_check<'a>(
        &'a self,
        request: &Request<'a>,
        name: &'a str,
        entity: Option<&str>,
        caller_digest: &'a CallerDigest,
        claim: &Claim<'a>,
        keep: Span,
    ) -> Once<'a> {
        let caller = entity.and_then(|entity| caller(request, entity));
        let name = [Value::Text(name), Value::Text(word(request.ask))];
        let key = self.checks.key(caller, &name, Some(Value::bytes(&caller_digest.0)));
        Once { key, body: body(request, caller_digest), terms: terms(claim), keep }
    }

    /// The record of a receipt.
    pub(crate) fn of_receipt<'a>(
        &'a self,
        name: &'a [u8],
        caller: Option<Value<'a>>,
        ending: u64,
        keep: Span,
    ) -> Once<'a> {
        // Whatever the current rules are, a receipt has the units that were taken.
        Once { key: self.receipts.key(caller, &[Value::bytes(name)], None), body: ending, terms: 0, keep }
    }
}

impl RecordScopes {
    fn new(domain: &str, name: &str, is_private: bool) -> RecordScopes {
        let scope =
            |home, is_private| Scope::for_records(domain, name, home).with_private([is_private].into_iter().collect());
        // Without a caller the first value of a check is a digest without a secret of all attributes.
        RecordScopes { with_caller: scope(Home::Caller(0), is_private), alone: scope(Home::Own, true) }
    }

    /// The key of a record: with the caller, if there is one, otherwise with the digest of the request.
    fn key<'a>(&'a self, caller: Option<Value<'a>>, name: &[Value<'a>], caller_digest: Option<Value<'a>>) -> Key<'a> {
        let scope = if caller.is_some() { &self.with_caller } else { &self.alone };
        Key::new(scope, caller.or(caller_digest).into_iter().chain(name.iter().copied()).collect())
    }
}

impl CallerDigest {
    /// A digest of all names and values of a request, in order.
    pub fn from_request(request: &Request<'_>) -> CallerDigest {
        let entries = request.descriptors.iter().map(|descriptor| descriptor.entries);
        let digest = entries.fold(0, |before, entries| {
            let begun = Value::Absent.digest(DIGEST, before);
            entries.iter().fold(begun, |before, (name, value)| {
                Value::Text(value).digest(DIGEST, Value::Text(name).digest(DIGEST, before))
            })
        });
        CallerDigest(digest.to_be_bytes())
    }
}

/// The caller that a request names, as keys of counters have it: unless a rule has another `ipv6_prefix`, so that the
/// record is in the partition of the counters.
fn caller<'a>(request: &Request<'a>, entity: &str) -> Option<Value<'a>> {
    let mut entries = request.descriptors.iter().flat_map(|descriptor| descriptor.entries);
    let (_, value) = entries.find(|(name, _)| *name == entity)?;
    Some(if is_address(entity) { counted(value, IPV6_PREFIX) } else { Value::Text(value) })
}

fn word(ask: Ask) -> &'static str {
    match ask {
        Ask::Exactly | Ask::UpTo => "",
        Ask::Regardless => "debit",
        Ask::Return { .. } => "return",
        Ask::Credit => "credit",
        Ask::Reset => "reset",
    }
}

/// The claim id of an idempotent check. It is the same for the same record, so that a repetition refers to the same
/// holds.
pub fn claim_id(once: &Once<'_>) -> ClaimId {
    let values = once.key.values().iter();
    ClaimId(values.fold(once.key.scope().digest(), |before, value| value.digest(DIGEST, before)))
}

/// The claim id for a name that a caller gave to its claim.
pub fn named_claim(name: &str) -> ClaimId {
    ClaimId(Value::Text(name).digest(DIGEST, 0))
}

/// A digest of the limits that apply to a request, in order: the numbers of an answer are theirs.
fn terms(claim: &Claim<'_>) -> u64 {
    let digest = claim.charges.iter().fold(0, |before, charge| {
        let (scope, amount) = (charge.key.scope().digest(), charge.limit.amount());
        let mut bytes = [0; 25];
        bytes[..16].copy_from_slice(&scope.to_be_bytes());
        bytes[16..24].copy_from_slice(&amount.to_be_bytes());
        bytes[24] = match charge.mode {
            Mode::Enforce => 0,
            Mode::AnyOf => 1,
            Mode::Shadow => 2,
            Mode::Soft => 3,
        };
        Value::Bytes(&bytes).digest(DIGEST, before)
    });
    digest as u64
}

/// A digest of the request.
fn body(request: &Request<'_>, caller_digest: &CallerDigest) -> u64 {
    let number = |number: u64, before: u128| Value::Bytes(&number.to_be_bytes()).digest(DIGEST, before);
    let limit = |limit: &Limit, before| number(limit.period().span().as_micros(), number(limit.amount(), before));
    let begun = number(request.cost, Value::Bytes(&caller_digest.0).digest(DIGEST, 0));
    let digest = request.descriptors.iter().fold(begun, |before, descriptor| {
        let hits = descriptor.hits.map_or(before, |hits| number(hits, before.wrapping_add(1)));
        descriptor.limit.map_or(hits, |one| limit(one, hits.wrapping_add(1)))
    });
    digest as u64
}
