//! The limiter: rules and a store, joined.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use arc_swap::ArcSwap;
use smallvec::SmallVec;
use tollgate_core::{
    Ask, Claim, Descriptor, Reading, ReceiptWish, Replay, Request, Settlement, Source, Span, Timestamp, Verdict, Wait,
};
use tollgate_rules::model::Policy;
use tollgate_rules::tenants::Block;
use tollgate_rules::{
    CallerDigest, Domain, LimitArena, LoadOptions, MatchedRules, RequestError, RuleProblem, Ruleset, TenantContext,
    Tenants, claim_id,
};
use tollgate_store::{Clock, MemoryConfig, MemoryStore, Store, SystemClock};

use crate::caller_tiers::CallerTiers;
use crate::decision::{Decision, RulesRef};
use crate::explain::Explanation;
use crate::ids;
use crate::importance::is_important;
use crate::in_force::RulesInForce;
use crate::receipt::Receipt;
use crate::witness::{CheckTimer, Witness, WitnessHandle};

/// Decides requests by the rules in force.
pub struct Limiter<S> {
    /// One pointer for everything that a check reads, because loading a shared pointer costs more than following one.
    in_force: ArcSwap<RulesInForce>,
    /// How often something was installed: tells a session when to load it again.
    installed: AtomicU64,
    /// Held while something is installed, so that of two changes at the same time none is lost.
    installing: Mutex<()>,
    store: S,
    /// How long results under an idempotency key are stored.
    once_retention: Span,
    /// The clock by which overrides, emergencies and blocks begin and end.
    clock: Box<dyn Clock>,
    /// For domains in which requests name the tier.
    pub(crate) caller_tiers: CallerTiers,
    /// Is called for every decision.
    witness: Option<WitnessHandle>,
}

/// Why rules were not loaded: every problem, with its file and line.
#[derive(Debug)]
pub struct RulesError(pub Vec<RuleProblem>);

/// How the claim of a check is settled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Settling {
    /// By the store, within the timeout.
    InStore { timeout: Option<Span> },
    /// The same if it meets a rule of this policy or of a more important one; else by the policies of its rules.
    IfImportant { timeout: Option<Span>, least: Policy },
    /// By the policies of the rules, without the store.
    ByPolicy(Source),
}

/// How long results under an idempotency key are stored by default.
const DEFAULT_ONCE_RETENTION: Span = Span::from_secs(24 * 3_600);

impl Limiter<MemoryStore> {
    /// A limiter with the rules of a file, or of all files in a directory, and counters in memory.
    ///
    /// # Errors
    /// If the rules have errors: all of them, with file and line.
    pub fn from_files(path: impl AsRef<Path>) -> Result<Limiter<MemoryStore>, RulesError> {
        let loaded = Ruleset::load(&[path.as_ref()], &LoadOptions::default(), 1);
        loaded.map(|(rules, _warnings)| Limiter::in_memory(rules)).map_err(RulesError)
    }

    /// A limiter with these rules and counters in memory.
    pub fn in_memory(rules: Ruleset) -> Limiter<MemoryStore> {
        Limiter::new(rules, MemoryConfig::default().build())
    }
}

impl<S: Store> Limiter<S> {
    /// A limiter with these rules on this store.
    pub fn new(rules: Ruleset, store: S) -> Limiter<S> {
        Limiter {
            in_force: ArcSwap::from_pointee(RulesInForce { rules: Arc::new(rules), tenants: Arc::default() }),
            installed: AtomicU64::new(0),
            installing: Mutex::default(),
            store,
            once_retention: DEFAULT_ONCE_RETENTION,
            clock: Box::new(SystemClock::default()),
            caller_tiers: CallerTiers::default(),
            witness: None,
        }
    }

    /// Calls the witness for every decision, on the thread that made it.
    #[must_use]
    pub fn with_witness(self, witness: Arc<dyn Witness>) -> Limiter<S> {
        Limiter { witness: Some(WitnessHandle::new(witness)), ..self }
    }

    /// Stores results under an idempotency key for this long.
    #[must_use]
    pub fn with_once_retention(self, once_retention: Span) -> Limiter<S> {
        Limiter { once_retention, ..self }
    }

    /// Uses this clock, instead of the system's, for the begin and end of overrides, emergencies and blocks.
    #[must_use]
    pub fn with_clock(self, clock: impl Clock + 'static) -> Limiter<S> {
        Limiter { clock: Box::new(clock), ..self }
    }

    /// The callers' tiers, overrides and blocks. They may be changed at any time.
    pub fn tenants(&self) -> Arc<Tenants> {
        self.in_force.load().tenants.clone()
    }

    /// Replaces the tenants atomically.
    pub fn install_tenants(&self, tenants: Arc<Tenants>) {
        self.replace(|before| {
            tenants.prepare(&before.rules);
            RulesInForce { rules: before.rules.clone(), tenants }
        });
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Installs other rules. Requests in progress finish by the old ones; counters are unaffected.
    pub fn install(&self, rules: Ruleset) {
        self.replace(|before| {
            before.tenants.prepare(&rules);
            RulesInForce { rules: Arc::new(rules), tenants: before.tenants.clone() }
        });
    }

    fn replace(&self, change: impl FnOnce(&RulesInForce) -> RulesInForce) {
        let _installing = self.installing.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&self.in_force.load());
        self.in_force.store(Arc::new(changed));
        self.installed.fetch_add(1, Ordering::Release);
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<Ruleset> {
        self.in_force.load().rules.clone()
    }

    /// The rules in force and the tenants.
    pub(crate) fn in_force(&self) -> Arc<RulesInForce> {
        self.in_force.load_full()
    }

    /// The store of the counters.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Decides one request with these attributes, in a domain of the rules.
    ///
    /// ```
    /// # use tollgate::{Limiter, Ruleset, poll_once};
    /// # let rules = "domain: shop\nrules:\n  - {name: per-key, key: [api_key], limit: 2/minute, algorithm: sliding_log}\n";
    /// let limiter = Limiter::in_memory(Ruleset::from_text(rules, 1).unwrap().0);
    /// # poll_once(async {
    /// assert!(limiter.check("shop", [("api_key", "ada")]).await.unwrap().allowed());
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`check_request`](Limiter::check_request).
    pub async fn check(&self, domain: &str, attributes: impl AsRef<[(&str, &str)]>) -> Result<Decision, RequestError> {
        let descriptors = [Descriptor::new(attributes.as_ref())];
        let request = Request { domain: Some(domain), descriptors: &descriptors, ..Request::default() };
        self.check_request(&request).await
    }

    /// Decides a request.
    ///
    /// A store failure is not an error: the decision follows the failure policies of the rules, and its source says so.
    ///
    /// # Errors
    /// If the request is invalid, for instance without a domain when there are several.
    pub async fn check_request(&self, request: &Request<'_>) -> Result<Decision, RequestError> {
        self.check_within(request, None).await
    }

    /// Like [`check_request`](Limiter::check_request), with a timeout: a store that has not answered in time counts as
    /// failed.
    ///
    /// # Errors
    /// As [`check_request`](Limiter::check_request).
    pub async fn check_within(&self, request: &Request<'_>, timeout: Option<Span>) -> Result<Decision, RequestError> {
        let mut decision = self.decision();
        self.decide(request, Settling::InStore { timeout }, &mut decision).await?;
        Ok(decision)
    }

    /// An empty decision by the rules in force, for [`check_into`](Limiter::check_into).
    #[inline]
    pub fn decision(&self) -> Decision {
        Decision::new(RulesRef::Loaded(self.in_force.load()))
    }

    /// Like [`check_within`](Limiter::check_within), but writes into an existing decision, by the rules that were in force
    /// when it was made: a decision is large to move.
    ///
    /// # Errors
    /// As [`check_request`](Limiter::check_request). The decision is incomplete then.
    pub async fn check_into(
        &self,
        request: &Request<'_>,
        timeout: Option<Span>,
        decision: &mut Decision,
    ) -> Result<(), RequestError> {
        decision.clear();
        self.decide(request, Settling::InStore { timeout }, decision).await
    }

    /// Like [`check_into`](Limiter::check_into), but only a request that meets a rule of policy `least`, or of a more
    /// important one, is decided by the store; any other as [`shed`](Limiter::shed) does. Without `least`, every request.
    ///
    /// # Errors
    /// As [`check_request`](Limiter::check_request). The decision is incomplete then.
    pub async fn check_important(
        &self,
        request: &Request<'_>,
        timeout: Option<Span>,
        least: Option<Policy>,
        decision: &mut Decision,
    ) -> Result<(), RequestError> {
        decision.clear();
        let settling = match least {
            None => Settling::InStore { timeout },
            Some(least) => Settling::IfImportant { timeout, least },
        };
        self.decide(request, settling, decision).await
    }

    /// Decides a request without the store, by the failure policies of its rules: for load shedding. Writes into an
    /// existing decision, as [`check_into`](Limiter::check_into) does.
    ///
    /// # Errors
    /// As [`check_request`](Limiter::check_request).
    pub fn shed(&self, request: &Request<'_>, decision: &mut Decision) -> Result<(), RequestError> {
        decision.clear();
        // The future never waits, so the first poll completes it.
        poll_once(self.decide(request, Settling::ByPolicy(Source::Shed), decision)).unwrap_or(Ok(()))
    }

    /// The body of every check: resolve, settle, reach a verdict. `decision` holds the rules and is otherwise empty.
    pub(crate) async fn decide(
        &self,
        request: &Request<'_>,
        settling: Settling,
        decision: &mut Decision,
    ) -> Result<(), RequestError> {
        let mut timer = CheckTimer::start(self.witness.as_ref());
        let caller_digest = request.once.map(|_| CallerDigest::from_request(request));
        let arena = LimitArena::default();
        let Decision { in_force, matched, settlement, verdict, receipt, is_shed } = decision;
        let rules = &*in_force.rules;
        let mut claim = Claim { id: ids::for_request(request), charges: SmallVec::new(), once: None, timeout: None };
        let sound = self.resolve(in_force, request, &arena, &mut claim, matched)?;
        let settling = match settling {
            Settling::IfImportant { timeout, least } => match is_important(rules, request, matched, least) {
                true => Settling::InStore { timeout },
                false => Settling::ByPolicy(Source::Shed),
            },
            settling => settling,
        };
        match settling {
            Settling::InStore { timeout } | Settling::IfImportant { timeout, .. } => {
                claim.timeout = timeout;
                if let Some(caller_digest) = &caller_digest {
                    self.once(&mut claim, rules, matched, request, caller_digest);
                }
                timer.settle_started(&claim);
                self.settle(&claim, settlement).await;
                timer.settle_ended();
            }
            Settling::ByPolicy(source) => {
                *is_shed = source == Source::Shed;
                self.store.assume(&claim, source, settlement);
            }
        }
        let domain = &rules.domains()[matched.domain];
        if domain.tier_attribute().is_some() {
            self.remember_tier(domain, matched.domain, request);
        }
        *verdict = reach_verdict(&claim, matched, settlement, sound, &*self.clock);
        *receipt = issue_receipt(rules, request, &claim, matched, settlement, *verdict);
        timer.finish(rules, request, &claim, matched, settlement, verdict);
        Ok(())
    }

    /// Remembers the tier that a request names.
    fn remember_tier(&self, domain: &Domain, number: usize, request: &Request<'_>) {
        if let Some((caller, tier)) = domain.requested_tier(request) {
            self.caller_tiers.record(number, caller, tier, self.clock.now());
        }
    }

    /// Makes the claim idempotent. A claim without charges has nothing to repeat.
    fn once<'a>(
        &self,
        claim: &mut Claim<'a>,
        rules: &'a Ruleset,
        matched: &MatchedRules,
        request: &Request<'a>,
        caller_digest: &'a CallerDigest,
    ) {
        let Some(name) = request.once.filter(|_| !claim.charges.is_empty()) else { return };
        let domain = &rules.domains()[matched.domain];
        let once = domain.once_of_check(request, name, caller_digest, claim, self.once_retention);
        if request.claim.is_none() {
            claim.id = claim_id(&once);
        }
        claim.once = Some(once);
    }

    /// How many rulesets were installed so far.
    pub(crate) fn installed(&self) -> u64 {
        self.installed.load(Ordering::Acquire)
    }

    /// Explains what every rule of the domain does with the request, and reads the counters. Consumes nothing.
    pub async fn explain(&self, request: &Request<'_>) -> Result<Explanation, RequestError> {
        let in_force = self.in_force.load();
        let (rules, arena) = (&in_force.rules, LimitArena::default());
        let (resolved, fates) = {
            let known = TenantContext { tenants: &in_force.tenants, now: &|| self.clock.now(), arena: &arena };
            let resolved = rules.resolve_for_tenant(request, ids::next(), &known)?;
            let fates = rules.explain_resolved(request, &resolved, Some(&known))?;
            (resolved, fates)
        };
        let mut peek = resolved.claim.clone();
        peek.charges.iter_mut().for_each(|charge| charge.units = 0);
        let mut settlement = Settlement::default();
        self.settle(&peek, &mut settlement).await;
        Ok(Explanation::new(&resolved, &settlement, fates))
    }

    /// Resolves a request into a claim; `false` if that panicked. The claim is empty then, and the request passes: the
    /// limiter must not be the outage.
    pub(crate) fn resolve<'a>(
        &self,
        in_force: &'a RulesInForce,
        request: &Request<'a>,
        arena: &'a LimitArena,
        claim: &mut Claim<'a>,
        matched: &mut MatchedRules,
    ) -> Result<bool, RequestError> {
        let resolve = || {
            let known = TenantContext { tenants: &in_force.tenants, now: &|| self.clock.now(), arena };
            in_force.rules.resolve_into(request, Some(&known), claim, matched)
        };
        match catch_unwind(AssertUnwindSafe(resolve)) {
            Ok(resolved) => resolved.map(|()| true),
            Err(_) => {
                claim.charges.clear();
                *matched = MatchedRules { domain: matched.domain, ..MatchedRules::default() };
                Ok(false)
            }
        }
    }

    /// Settles a claim. After a panic in the store the failure policies of the rules decide: the limiter must not be
    /// the outage.
    pub(crate) async fn settle(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        if claim.charges.is_empty() && claim.once.is_none() {
            return;
        }
        let settled = {
            // Called inside, so that a panic while the future is created is caught too.
            let mut settling = pin!(async { self.store.settle_into(claim, settlement).await });
            std::future::poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| settling.as_mut().poll(context))) {
                Ok(Poll::Pending) => Poll::Pending,
                Ok(Poll::Ready(())) => Poll::Ready(true),
                Err(_) => Poll::Ready(false),
            })
            .await
        };
        if !settled {
            self.store.assume(claim, Source::Assumed, settlement);
        }
    }
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (last, others) = match self.0.split_last() {
            Some(split) => split,
            None => return f.write_str("the rules can't be loaded"),
        };
        others.iter().try_for_each(|problem| writeln!(f, "{problem}"))?;
        write!(f, "{last}")
    }
}

impl std::error::Error for RulesError {}

impl<S> fmt::Debug for Limiter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("tenants", &self.in_force.load().tenants).finish_non_exhaustive()
    }
}

/// Polls a future once: its output, or `None` if it would have to wait. Needs no executor. Checks in the in-memory
/// store never wait.
pub fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// The receipt of a decision, if something has to be settled or the caller requests one in any case.
#[inline]
fn issue_receipt(
    rules: &Ruleset,
    request: &Request<'_>,
    claim: &Claim<'_>,
    matched: &MatchedRules,
    settlement: &Settlement,
    verdict: Verdict,
) -> Option<Box<Receipt>> {
    let is_requested = match request.receipt {
        ReceiptWish::Never => false,
        ReceiptWish::IfNeeded => matched.needs_receipt,
        ReceiptWish::Always => true,
    };
    if !is_requested || !verdict.allowed || request.ask != Ask::Exactly {
        return None;
    }
    if matches!(settlement.replay, Replay::Again { .. }) && matched.applied.is_empty() {
        // What the first check took is no longer known.
        return None;
    }
    let receipt = Receipt::from_claim(claim, matched, &rules.domains()[matched.domain], settlement);
    (!receipt.is_empty() || request.receipt == ReceiptWish::Always).then(|| Box::new(receipt))
}

/// The verdict on a settlement. A replay of a decision by other rules has only the verdict: its numbers can't be
/// assigned to rules.
#[inline]
fn reach_verdict(
    claim: &Claim<'_>,
    matched: &mut MatchedRules,
    settlement: &mut Settlement,
    sound: bool,
    clock: &dyn Clock,
) -> Verdict {
    if let Some(block) = matched.block.filter(|block| block.action.refuses()) {
        return blocked_verdict(block, settlement, clock);
    }
    let mut verdict = match settlement.replay {
        Replay::First | Replay::Conflict => Verdict::reach(claim, settlement),
        Replay::Again { terms, passed } => replayed_verdict(claim, terms, passed, matched, settlement),
    };
    if !sound {
        verdict.source = Source::Assumed;
    }
    verdict
}

/// A refusal without the store: the caller is blocked.
#[cold]
fn blocked_verdict(block: Block, settlement: &mut Settlement, clock: &dyn Clock) -> Verdict {
    settlement.at = clock.now();
    let wait = match block.during.until {
        Timestamp::MAX => Wait::Forever,
        until => Wait::For(until.since(settlement.at).max(Reading::RETRY_AFTER)),
    };
    Verdict { allowed: false, wait, ..Verdict::default() }
}

#[cold]
fn replayed_verdict(
    claim: &Claim<'_>,
    terms: u64,
    passed: bool,
    matched: &mut MatchedRules,
    settlement: &mut Settlement,
) -> Verdict {
    let same = claim.once.as_ref().is_some_and(|once| once.terms == terms);
    if same && settlement.readings.len() == claim.charges.len() {
        let reached = Verdict::reach(claim, settlement);
        return if reached.allowed == passed { reached } else { Verdict::from_replay(passed, settlement) };
    }
    let verdict = Verdict::from_replay(passed, settlement);
    matched.applied.clear();
    matched.unlimited.clear();
    settlement.readings.clear();
    verdict
}
