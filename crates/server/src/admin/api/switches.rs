//! Switches: how rules refuse, whatever their files say. `off` is the kill switch.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::State;
use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};
use tollgate::Timestamp;
use tollgate::control::Moment;
use tollgate::control::documents::{Faults, SwitchDocument, SwitchMode};
use tollgate_control::{Filter, Kind, Name};

use super::extract::{Listed, Nothing, Path, Query};
use super::records::{self, Made, Writing};
use super::until::Until;
use super::{Answer, Api, Asked, Problem, body, names, openapi};
use crate::admin::who::Scope;

/// What a switch is set to.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SwitchBody {
    /// `off`, `shadow`, `soft` or `enforce`.
    #[schema(value_type = String)]
    mode: SwitchMode,
    reason: Option<String>,
    /// Until when; by default for good.
    #[schema(value_type = Option<String>)]
    expires_at: Option<Moment>,
    /// Or for how long: `1h`.
    r#for: Option<String>,
}

/// The switches that are set
#[utoipa::path(
    get, path = "/admin/v1/switches", operation_id = "switches_list", tag = "switches", params(openapi::Listing),
    responses((status = 200, body = openapi::ListBody), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn list(State(api): State<Api>, asked: Asked, Query(listed): Query<Listed>) -> Answer {
    asked.may(Scope::Read)?;
    let filter = Filter { domain: listed.domain, ..Filter::of(Kind::Switch) };
    records::list(&api, &filter, listed.after.as_deref(), listed.limit, told).await
}

/// What a switch is of: everything, a domain, or a rule of one. The path says which.
pub(crate) type Place = BTreeMap<String, String>;

/// Sets a switch
#[utoipa::path(
    put, path = "/admin/v1/switches/everything", operation_id = "switches_put", tag = "switches",
    params(openapi::Conditions), request_body = SwitchBody,
    responses((status = 200, body = Object), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn put(
    State(api): State<Api>,
    asked: Asked,
    Path(place): Path<Place>,
    Query(Nothing {}): Query<Nothing>,
    headers: HeaderMap,
    sent: Body,
) -> Answer {
    either(&asked)?;
    let sent = body::whole(&headers, sent).await?;
    if let Some(again) = records::again(&api, &asked, &sent).await? {
        return Ok(again);
    }
    let switch: SwitchBody = body::parsed(&sent)?;
    if switch.mode == SwitchMode::Off {
        asked.may(Scope::Emergency)?;
    }
    let name = name(&place);
    // A kill switch of something that is not there would be none.
    if !name.domain.is_empty() {
        let rules = api.limiter().rules();
        let domain = names::domain(&rules, Some(&name.domain))?;
        if !name.name.is_empty() {
            names::rule(domain, &name.name)?;
        }
    }
    let document = switch.document(api.now())?;
    let writing = Writing { asked: &asked, name, action: "switch.put", reason: document.reason.clone(), body: &sent };
    let answer = told(&writing.name, &document, api.now());
    records::write(&api, writing, |_| Ok(Made::of(&document, answer.clone()))).await
}

/// A switch
#[utoipa::path(
    get, path = "/admin/v1/switches/everything", operation_id = "switches_show", tag = "switches",
    responses((status = 200, body = Object), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn show(
    State(api): State<Api>,
    asked: Asked,
    Path(place): Path<Place>,
    Query(Nothing {}): Query<Nothing>,
) -> Answer {
    asked.may(Scope::Read)?;
    records::show(&api, &name(&place), told).await
}

/// Takes a switch away: what the files say holds again
#[utoipa::path(
    delete, path = "/admin/v1/switches/everything", operation_id = "switches_delete", tag = "switches",
    params(openapi::Conditions),
    responses((status = 200, body = Object), (status = "default", response = openapi::Failed))
)]
pub(crate) async fn delete(
    State(api): State<Api>,
    asked: Asked,
    Path(place): Path<Place>,
    Query(Nothing {}): Query<Nothing>,
) -> Answer {
    either(&asked)?;
    let name = name(&place);
    let mut answer = of(&name);
    answer["deleted"] = json!(true);
    records::delete(&api, &asked, name, "switch.delete", answer).await
}

/// Those who change rules may set switches, and those who act in emergencies.
fn either(asked: &Asked) -> Result<(), Problem> {
    asked.may(Scope::Rules).or_else(|_| asked.may(Scope::Emergency))
}

fn name(place: &Place) -> Name {
    let part = |part: &str| place.get(part).cloned().unwrap_or_default();
    Name::new(Kind::Switch, part("domain"), part("rule"))
}

fn of(name: &Name) -> Value {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let (domain, rule) = (some(&name.domain), some(&name.name));
    let what = match (&domain, &rule) {
        (_, Some(_)) => "rule",
        (Some(_), None) => "domain",
        (None, None) => "everything",
    };
    json!({"what": what, "domain": domain, "rule": rule})
}

fn told(name: &Name, document: &SwitchDocument, now: Timestamp) -> Value {
    let mut told = of(name);
    told["mode"] = json!(document.mode);
    told["reason"] = json!(document.reason);
    told["expires_at"] = json!(document.expires_at);
    told["in_force"] = json!(document.expires_at.is_none_or(|end| end.0 > now));
    told
}

impl SwitchBody {
    fn document(self, now: Timestamp) -> Result<SwitchDocument, Problem> {
        let mut faults = Faults::default();
        let expires_at = Until { expires_at: self.expires_at, lasts: self.r#for.as_deref() }.moment(now, &mut faults);
        let document = SwitchDocument { mode: self.mode, expires_at, reason: self.reason.unwrap_or_default() };
        document.check(&mut faults);
        faults.unless(document).map_err(Problem::invalid)
    }
}
