//! A configuration that is ready to serve requests. It is swapped whole.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_shed::Class;

use crate::answers::Answer;
use crate::identity::{Identity, IdentityValues};
use crate::keys::{self, KeyDocument};
use crate::model::{GatewayConfig, ListenerConfig, PriorityConfig, RouteConfig};
use crate::routes::RouteTable;
use crate::upstream::Upstream;

/// Everything that a request needs of the configuration.
#[derive(Debug)]
pub struct GatewayPlan {
    pub(crate) config: GatewayConfig,
    pub(crate) routes: RouteTable,
    /// By the index of the route.
    pub(crate) route_counts: Vec<Arc<RouteCounts>>,
    pub(crate) upstreams: Vec<Arc<Upstream>>,
    pub(crate) identity: Identity,
    /// What its tokens are verified with.
    pub(crate) keys: Vec<Arc<KeyDocument>>,
}

/// What happened to the requests of a route.
#[derive(Debug, Default)]
pub(crate) struct RouteCounts {
    /// By the first digit of the status.
    statuses: [AtomicU64; 6],
    pub(crate) limited: AtomicU64,
    pub(crate) shed: AtomicU64,
    /// Requests whose cost was estimated, because their responses did not say it.
    pub(crate) estimated: Arc<AtomicU64>,
}

impl GatewayPlan {
    /// Prepares a configuration. What it has in common with the one before is used again: connections, health, tokens.
    ///
    /// # Errors
    /// If certificates can't be used: all reasons.
    pub fn new(config: GatewayConfig, before: Option<&GatewayPlan>) -> Result<GatewayPlan, Vec<String>> {
        let mut errors = Vec::new();
        let mut upstreams = Vec::new();
        for upstream in &config.upstreams {
            let known = before.iter().flat_map(|plan| &plan.upstreams).find(|one| one.config.name == upstream.name);
            let made = match known {
                Some(known) if known.config == *upstream => Ok(known.clone()),
                _ => Upstream::new(upstream.clone()).map(Arc::new),
            };
            match made {
                Ok(upstream) => {
                    known.into_iter().for_each(|known| upstream.keep_servers(known));
                    upstreams.push(upstream);
                }
                Err(error) => errors.push(error),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let counts: HashMap<&str, &Arc<RouteCounts>> = before
            .iter()
            .flat_map(|plan| plan.config.routes.iter().map(|route| &*route.name).zip(&plan.route_counts))
            .collect();
        let route_counts = config
            .routes
            .iter()
            .map(|route| counts.get(&*route.name).map_or_else(Arc::default, |same| (*same).clone()));
        let verifiers = before.map_or(&[][..], |plan| plan.identity.verifiers());
        let identity = Identity::new(&config.attributes, verifiers);
        Ok(GatewayPlan {
            routes: RouteTable::new(&config.routes),
            route_counts: route_counts.collect(),
            upstreams,
            keys: KeyDocument::all(identity.verifiers(), before.map_or(&[][..], |plan| &plan.keys)),
            identity,
            config,
        })
    }

    /// Loads the keys of sources that were not loaded yet, for a bounded time, so that no valid token is refused when the
    /// configuration takes effect.
    pub async fn load_keys(&self) {
        keys::load_first(&self.keys).await;
    }

    /// Where the gateway listens.
    pub fn listeners(&self) -> &[ListenerConfig] {
        &self.config.listeners
    }

    /// The upstreams that this plan has and another has not.
    pub(crate) fn new_upstreams<'p>(
        &'p self,
        before: Option<&'p GatewayPlan>,
    ) -> impl Iterator<Item = &'p Arc<Upstream>> {
        let is_new = move |upstream: &&Arc<Upstream>| {
            !before.is_some_and(|plan| plan.upstreams.iter().any(|one| Arc::ptr_eq(one, upstream)))
        };
        self.upstreams.iter().filter(is_new)
    }
}

impl PriorityConfig {
    /// The class of a request.
    pub(crate) fn class(
        &self,
        route: &RouteConfig,
        parts: &http::request::Parts,
        values: &IdentityValues<'_>,
    ) -> Class {
        let by_rule = self.rules.iter().find(|rule| {
            rule.route.as_ref().is_none_or(|name| *name == route.name)
                && rule
                    .attributes
                    .iter()
                    .all(|(name, pattern)| values.get(name).is_some_and(|value| pattern.matches(value)))
                && rule.headers.iter().all(|(name, pattern)| {
                    parts
                        .headers
                        .get(name)
                        .and_then(|value| value.to_str().ok())
                        .is_some_and(|value| pattern.matches(value))
                })
        });
        let class = by_rule.map_or_else(|| Class::from_method(parts.method.as_str()), |rule| rule.class);
        let requested = self.header.as_ref().and_then(|name| parts.headers.get(name)?.to_str().ok()?.parse().ok());
        requested.map_or(class, |requested| class.lowered_to(requested))
    }
}

impl RouteCounts {
    pub(crate) fn count(&self, status: http::StatusCode) {
        if let Some(count) = self.statuses.get(usize::from(status.as_u16() / 100)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a request that is not forwarded.
    pub(crate) fn refuse(&self, answer: &Answer) {
        if answer.is_shed() {
            self.shed.fetch_add(1, Ordering::Relaxed);
        } else if answer.status() == http::StatusCode::TOO_MANY_REQUESTS {
            self.limited.fetch_add(1, Ordering::Relaxed);
        }
        self.count(answer.status());
    }

    /// Responses by the first digit of their status.
    pub(crate) fn statuses(&self) -> [u64; 6] {
        std::array::from_fn(|digit| self.statuses[digit].load(Ordering::Relaxed))
    }
}
