//! Admission: from the head of a request to a decision.

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

use super::BoxFuture;
use super::attributes::{Attributes, Extract};
use super::guard::{Guard, HoldStatus, Settler};
use super::responses;
use super::stats::{LayerCounts, Undecided, count};
use crate::response::{self, Detail, ResponseContext, ResponseStyle};
use tollgate::{
    CounterChange, Decision, Limiter, Receipt, RequestError, RequestOutcome, SettleError, SettledReceipt, poll_once,
};

/// A limiter with the settings of a layer, independent of the type of its store.
pub(super) trait LayerGate: Send + Sync {
    /// Decides immediately, if the store never waits.
    fn admit_now(self: Arc<Self>, head: &Parts) -> Option<Admission>;

    /// Decides a request.
    fn admit(self: Arc<Self>, head: Parts) -> BoxFuture<'static, (Parts, Admission)>;

    /// The counters of the layer.
    fn counts(&self) -> &LayerCounts;
}

/// The result of a check.
pub(super) enum Admission {
    Refused(Response<Bytes>),
    Passed(Pass),
}

/// What accompanies a request that passes.
#[derive(Default)]
pub(super) struct Pass {
    /// Headers to add to the response.
    pub(super) headers: HeaderMap,
    /// How long the request is delayed.
    pub(super) delay: Duration,
    pub(super) guard: Guard,
}

/// The limiter and the settings of a layer.
pub(super) struct LimiterGate<St> {
    pub(super) limiter: Arc<Limiter<St>>,
    pub(super) settings: LayerSettings,
    pub(super) counts: Arc<LayerCounts>,
    /// The clock that throttles reports of undecided requests.
    pub(super) clock: Arc<SystemClock>,
}

/// How often, and at which interval, a settlement is retried while the store can't tell whether the receipt was
/// settled.
const MAX_SETTLE_RETRIES: usize = 50;
const SETTLE_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The settings of a layer.
#[derive(Clone)]
pub(super) struct LayerSettings {
    pub(super) domain: Option<Arc<str>>,
    pub(super) extractors: Vec<Arc<dyn Extract>>,
    pub(super) cost: Option<Arc<CostFn>>,
    pub(super) once: Option<Arc<OnceFn>>,
    pub(super) style: ResponseStyle,
    pub(super) max_delay: Duration,
    pub(super) refuse_undecided: bool,
    pub(super) on_undecided: Option<Arc<UndecidedFn>>,
}

pub(super) type CostFn = dyn Fn(&Parts) -> u64 + Send + Sync;
pub(super) type OnceFn = dyn for<'r> Fn(&'r Parts) -> Option<Cow<'r, str>> + Send + Sync;
pub(super) type UndecidedFn = dyn Fn(Undecided<'_>) + Send + Sync;

impl<St: Store + 'static> LayerGate for LimiterGate<St> {
    fn admit_now(self: Arc<Self>, head: &Parts) -> Option<Admission> {
        if !self.limiter.store().never_waits() {
            return None;
        }
        poll_once(self.decide(head))
    }

    fn admit(self: Arc<Self>, head: Parts) -> BoxFuture<'static, (Parts, Admission)> {
        Box::pin(async move {
            let admission = self.decide(&head).await;
            (head, admission)
        })
    }

    fn counts(&self) -> &LayerCounts {
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
            // An invalid name is ignored: it must not bypass the limits.
            once: once.as_deref().filter(|name| (1..=Request::MAX_ONCE_BYTES).contains(&name.len())),
            ..Request::default()
        };
        match self.limiter.check_request(&request).await {
            Err(error) => self.undecided(&error, head),
            Ok(mut decision) => {
                let guard = self.guard(&mut decision, &request).await;
                self.respond(&request, &decision, guard, head)
            }
        }
    }

    /// The guard of what the request took. A request whose delay would be too long is refused.
    async fn guard(self: &Arc<Self>, decision: &mut Decision, request: &Request<'_>) -> Guard {
        // A replay took nothing: the first request holds the receipt, or has settled it.
        if !decision.allowed() || matches!(decision.replay(), Replay::Again { .. }) {
            return Guard::default();
        }
        let most = span(self.settings.max_delay);
        let is_too_slow = decision.delay() > most;
        if is_too_slow && request.once.is_none() {
            self.limiter.refuse_for_delay(request, decision, most).await;
            return Guard::default();
        }
        let shortest_hold = decision.shortest_hold();
        let never_waits = self.limiter.store().never_waits();
        let receipt = decision.take_receipt();
        let settler = Arc::clone(self) as Arc<dyn Settler>;
        let guard = receipt.map_or_else(Guard::default, |receipt| {
            count(&self.counts.inside);
            Guard::new(settler, receipt, shortest_hold, never_waits)
        });
        if is_too_slow {
            // The name is recorded by now, and repetitions take nothing: the request keeps its units and releases its
            // slots.
            guard.forgo();
            decision.refuse_for_delay(most);
            return Guard::default();
        }
        guard
    }

    fn respond(&self, request: &Request<'_>, decision: &Decision, guard: Guard, head: &Parts) -> Admission {
        if decision.replay() == Replay::Conflict {
            count(&self.counts.conflicts);
            return refused(collect(responses::conflict()), head);
        }
        let passes = decision.allowed();
        if passes && decision.replay() == Replay::First && decision.outcomes().next().is_none() {
            // No limit applies, so there are no headers to add.
            count(&self.counts.passed);
            return Admission::Passed(Pass { guard, ..Pass::default() });
        }
        let context = ResponseContext { passes, level: None, receipt: None };
        let response = response::respond(&self.settings.style, request, decision, context, Detail::HeadersOnly);
        let response = response.into_response();
        if !passes {
            let is_unavailable = response.status() == StatusCode::SERVICE_UNAVAILABLE;
            count(if is_unavailable { &self.counts.unavailable } else { &self.counts.refused });
            return refused(collect(response), head);
        }
        count(&self.counts.passed);
        // A replay was delayed the first time.
        let delay = if matches!(decision.replay(), Replay::Again { .. }) { Span::ZERO } else { decision.delay() };
        if delay > Span::ZERO {
            count(&self.counts.delayed);
        }
        let delay = Duration::from_micros(delay.as_micros());
        Admission::Passed(Pass { headers: response.into_parts().0.headers, delay, guard })
    }

    /// A request that can't be decided passes by default: the limiter must not be the outage.
    fn undecided(&self, error: &RequestError, head: &Parts) -> Admission {
        count(&self.counts.undecided);
        if let Some(report) = &self.settings.on_undecided
            && let Some(others) = self.counts.report_undecided(self.clock.now())
        {
            report(Undecided { error, others });
        }
        if self.settings.refuse_undecided {
            return refused(collect(responses::undecided(error)), head);
        }
        count(&self.counts.passed);
        Admission::Passed(Pass::default())
    }

    /// Counts the end of a receipt.
    fn count_settled(&self, settled: Option<&SettledReceipt>) {
        self.counts.inside.fetch_sub(1, Ordering::Relaxed);
        if !settled.is_some_and(SettledReceipt::is_stored) {
            count(&self.counts.unsettled);
        }
    }
}

impl<St: Store + 'static> Settler for LimiterGate<St> {
    fn settle_now(&self, receipt: &Receipt, outcome: RequestOutcome, cost: Option<u64>) -> bool {
        if !self.limiter.store().never_waits() {
            return false;
        }
        let settled = poll_once(self.limiter.settle_receipt(receipt, outcome, cost, None));
        self.count_settled(settled.and_then(Result::ok).as_ref());
        true
    }

    fn settle<'a>(&'a self, receipt: &'a Receipt, outcome: RequestOutcome, cost: Option<u64>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut settled = self.limiter.settle_receipt(receipt, outcome, cost, None).await;
            for _ in 0..MAX_SETTLE_RETRIES {
                if settled.as_ref().err() != Some(&SettleError::Pending) {
                    break;
                }
                tokio::time::sleep(SETTLE_RETRY_DELAY).await;
                settled = self.limiter.settle_receipt(receipt, outcome, cost, None).await;
            }
            self.count_settled(settled.ok().as_ref());
        })
    }

    fn abandon(&self) {
        self.count_settled(None);
    }

    fn extend<'a>(&'a self, receipt: &'a Receipt) -> BoxFuture<'a, HoldStatus> {
        Box::pin(async move {
            let settled = match self.limiter.settle_receipt(receipt, RequestOutcome::Running, None, None).await {
                Ok(settled) if settled.is_stored() => settled,
                Ok(_) | Err(SettleError::Pending) => return HoldStatus::NotStored,
                Err(_) => return HoldStatus::Ended,
            };
            let lost = settled.rules().filter(|rule| rule.change == CounterChange::Lost).count();
            self.counts.lost.fetch_add(lost as u64, Ordering::Relaxed);
            let holds = settled.rules().map(|rule| rule.limit.period().span());
            holds.min().map_or(HoldStatus::NotCounted, HoldStatus::Extended)
        })
    }
}

fn refused(response: Response<Bytes>, head: &Parts) -> Admission {
    Admission::Refused(if responses::is_grpc(&head.headers) { responses::grpc(response) } else { response })
}

/// Collects a body that is in memory.
fn collect(response: Response<Full<Bytes>>) -> Response<Bytes> {
    response.map(|body| {
        poll_once(http_body_util::BodyExt::collect(body)).map_or_else(Bytes::new, |whole| match whole {
            Ok(whole) => whole.to_bytes(),
            Err(never) => match never {},
        })
    })
}

fn span(duration: Duration) -> Span {
    Span::from_micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

impl fmt::Debug for LayerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerSettings")
            .field("domain", &self.domain)
            .field("extractors", &self.extractors.len())
            .field("style", &self.style)
            .field("max_delay", &self.max_delay)
            .finish_non_exhaustive()
    }
}
