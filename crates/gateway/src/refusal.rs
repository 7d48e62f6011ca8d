//! The answer to a request that a shedder refuses: it is counted and logged.

use http::request::Parts;
use smallvec::SmallVec;
use tollgate::{Clock as _, Descriptor, Span};
use tollgate_shed::{Class, Shedder};
use tollgate_wire::ShedRequest;

use crate::admission::Limits;
use crate::answers::Answer;
use crate::identity::IdentityValues;
use crate::model::RouteConfig;
use crate::plan::GatewayPlan;

impl Limits {
    /// The answer to a request that a shedder refuses before its limits are checked.
    #[cold]
    pub(crate) fn shed(
        &self,
        plan: &GatewayPlan,
        route: &RouteConfig,
        (by, class): (Shedder, Class),
        parts: &Parts,
        values: Option<&IdentityValues<'_>>,
    ) -> Answer {
        self.shed_counts.count(by, class);
        let answer = Answer::shed(by);
        let mut entries: SmallVec<[(&str, &str); 16]> = SmallVec::new();
        entries.push(("route", &route.name));
        entries.push(("method", parts.method.as_str()));
        entries.push(("priority", class.name()));
        entries.extend(
            values.into_iter().flat_map(IdentityValues::iter).map(|(name, value)| -> (&str, &str) { (name, value) }),
        );
        let shed = ShedRequest {
            by: by.name(),
            class: class.name(),
            route: &route.name,
            upstream: &plan.config.upstreams[route.upstream].name,
            domain: None,
            descriptors: &[Descriptor::new(&entries)],
            rules_generation: 0,
            at: self.clock.now(),
            wait: answer.retry_after().map_or(Span::ZERO, Span::from_secs),
        };
        self.gate.log_shed(plan.config.domain.as_deref(), shed);
        answer
    }
}
