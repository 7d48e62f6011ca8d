//! The layer: what an application says once.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tollgate_store::{Store, SystemClock};
use tower_layer::Layer;

use super::attributes::{Attributes, ByFunction, Extract};
use super::extract;
use super::gate::{LimiterGate, Settings};
use super::service::Tollgate;
use super::stats::{Counts, Stats, Undecided};
use crate::Limiter;
use crate::told::Told;

/// Puts a limiter in front of services: see [the module](super) for what it does.
///
/// Clones share their limiter and what they count. What is said of one later is not said of the others.
pub struct TollgateLayer<St> {
    limiter: Arc<Limiter<St>>,
    settings: Settings,
    counts: Arc<Counts>,
    clock: Arc<SystemClock>,
}

/// How long a request is held back at most, unless the application says otherwise.
const MAX_DELAY: Duration = Duration::from_secs(1);

impl<St: Store + 'static> TollgateLayer<St> {
    /// Asks this limiter. Requests have no attributes yet: see [`extract`](Self::extract) and [`attributes`](Self::attributes).
    pub fn new(limiter: Arc<Limiter<St>>) -> TollgateLayer<St> {
        let settings = Settings {
            domain: None,
            extractors: Vec::new(),
            cost: None,
            once: None,
            told: Told::default(),
            max_delay: MAX_DELAY,
            refuses_undecided: false,
            on_undecided: None,
        };
        TollgateLayer { limiter, settings, counts: Arc::default(), clock: Arc::default() }
    }

    /// By the rules of this domain. Where the rules have a single one it need not be said.
    #[must_use]
    pub fn domain(mut self, name: impl Into<Arc<str>>) -> Self {
        self.settings.domain = Some(name.into());
        self
    }

    /// With what this finds: one of [`extract`](mod@extract), or the application's own. They are asked in the order in which they were
    /// added.
    #[must_use]
    pub fn extract(mut self, extractor: impl Extract) -> Self {
        self.settings.extractors.push(Arc::new(extractor));
        self
    }

    /// With what this function adds.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tollgate::{Limiter, MemoryConfig, Ruleset};
    /// # let (rules, _) = Ruleset::from_text("domain: d\nrules: [{name: a, key: [], limit: 1/second}]", 1).unwrap();
    /// # let limiter = Arc::new(Limiter::new(rules, MemoryConfig::default().build()));
    /// use tollgate::tower::TollgateLayer;
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

    /// What a request costs, or what is reserved for it where its real cost is [reported](super::Spent) later. 1 unless this is said;
    /// 0 is a look, which takes nothing.
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.settings.cost = Some(Arc::new(cost));
        self
    }

    /// Requests with an `Idempotency-Key` or `X-Idempotency-Key` are decided once: see [`once`](Self::once).
    #[must_use]
    pub fn idempotency_key(self) -> Self {
        self.once(extract::idempotency_key)
    }

    /// Requests that this finds a name for are decided once: who asks again under the same name is answered alike and takes
    /// nothing. The same name with other attributes or another cost is answered 422. A name that is empty or longer than
    /// 255 bytes is none.
    ///
    /// **Only for handlers that themselves do the work once for a name.** What is asked again passes without being counted, so that
    /// a handler which does the work again does it past all limits.
    #[must_use]
    pub fn once<F>(mut self, name: F) -> Self
    where
        F: for<'r> Fn(&'r Parts) -> Option<Cow<'r, str>> + Send + Sync + 'static,
    {
        self.settings.once = Some(Arc::new(name));
        self
    }

    /// What clients are told: which headers there are, what is added to `Retry-After`, how much of their values a refusal repeats.
    #[must_use]
    pub fn told(mut self, told: Told) -> Self {
        self.settings.told = told;
        self
    }

    /// How long a request is held back at most, where a `leaky_bucket` spaces requests evenly; 1 s unless this is said. One that would
    /// have to wait for longer is refused (429) and takes nothing; `Retry-After` says when its delay would be short enough.
    #[must_use]
    pub fn max_delay(mut self, most: Duration) -> Self {
        self.settings.max_delay = most;
        self
    }

    /// Requests that can't be decided as they are, for instance since their cost is in an attribute that is not a number, are
    /// answered 400. Unless this is said they pass, uncounted.
    #[must_use]
    pub fn refuse_undecided(mut self) -> Self {
        self.settings.refuses_undecided = true;
        self
    }

    /// Tells of requests that can't be decided as they are, at most once in ten seconds.
    #[must_use]
    pub fn on_undecided(mut self, tell: impl Fn(Undecided<'_>) + Send + Sync + 'static) -> Self {
        self.settings.on_undecided = Some(Arc::new(tell));
        self
    }

    /// The limiter.
    pub fn limiter(&self) -> &Arc<Limiter<St>> {
        &self.limiter
    }
}

impl<St> TollgateLayer<St> {
    /// What was done so far, by all services that this and its clones wrap.
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
