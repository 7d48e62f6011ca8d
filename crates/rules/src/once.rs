//! The names of claims that are settled once: checks under a caller's own name for them, and receipts.

use tollgate_core::key::{Home, Secret};
use tollgate_core::{Ask, Claim, ClaimId, Key, Limit, Mode, Once, Request, Scope, Span, Value};

use crate::compiled::Domain;

/// The scopes of a domain's records.
#[derive(Debug)]
pub(crate) struct OnceScopes {
    checks: Scopes,
    receipts: Scopes,
}

/// Records live with the counters of the caller, where those that are claimed have one; else by themselves.
#[derive(Debug)]
struct Scopes {
    beside: Scope,
    alone: Scope,
}

/// Who asks, where no counter says: all that the request says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asker([u8; 16]);

/// In scopes, texts that no rule of a file has.
const CHECK: &str = "⇒once";
const RECEIPT: &str = "⇒receipt";

/// Not a secret: it must be the same on every server.
const DIGEST: Secret = Secret(0x746f_6c6c_6761_7465, 0x6f6e_6365_2f76_3100);

impl OnceScopes {
    pub(crate) fn new(domain: &str) -> OnceScopes {
        OnceScopes { checks: Scopes::new(domain, CHECK), receipts: Scopes::new(domain, RECEIPT) }
    }
}

impl Scopes {
    fn new(domain: &str, name: &str) -> Scopes {
        let scope = |home| Scope::of_records(domain, name, home);
        Scopes { beside: scope(Home::Caller(0)), alone: scope(Home::Own) }
    }

    /// The record of this name: with the first of these callers, if there is one, else with whoever asks.
    fn key<'a>(
        &'a self,
        mut callers: impl Iterator<Item = Value<'a>>,
        name: &[Value<'a>],
        asker: Option<Value<'a>>,
    ) -> Key<'a> {
        let caller = callers.next();
        let scope = if caller.is_some() { &self.beside } else { &self.alone };
        Key::new(scope, caller.or(asker).into_iter().chain(name.iter().copied()).collect())
    }
}

impl Asker {
    /// All names and values of a request, in their order.
    pub fn of(request: &Request<'_>) -> Asker {
        let entries = request.descriptors.iter().map(|descriptor| descriptor.entries);
        let digest = entries.fold(0, |before, entries| {
            let begun = Value::Absent.digest(DIGEST, before);
            entries.iter().fold(begun, |before, (name, value)| {
                Value::Text(value).digest(DIGEST, Value::Text(name).digest(DIGEST, before))
            })
        });
        Asker(digest.to_be_bytes())
    }
}

impl Domain {
    /// The record of a check under its caller's name for it. Whose name it is, the counters that are claimed say, else all that
    /// the request says: the same name of two callers is two names, and so is that of a check and of a later debit.
    pub fn once_of_check<'a>(
        &'a self,
        request: &Request<'a>,
        name: &'a str,
        asker: &'a Asker,
        claim: &Claim<'a>,
        keep: Span,
    ) -> Once<'a> {
        let callers = claim.charges.iter().filter_map(|charge| charge.key.caller());
        let name = [Value::Text(name), Value::Text(word(request.ask))];
        let key = self.once.checks.key(callers, &name, Some(Value::bytes(&asker.0)));
        Once { key, body: body(request, asker), terms: terms(claim), keep }
    }

    /// The record of a receipt of this name, for what was taken from the counters of these callers. `ending` tells apart what may
    /// be said of how it ended.
    pub fn once_of_receipt<'a>(
        &'a self,
        name: &'a [u8],
        callers: impl Iterator<Item = Value<'a>>,
        ending: u64,
        keep: Span,
    ) -> Once<'a> {
        // Whatever the rules are by then, a receipt says what was taken.
        Once { key: self.once.receipts.key(callers, &[Value::bytes(name)], None), body: ending, terms: 0, keep }
    }
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

/// The name of a claim under which a check is decided once: the same for the same record, so that who asks again is told of the
/// same holds.
pub fn claim_id(once: &Once<'_>) -> ClaimId {
    let values = once.key.values().iter();
    ClaimId(values.fold(once.key.scope().digest(), |before, value| value.digest(DIGEST, before)))
}

/// A digest of a name that a caller gave to its claim.
pub fn named_claim(name: &str) -> ClaimId {
    ClaimId(Value::Text(name).digest(DIGEST, 0))
}

/// A digest of the limits that a request meets, in their order: the numbers of an answer are theirs.
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

/// A digest of what is asked.
fn body(request: &Request<'_>, asker: &Asker) -> u64 {
    let number = |number: u64, before: u128| Value::Bytes(&number.to_be_bytes()).digest(DIGEST, before);
    let limit = |limit: &Limit, before| number(limit.period().span().as_micros(), number(limit.amount(), before));
    let begun = number(request.cost, Value::Bytes(&asker.0).digest(DIGEST, 0));
    let digest = request.descriptors.iter().fold(begun, |before, descriptor| {
        let hits = descriptor.hits.map_or(before, |hits| number(hits, before.wrapping_add(1)));
        descriptor.limit.map_or(hits, |one| limit(one, hits.wrapping_add(1)))
    });
    digest as u64
}
