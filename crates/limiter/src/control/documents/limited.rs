//! A limit as documents write it.

use serde::{Deserialize, Serialize};
use tollgate_rules::limit_text;
use tollgate_rules::tenants::OverrideCap;

use super::Faults;

/// A limit: `requests_per_unit` and `unit`, or `limit` as rule files write it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limited<'d> {
    /// So many units …
    pub requests_per_unit: Option<u64>,
    /// … in one of these.
    pub unit: Option<&'d str>,
    /// Or both in one text.
    pub limit: Option<&'d str>,
    /// The burst of a bucket.
    pub burst: Option<u64>,
    /// The day on which months begin.
    pub billing_anchor: Option<&'d Anchor>,
    /// The zone in which days, weeks, months and years are counted.
    pub zone: Option<&'d str>,
}

/// The day on which a caller's months begin.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Anchor {
    /// The day.
    Day(u64),
    /// A date: its day counts.
    Date(String),
}

/// The units of the API, and what rule files call them.
const UNITS: [&str; 7] = ["second", "minute", "hour", "day", "week", "month", "year"];

impl Limited<'_> {
    /// What it means. `at` is where it stands, with a dot if that is something.
    pub fn meaning(&self, at: &str, faults: &mut Faults) -> Option<OverrideCap> {
        let text = self.text(at, faults)?;
        match limit_text::limit(&text) {
            Ok(limit) => Some(OverrideCap::of(limit, self.burst)),
            Err(fault) => {
                let place = if self.limit.is_some() { "limit" } else { "requests_per_unit" };
                faults.add(format!("{at}{place}"), format!("{}; {}", fault.message, fault.remedy));
                None
            }
        }
    }

    /// The limit as rule files write it.
    pub fn text(&self, at: &str, faults: &mut Faults) -> Option<String> {
        match (self.limit, self.requests_per_unit, self.unit) {
            (Some(limit), None, None) => {
                if self.billing_anchor.is_some() || self.zone.is_some() {
                    faults.add(format!("{at}limit"), "write the day and the zone in the limit, or use `unit`");
                    return None;
                }
                Some(limit.to_owned())
            }
            (None, Some(amount), Some(unit)) => self.of_unit(at, amount, unit, faults),
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

    fn of_unit(&self, at: &str, amount: u64, unit: &str, faults: &mut Faults) -> Option<String> {
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

impl Anchor {
    fn day(&self) -> Option<u64> {
        match self {
            Anchor::Day(day) => Some(*day).filter(|day| (1..=31).contains(day)),
            Anchor::Date(text) => {
                let date = text.parse::<jiff::civil::Date>().ok()?;
                u64::try_from(date.day()).ok()
            }
        }
    }
}
