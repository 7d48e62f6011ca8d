//! Rules and a store, joined.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use arc_swap::ArcSwap;
use smallvec::SmallVec;
use tollgate_core::{
    Ask, Claim, Reading, ReceiptWish, Replay, Request, Settlement, Source, Span, Timestamp, Verdict, Wait,
};
use tollgate_rules::tenants::{Block, BlockedAs};
use tollgate_rules::{Asker, Known, Matched, RequestError, Room, Ruleset, Tenants, claim_id};
use tollgate_store::{Clock, Store, SystemClock};

use crate::decision::{Decision, Held};
use crate::explain::Explanation;
use crate::ids;
use crate::receipt::Receipt;
use crate::session::Session;
use crate::witness::{Timing, Watch, Witness};

/// Decides requests by the rules in force.
pub struct Limiter<S> {
    rules: ArcSwap<Ruleset>,
    /// What is known of callers.
    tenants: ArcSwap<Tenants>,
    /// How many rulesets were put in force: by it a session sees that it must look again.
    installed: AtomicU64,
    store: S,
    /// How long the answer to a check that is decided once is kept.
    keep_once: Span,
    /// By which what is known of callers begins and ends.
    clock: Box<dyn Clock>,
    /// Who sees every decision.
    watch: Option<Watch>,
}

/// How long that is, where nothing else is said.
const KEEP_ONCE: Span = Span::from_secs(24 * 3_600);

impl<S: Store> Limiter<S> {
    /// A limiter with these rules on this store.
    pub fn new(rules: Ruleset, store: S) -> Limiter<S> {
        Limiter {
            rules: ArcSwap::from_pointee(rules),
            tenants: ArcSwap::default(),
            installed: AtomicU64::new(0),
            store,
            keep_once: KEEP_ONCE,
            clock: Box::new(SystemClock::default()),
            watch: None,
        }
    }

    /// With somebody who sees every decision, on the thread that made it.
    #[must_use]
    pub fn with_witness(self, witness: Arc<dyn Witness>) -> Limiter<S> {
        Limiter { watch: Some(Watch::new(witness)), ..self }
    }

    /// With answers to checks that are decided once kept for so long.
    #[must_use]
    pub fn keeping_once(self, keep_once: Span) -> Limiter<S> {
        Limiter { keep_once, ..self }
    }

    /// With overrides, emergencies and blocks beginning and ending by this clock, and not by the machine's.
    #[must_use]
    pub fn with_clock(self, clock: impl Clock + 'static) -> Limiter<S> {
        Limiter { clock: Box::new(clock), ..self }
    }

    /// What is known of callers: their tiers, the limits that are theirs alone, who is blocked. It may be changed at any time.
    pub fn tenants(&self) -> Arc<Tenants> {
        self.tenants.load_full()
    }

    /// Puts others in their place, all at once.
    pub fn install_tenants(&self, tenants: Arc<Tenants>) {
        tenants.prepare(&self.rules.load());
        self.tenants.store(tenants);
    }

    /// The time of a check that begins now, if somebody wants to know.
    pub(crate) fn timing(&self) -> Timing<'_> {
        Timing::begin(self.watch.as_ref())
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Puts other rules in force. Requests under way finish by the old ones; counters stay.
    pub fn install(&self, rules: Ruleset) {
        self.tenants.load().prepare(&rules);
        self.rules.store(Arc::new(rules));
        self.installed.fetch_add(1, Ordering::Release);
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<Ruleset> {
        self.rules.load_full()
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Decides a request.
    ///
    /// A store that fails is never an error: the decision follows the rules' policies and says so. What is an error is a request
    /// that can't be decided as it is, for instance without a domain where there are several.
    pub async fn check(&self, request: &Request<'_>) -> Result<Decision, RequestError> {
        self.check_within(request, None).await
    }

    /// The same for one who waits no longer than `patience`: a store that can't answer by then is taken as failing.
    pub async fn check_within(&self, request: &Request<'_>, patience: Option<Span>) -> Result<Decision, RequestError> {
        let mut timing = self.timing();
        let rules = self.rules.load();
        let asker = request.once.map(|_| Asker::of(request));
        let room = Room::default();
        let mut claim = Claim { id: ids::of(request), charges: SmallVec::new(), once: None, patience };
        let mut matched = Matched::default();
        let mut settlement = Settlement::default();
        let sound = self.resolve(&rules, request, &room, &mut claim, &mut matched)?;
        if let Some(asker) = &asker {
            self.once(&mut claim, &rules, &matched, request, asker);
        }
        timing.asking(&claim);
        self.settle(&claim, &mut settlement).await;
        timing.answered();
        let verdict = verdict(&claim, &mut matched, &mut settlement, sound, &*self.clock);
        let receipt = receipt(&rules, request, &claim, &matched, &settlement, verdict);
        timing.end(&rules, request, &claim, &matched, &settlement, verdict);
        drop(claim);
        Ok(Decision { rules: Held::Loaded(rules), matched, verdict, settlement, receipt })
    }

    /// Makes a claim one that is settled once. Without charges there is nothing to repeat.
    pub(crate) fn once<'a>(
        &self,
        claim: &mut Claim<'a>,
        rules: &'a Ruleset,
        matched: &Matched,
        request: &Request<'a>,
        asker: &'a Asker,
    ) {
        let Some(name) = request.once.filter(|_| !claim.charges.is_empty()) else { return };
        let domain = &rules.domains()[matched.domain];
        let once = domain.once_of_check(request, name, asker, claim, self.keep_once);
        if request.claim.is_none() {
            claim.id = claim_id(&once);
        }
        claim.once = Some(once);
    }

    /// Decides a request without asking the store, by the policies of the rules that it meets: for those who have more requests
    /// than they can settle.
    pub fn shed(&self, request: &Request<'_>) -> Result<Decision, RequestError> {
        let timing = self.timing();
        let rules = self.rules.load();
        let room = Room::default();
        let mut claim = Claim { id: ids::of(request), charges: SmallVec::new(), once: None, patience: None };
        let mut matched = Matched::default();
        let sound = self.resolve(&rules, request, &room, &mut claim, &mut matched)?;
        let mut settlement = Settlement::default();
        self.store.assume(&claim, Source::Shed, &mut settlement);
        let verdict = verdict(&claim, &mut matched, &mut settlement, sound, &*self.clock);
        let receipt = receipt(&rules, request, &claim, &matched, &settlement, verdict);
        timing.end(&rules, request, &claim, &matched, &settlement, verdict);
        drop(claim);
        Ok(Decision { rules: Held::Loaded(rules), matched, verdict, settlement, receipt })
    }

    /// For those who check often: a worker, a connection.
    pub fn session(&self) -> Session<'_, S> {
        Session::new(self)
    }

    /// How many rulesets were put in force so far.
    pub(crate) fn installed(&self) -> u64 {
        self.installed.load(Ordering::Acquire)
    }

    /// Says what every rule of the request's domain makes of it, and how the counters stand, consuming nothing.
    pub async fn explain(&self, request: &Request<'_>) -> Result<Explanation, RequestError> {
        let rules = self.rules.load();
        let room = Room::default();
        let (resolved, fates) = {
            let known = Known { tenants: &self.tenants.load(), now: &|| self.clock.now(), room: &room };
            let resolved = rules.resolve_known(request, ids::next(), &known)?;
            let fates = rules.explain_resolved(request, &resolved, Some(&known))?;
            (resolved, fates)
        };
        let mut look = resolved.claim.clone();
        look.charges.iter_mut().for_each(|charge| charge.units = 0);
        let mut settlement = Settlement::default();
        self.settle(&look, &mut settlement).await;
        Ok(Explanation::new(&resolved, &settlement, fates))
    }

    /// What a request asks of the store; whether that was found out. A panic on the way leaves an empty claim, and the limiter must
    /// not be the outage: the request passes.
    pub(crate) fn resolve<'a>(
        &self,
        rules: &'a Ruleset,
        request: &Request<'a>,
        room: &'a Room,
        claim: &mut Claim<'a>,
        matched: &mut Matched,
    ) -> Result<bool, RequestError> {
        let resolve = || {
            let known = Known { tenants: &self.tenants.load(), now: &|| self.clock.now(), room };
            rules.resolve_into(request, Some(&known), claim, matched)
        };
        match catch_unwind(AssertUnwindSafe(resolve)) {
            Ok(resolved) => resolved.map(|()| true),
            Err(_) => {
                claim.charges.clear();
                *matched = Matched { domain: matched.domain, ..Matched::default() };
                Ok(false)
            }
        }
    }

    /// Settles a claim. A panic in the store is answered by the policies of the claim's rules: the limiter must not be the
    /// outage.
    pub(crate) async fn settle(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        if claim.charges.is_empty() && claim.once.is_none() {
            return;
        }
        let settled = {
            // Called inside, so that a panic before there is a future is caught too.
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

impl<S> fmt::Debug for Limiter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("tenants", &*self.tenants.load()).finish_non_exhaustive()
    }
}

/// What a future gives at its first poll, without an executor; `None` if it would have to wait. On the in-memory store no check
/// does.
pub fn now<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// What is to be settled when the request has ended, if something is or the caller wants to be told in any case.
#[inline]
pub(crate) fn receipt(
    rules: &Ruleset,
    request: &Request<'_>,
    claim: &Claim<'_>,
    matched: &Matched,
    settlement: &Settlement,
    verdict: Verdict,
) -> Option<Box<Receipt>> {
    let wanted = match request.receipt {
        ReceiptWish::Never => false,
        ReceiptWish::IfNeeded => matched.needs_receipt,
        ReceiptWish::Always => true,
    };
    if !wanted || !verdict.allowed || request.ask != Ask::Exactly {
        return None;
    }
    if matches!(settlement.replay, Replay::Again { .. }) && matched.applied.is_empty() {
        // What was taken then, and from where, is not known any more.
        return None;
    }
    let receipt = Receipt::of(claim, matched, &rules.domains()[matched.domain], settlement);
    (!receipt.is_empty() || request.receipt == ReceiptWish::Always).then(|| Box::new(receipt))
}

/// The verdict on a settlement, and how sure it is. Of a request that was decided before, by other rules, the verdict of that time is
/// all that is left: which rules the numbers belong to is not known.
pub(crate) fn verdict(
    claim: &Claim<'_>,
    matched: &mut Matched,
    settlement: &mut Settlement,
    sound: bool,
    clock: &dyn Clock,
) -> Verdict {
    if let Some(block) = matched.block.filter(|block| block.told != BlockedAs::Marked) {
        return blocked(block, settlement, clock);
    }
    let mut verdict = match settlement.replay {
        Replay::First | Replay::Conflict => Verdict::reach(claim, settlement),
        Replay::Again { terms, passed } => recalled(claim, terms, passed, matched, settlement),
    };
    if !sound {
        verdict.source = Source::Assumed;
    }
    verdict
}

/// Nothing was asked of the store.
#[cold]
fn blocked(block: Block, settlement: &mut Settlement, clock: &dyn Clock) -> Verdict {
    settlement.at = clock.now();
    let wait = match block.during.until {
        Timestamp::MAX => Wait::Forever,
        until => Wait::For(until.since(settlement.at).max(Reading::TRY_AGAIN)),
    };
    Verdict { allowed: false, wait, ..Verdict::default() }
}

#[cold]
fn recalled(
    claim: &Claim<'_>,
    terms: u64,
    passed: bool,
    matched: &mut Matched,
    settlement: &mut Settlement,
) -> Verdict {
    let same = claim.once.as_ref().is_some_and(|once| once.terms == terms);
    if same && settlement.readings.len() == claim.charges.len() {
        let reached = Verdict::reach(claim, settlement);
        return if reached.allowed == passed { reached } else { Verdict::recalled(passed, settlement) };
    }
    let verdict = Verdict::recalled(passed, settlement);
    matched.applied.clear();
    matched.unlimited.clear();
    settlement.readings.clear();
    verdict
}
