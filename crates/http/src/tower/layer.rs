//! The layer and its settings.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tollgate_store::{Store, SystemClock};
use tower_layer::Layer;

use super::attributes::{Attributes, ByFunction, Extract};
use super::extract;
use super::gate::{LayerSettings, LimiterGate};
use super::service::Tollgate;
use super::stats::{LayerCounts, Stats, Undecided};
use crate::response::ResponseStyle;
use tollgate::Limiter;

/// Puts a limiter in front of services: see [the module](super).
///
/// Clones share the limiter and the statistics. Settings that are changed later are not shared.
pub struct TollgateLayer<St> {
    limiter: Arc<Limiter<St>>,
    settings: LayerSettings,
    counts: Arc<LayerCounts>,
    clock: Arc<SystemClock>,
}

/// The default of [`TollgateLayer::max_delay`].
const DEFAULT_MAX_DELAY: Duration = Duration::from_secs(1);

impl<St: Store + 'static> TollgateLayer<St> {
    /// A layer with this limiter. Requests have no attributes yet: see [`extract`](Self::extract) and
    /// [`attributes`](Self::attributes).
    pub fn new(limiter: Arc<Limiter<St>>) -> TollgateLayer<St> {
        let settings = LayerSettings {
            domain: None,
            extractors: Vec::new(),
            cost: None,
            once: None,
            style: ResponseStyle::default(),
            max_delay: DEFAULT_MAX_DELAY,
            refuse_undecided: false,
            on_undecided: None,
        };
        TollgateLayer { limiter, settings, counts: Arc::default(), clock: Arc::default() }
    }

    /// Uses the rules of this domain. Optional if the rules have only one.
    #[must_use]
    pub fn domain(mut self, name: impl Into<Arc<str>>) -> Self {
        self.settings.domain = Some(name.into());
        self
    }

    /// Adds an extractor: one of [`extract`](mod@extract), or the application's own. Extractors run in the order in
    /// which they were added.
    #[must_use]
    pub fn extract(mut self, extractor: impl Extract) -> Self {
        self.settings.extractors.push(Arc::new(extractor));
        self
    }

    /// Adds the attributes that this function finds.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tollgate::{Limiter, MemoryConfig, Ruleset};
    /// # let (rules, _) = Ruleset::from_text("domain: d\nrules: [{name: a, key: [], limit: 1/second}]", 1).unwrap();
    /// # let limiter = Arc::new(Limiter::new(rules, MemoryConfig::default().build()));
    /// use tollgate_http::tower::TollgateLayer;
    ///
    /// let layer = TollgateLayer::new(limiter).attributes(|head, attributes| {
    ///     attributes.add("path", head.uri.path()).add("region", "eu");
    /// });
    /// # let _ = layer;
    /// ```
    #[must_use]
    pub fn attributes<F>(self, add: F) -> Self
    where
        F: for<'r> Fn(&'r Parts, &mut Attributes<'r>) + Send + Sync + 'static,
    {
        self.extract(ByFunction(add))
    }

    /// Sets the cost of a request, or the amount to reserve if the real cost is [reported](super::Spent) later. 1 by
    /// default; 0 peeks without taking anything.
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.settings.cost = Some(Arc::new(cost));
        self
    }

    /// Decides requests with an `Idempotency-Key` or `X-Idempotency-Key` once: see [`once`](Self::once).
    #[must_use]
    pub fn idempotency_key(self) -> Self {
        self.once(extract::idempotency_key)
    }

    /// Decides requests that have a name once: a repetition under the same name gets the same decision and takes
    /// nothing. The same name with other attributes or another cost is answered with 422. A name that is empty or
    /// longer than 255 bytes is ignored.
    ///
    /// **Only for handlers that are idempotent for a name.** Repetitions pass without being counted, so a handler that
    /// does the work again would bypass all limits.
    #[must_use]
    pub fn once<F>(mut self, name: F) -> Self
    where
        F: for<'r> Fn(&'r Parts) -> Option<Cow<'r, str>> + Send + Sync + 'static,
    {
        self.settings.once = Some(Arc::new(name));
        self
    }

    /// Sets the response headers, the jitter of `Retry-After`, and how values appear in refusals.
    #[must_use]
    pub fn response_style(mut self, style: ResponseStyle) -> Self {
        self.settings.style = style;
        self
    }

    /// Sets the longest delay of a request under a `leaky_bucket`; 1 s by default. A request with a longer delay is
    /// refused (429) and takes nothing; `Retry-After` says when its delay would be short enough.
    #[must_use]
    pub fn max_delay(mut self, max_delay: Duration) -> Self {
        self.settings.max_delay = max_delay;
        self
    }

    /// Answers requests that can't be decided, for instance because an attribute that holds the cost is not a number,
    /// with 400. By default they pass, uncounted.
    #[must_use]
    pub fn refuse_undecided(mut self) -> Self {
        self.settings.refuse_undecided = true;
        self
    }

    /// Reports requests that can't be decided, at most once in ten seconds.
    #[must_use]
    pub fn on_undecided(mut self, report: impl Fn(Undecided<'_>) + Send + Sync + 'static) -> Self {
        self.settings.on_undecided = Some(Arc::new(report));
        self
    }

    /// The limiter of the layer.
    pub fn limiter(&self) -> &Arc<Limiter<St>> {
        &self.limiter
    }
}

impl<St> TollgateLayer<St> {
    /// The statistics of all services that this layer and its clones wrap.
    pub fn stats(&self) -> Stats {
        self.counts.read()
    }
}

impl<S, St: Store + 'static> Layer<S> for TollgateLayer<St> {
    type Service = Tollgate<S>;

    fn layer(&self, inner: S) -> Tollgate<S> {
        let TollgateLayer { limiter, settings, counts, clock } = self.clone();
        Tollgate::new(inner, Arc::new(LimiterGate { limiter, settings, counts, clock }))
    }
}

impl<St> Clone for TollgateLayer<St> {
    fn clone(&self) -> Self {
        TollgateLayer {
            limiter: self.limiter.clone(),
            settings: self.settings.clone(),
            counts: self.counts.clone(),
            clock: self.clock.clone(),
        }
    }
}

impl<St> fmt::Debug for TollgateLayer<St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TollgateLayer").field("settings", &self.settings).field("stats", &self.stats()).finish()
    }
}
