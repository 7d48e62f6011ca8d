//! From the head of a request to its admission.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::Full;
use tollgate_core::{Descriptor, Replay, Request, Span};
use tollgate_store::{Clock, Store, SystemClock};

use super::Settling;
use super::answers;
use super::attributes::{Attributes, Extract};
use super::guard::{Books, Guard, Heard};
use super::stats::{Counts, Undecided, count};
use crate::told::{self, Beside, Detail, Told};
use crate::{Decision, Ending, Limiter, Moved, Receipt, RequestError, SettleError, Settled, now};

/// A limiter and what a layer asks of it, whatever its store.
pub(super) trait Gate: Send + Sync {
    /// Decides at once, if the store never waits.
    fn admit_now(self: Arc<Self>, head: &Parts) -> Option<Admission>;

    /// Decides.
    fn admit(self: Arc<Self>, head: Parts) -> Settling<'static, (Parts, Admission)>;

    /// What was done so far.
    fn counts(&self) -> &Counts;
}

/// What becomes of a request.
pub(super) enum Admission {
    Refused(Response<Bytes>),
    Passed(Pass),
}

/// What goes with a request that passes.
#[derive(Default)]
pub(super) struct Pass {
    /// What the answer will say of its limits.
    pub(super) headers: HeaderMap,
    /// How long it is held back before.
    pub(super) delay: Duration,
    pub(super) guard: Guard,
}

/// The gate of a layer.
pub(super) struct LimiterGate<St> {
    pub(super) limiter: Arc<Limiter<St>>,
    pub(super) settings: Settings,
    pub(super) counts: Arc<Counts>,
    /// By which requests that can't be decided are told once in a while.
    pub(super) clock: Arc<SystemClock>,
}

/// How often what a store has not made up its mind about is told again, and when: for as long as it may take to.
const MOST_TRIES: usize = 50;
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// What an application says of its requests.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) domain: Option<Arc<str>>,
    pub(super) extractors: Vec<Arc<dyn Extract>>,
    pub(super) cost: Option<Arc<CostOf>>,
    pub(super) once: Option<Arc<OnceOf>>,
    pub(super) told: Told,
    pub(super) max_delay: Duration,
    pub(super) refuses_undecided: bool,
    pub(super) on_undecided: Option<Arc<OnUndecided>>,
}

pub(super) type CostOf = dyn Fn(&Parts) -> u64 + Send + Sync;
pub(super) type OnceOf = dyn for<'r> Fn(&'r Parts) -> Option<Cow<'r, str>> + Send + Sync;
pub(super) type OnUndecided = dyn Fn(Undecided<'_>) + Send + Sync;

impl<St: Store + 'static> Gate for LimiterGate<St> {
    fn admit_now(self: Arc<Self>, head: &Parts) -> Option<Admission> {
        if !self.limiter.store().never_waits() {
            return None;
        }
        now(self.decide(head))
    }

    fn admit(self: Arc<Self>, head: Parts) -> Settling<'static, (Parts, Admission)> {
        Box::pin(async move {
            let admission = self.decide(&head).await;
            (head, admission)
        })
    }

    fn counts(&self) -> &Counts {
        &self.counts
    }
}

impl<St: Store + 'static> LimiterGate<St> {
    async fn decide(self: &Arc<Self>, head: &Parts) -> Admission {
        let settings = &self.settings;
        let mut attributes = Attributes::default();
        settings.extractors.iter().for_each(|extractor| extractor.extract(head, &mut attributes));
        let entries = attributes.entries();
        let descriptors = [Descriptor::new(&entries)];
        let once = settings.once.as_ref().and_then(|once| once(head));
        let request = Request {
            domain: settings.domain.as_deref(),
            descriptors: &descriptors,
            cost: settings.cost.as_ref().map_or(1, |cost| cost(head)),
            // A name that none may have is none: it must not be a way past the limits.
            once: once.as_deref().filter(|name| (1..=Request::LONGEST_ONCE).contains(&name.len())),
            ..Request::default()
        };
        match self.limiter.check(&request).await {
            Err(error) => self.undecided(&error, head),
            Ok(mut decision) => {
                let guard = self.guard(&mut decision, &request).await;
                self.answer(&request, &decision, guard, head)
            }
        }
    }

    /// What the request took, in the hands of a guard; unless it would have to wait for too long: then it is refused.
    async fn guard(self: &Arc<Self>, decision: &mut Decision, request: &Request<'_>) -> Guard {
        // Who asks again took nothing: what was taken then is in other hands, or was settled.
        if !decision.allowed() || matches!(decision.replay(), Replay::Again { .. }) {
            return Guard::default();
        }
        let most = span(self.settings.max_delay);
        let is_too_late = decision.delay() > most;
        if is_too_late && request.once.is_none() {
            self.limiter.turn_away(request, decision, most).await;
            return Guard::default();
        }
        let held_for = decision.held_for();
        let never_waits = self.limiter.store().never_waits();
        let receipt = decision.receipt.take();
        let books = Arc::clone(self) as Arc<dyn Books>;
        let guard = receipt.map_or_else(Guard::default, |receipt| {
            count(&self.counts.inside);
            Guard::new(books, *receipt, held_for, never_waits)
        });
        if is_too_late {
            // Its name is known now, and who asks again under it takes nothing: it keeps its place, but for the slots.
            guard.forgo();
            decision.put_off(most);
            return Guard::default();
        }
        guard
    }

    fn answer(&self, request: &Request<'_>, decision: &Decision, guard: Guard, head: &Parts) -> Admission {
        if decision.replay() == Replay::Conflict {
            count(&self.counts.conflicts);
            return refused(answers::conflict(), head);
        }
        let passes = decision.allowed();
        if passes && decision.replay() == Replay::First && decision.outcomes().next().is_none() {
            // Nobody limits it, and there is nothing to tell.
            count(&self.counts.passed);
            return Admission::Passed(Pass { guard, ..Pass::default() });
        }
        let beside = Beside { passes, level: None, receipt: None };
        let told = told::answer(&self.settings.told, request, decision, beside, Detail::Bare);
        if !passes {
            let is_unavailable = told.status() == StatusCode::SERVICE_UNAVAILABLE;
            count(if is_unavailable { &self.counts.unavailable } else { &self.counts.refused });
            return refused(whole(told), head);
        }
        count(&self.counts.passed);
        // Who asks again waited the first time.
        let delay = if matches!(decision.replay(), Replay::Again { .. }) { Span::ZERO } else { decision.delay() };
        if delay > Span::ZERO {
            count(&self.counts.delayed);
        }
        let delay = Duration::from_micros(delay.as_micros());
        Admission::Passed(Pass { headers: told.into_parts().0.headers, delay, guard })
    }

    /// A request that can't be decided passes, unless the application wants it otherwise: the limiter must not be the outage.
    fn undecided(&self, error: &RequestError, head: &Parts) -> Admission {
        count(&self.counts.undecided);
        if let Some(tell) = &self.settings.on_undecided
            && let Some(others) = self.counts.tells(self.clock.now())
        {
            tell(Undecided { error, others });
        }
        if self.settings.refuses_undecided {
            return refused(answers::undecided(error), head);
        }
        count(&self.counts.passed);
        Admission::Passed(Pass::default())
    }

    /// Notes what became of a receipt.
    fn settled(&self, settled: Option<&Settled>) {
        self.counts.inside.fetch_sub(1, Ordering::Relaxed);
        if !settled.is_some_and(Settled::is_stored) {
            count(&self.counts.unsettled);
        }
    }
}

impl<St: Store + 'static> Books for LimiterGate<St> {
    fn settle_now(&self, receipt: &Receipt, ending: Ending, cost: Option<u64>) -> bool {
        if !self.limiter.store().never_waits() {
            return false;
        }
        let settled = now(self.limiter.settle_receipt(receipt, ending, cost, None));
        self.settled(settled.and_then(Result::ok).as_ref());
        true
    }

    fn settle<'a>(&'a self, receipt: &'a Receipt, ending: Ending, cost: Option<u64>) -> Settling<'a, ()> {
        Box::pin(async move {
            let mut settled = self.limiter.settle_receipt(receipt, ending, cost, None).await;
            for _ in 0..MOST_TRIES {
                if settled.as_ref().err() != Some(&SettleError::Pending) {
                    break;
                }
                tokio::time::sleep(TRY_AGAIN).await;
                settled = self.limiter.settle_receipt(receipt, ending, cost, None).await;
            }
            self.settled(settled.ok().as_ref());
        })
    }

    fn abandon(&self) {
        self.settled(None);
    }

    fn running<'a>(&'a self, receipt: &'a Receipt) -> Settling<'a, Heard> {
        Box::pin(async move {
            let settled = match self.limiter.settle_receipt(receipt, Ending::Running, None, None).await {
                Ok(settled) if settled.is_stored() => settled,
                Ok(_) | Err(SettleError::Pending) => return Heard::Unheard,
                Err(_) => return Heard::Over,
            };
            let lost = settled.rules().filter(|rule| rule.moved == Moved::Lost).count();
            self.counts.lost.fetch_add(lost as u64, Ordering::Relaxed);
            let holds = settled.rules().map(|rule| rule.limit.period().span());
            holds.min().map_or(Heard::Uncounted, Heard::For)
        })
    }
}

fn refused(response: Response<Bytes>, head: &Parts) -> Admission {
    Admission::Refused(if answers::is_grpc(&head.headers) { answers::grpc(response) } else { response })
}

/// An answer whose body is at hand, as its bytes.
fn whole(response: Response<Full<Bytes>>) -> Response<Bytes> {
    response.map(|body| {
        now(http_body_util::BodyExt::collect(body)).map_or_else(Bytes::new, |whole| match whole {
            Ok(whole) => whole.to_bytes(),
            Err(never) => match never {},
        })
    })
}

fn span(duration: Duration) -> Span {
    Span::from_micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("domain", &self.domain)
            .field("extractors", &self.extractors.len())
            .field("told", &self.told)
            .field("max_delay", &self.max_delay)
            .finish_non_exhaustive()
    }
}
