//! Where a caller sees its own limits, what is left of them, and when there is more.

use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use smallvec::SmallVec;
use tollgate::Clock as _;
use tollgate_shed::{Class, Shedder};
use tollgate_wire::http::caller_limits;

use crate::admission::{Limits, ambiguous, bad_target, unauthorized};
use crate::answers::Answer;
use crate::client::Client;
use crate::plan::GatewayPlan;
use crate::target::Target;
use crate::worker::Worker;

/// How long a caller that reads its limits too often has to wait, in seconds.
const PAUSE: HeaderValue = HeaderValue::from_static("1");

impl Limits {
    /// The limits of the caller of a request, and what is left of them. Consumes nothing.
    pub(crate) async fn own_limits(
        &self,
        plan: &GatewayPlan,
        parts: &Parts,
        client: &Client,
        worker: &Worker,
    ) -> Answer {
        self.read_own(plan, parts, client, worker).await.unwrap_or_else(|refused| refused)
    }

    async fn read_own(
        &self,
        plan: &GatewayPlan,
        parts: &Parts,
        client: &Client,
        worker: &Worker,
    ) -> Result<Answer, Answer> {
        Target::read(parts).map_err(bad_target)?;
        let now = self.clock.now();
        let values = plan.identity.read(parts, &[], &client.facts, now).map_err(ambiguous)?;
        let class = Class::from_method(parts.method.as_str());
        if !worker.admits(class) {
            self.shed_counts.count(Shedder::Worker, class);
            return Err(Answer::shed(Shedder::Worker));
        }
        let domain = plan.config.domain.as_deref();
        let rules = self.gate.limiter().rules();
        let entity = rules.domain(domain).ok().and_then(|domain| domain.entity());
        if let Some(entity) = entity {
            let caller = values.get(entity).ok_or_else(|| unauthorized(plan, parts, entity))?;
            if !self.questions.admits(caller, now) {
                let detail = "This caller asks for its limits too often.";
                let answer = Answer::problem(StatusCode::TOO_MANY_REQUESTS, "too_many_questions", detail);
                return Err(answer.with_header(header::RETRY_AFTER, PAUSE));
            }
        }
        let Ok(_asking) = self.questions.at_once.try_acquire() else {
            let detail = "Too many callers ask for their limits at the moment.";
            let answer = Answer::problem(StatusCode::SERVICE_UNAVAILABLE, "busy", detail);
            return Err(answer.with_header(header::RETRY_AFTER, PAUSE));
        };
        let attributes: SmallVec<[(&str, &str); 8]> = values.iter().collect();
        match caller_limits(self.gate.limiter(), domain, &attributes).await {
            Ok(Some(json)) => Ok(Answer::json(json)),
            // The rules have changed since.
            Ok(None) => Err(unauthorized(plan, parts, entity.unwrap_or_default())),
            Err(problem) => Err(Answer::from(problem.with_member("by", b"\"gateway\"").into_response())),
        }
    }
}
