//! The limit of an override or of an emergency, and the rules that it is for.
//!
//! The documents declare these fields themselves: with serde's `flatten` an unknown field would be reported at the end of its
//! object and without the names of the fields that exist, and every override would be buffered before it is read.

use serde::{Deserialize, Serialize};
use tollgate_rules::limit_text;
use tollgate_rules::tenants::{OverrideCap, Selector};

use super::FieldFaults;

/// A limit: `requests_per_unit` and `unit`, or `limit` in the notation of rule files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitTerms<'d> {
    /// The number of units …
    pub requests_per_unit: Option<u64>,
    /// … per `second`, `minute`, `hour`, `day`, `week`, `month` or `year`.
    pub unit: Option<&'d str>,
    /// Both in one text: `500/30s`, `20 concurrent`, `unlimited`.
    pub limit: Option<&'d str>,
    /// The burst of a bucket; by default in the rule's proportion.
    pub burst: Option<u64>,
    /// With `unit: month`, the day on which months begin.
    pub billing_anchor: Option<&'d BillingAnchor>,
    /// The time zone of days, weeks, months and years.
    pub zone: Option<&'d str>,
}

/// The day on which a caller's months begin.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum BillingAnchor {
    /// A day of the month, 1 to 31.
    Day(u64),
    /// A date, such as that of the first invoice. Its day of the month counts.
    Date(String),
}

/// The values of `unit`, which are also periods of rule files.
const UNITS: [&str; 7] = ["second", "minute", "hour", "day", "week", "month", "year"];

impl LimitTerms<'_> {
    /// The cap that it means; `None` if there are faults. `at` is the path of the document with a dot, or empty.
    pub fn to_cap(&self, at: &str, faults: &mut FieldFaults) -> Option<OverrideCap> {
        let text = self.to_limit_text(at, faults)?;
        match limit_text::limit(&text) {
            Ok(limit) => Some(OverrideCap::from_text(limit, self.burst)),
            Err(fault) => {
                let field = if self.limit.is_some() { "limit" } else { "requests_per_unit" };
                faults.add(format!("{at}{field}"), format!("{}; {}", fault.message, fault.remedy));
                None
            }
        }
    }

    /// The limit in the notation of rule files; `None` if there are faults.
    pub fn to_limit_text(&self, at: &str, faults: &mut FieldFaults) -> Option<String> {
        match (self.limit, self.requests_per_unit, self.unit) {
            (Some(limit), None, None) => {
                if self.billing_anchor.is_some() || self.zone.is_some() {
                    faults.add(format!("{at}limit"), "write the day and the zone in the limit, or use `unit`");
                    return None;
                }
                Some(limit.to_owned())
            }
            (None, Some(amount), Some(unit)) => self.rate_text(at, amount, unit, faults),
            (Some(_), ..) => {
                faults.add(format!("{at}limit"), "write either `limit` or `requests_per_unit` and `unit`");
                None
            }
            (None, None, _) => {
                faults.add(format!("{at}requests_per_unit"), "it is missing; write a whole number");
                None
            }
            (None, _, None) => {
                faults.add(format!("{at}unit"), format!("it is missing; write one of {}", UNITS.join(", ")));
                None
            }
        }
    }

    fn rate_text(&self, at: &str, amount: u64, unit: &str, faults: &mut FieldFaults) -> Option<String> {
        let unit = unit.to_ascii_lowercase();
        if !UNITS.contains(&unit.as_str()) {
            faults.add(format!("{at}unit"), format!("there is no unit {unit:?}; write one of {}", UNITS.join(", ")));
            return None;
        }
        let mut text = format!("{amount}/{unit}");
        match self.billing_anchor {
            None => {}
            Some(_) if unit != "month" => {
                faults.add(format!("{at}billing_anchor"), "only a month begins on a day: write `unit: month`");
                return None;
            }
            Some(anchor) => match anchor.day() {
                Some(day) => text.push_str(&format!(" from day {day}")),
                None => {
                    let what = "it is no day of the month; write 1 to 31, or a date such as 2025-01-17";
                    faults.add(format!("{at}billing_anchor"), what);
                    return None;
                }
            },
        }
        if let Some(zone) = self.zone {
            text.push_str(&format!(" in {zone}"));
        }
        Some(text)
    }
}

impl BillingAnchor {
    fn day(&self) -> Option<u64> {
        match self {
            BillingAnchor::Day(day) => Some(*day).filter(|day| (1..=31).contains(day)),
            BillingAnchor::Date(text) => {
                let date = text.parse::<jiff::civil::Date>().ok()?;
                u64::try_from(date.day()).ok()
            }
        }
    }
}

/// The rules that a document names by `rule` or by `descriptor`; `None` if it has neither. The fault of one that has both is at
/// `descriptor`.
pub(super) fn selector(rule: Option<&str>, descriptor: Option<&str>) -> Result<Option<Selector>, &'static str> {
    match (rule, descriptor) {
        (None, None) => Ok(None),
        (Some(rule), None) => Ok(Some(Selector::rule(rule))),
        (None, Some("default")) => Ok(Some(Selector::default_rule())),
        (None, Some(descriptor)) => Ok(Some(Selector::descriptor(descriptor))),
        (Some(_), Some(_)) => Err("write either `descriptor` or `rule`"),
    }
}
