//! `count`: whether all servers count concurrent requests on one counter, or each by itself.

use tollgate_core::OnFailure;

use crate::load::reader::{Fields, FileReader};
use crate::load::terms::WithLine;
use crate::model::{self, HoldCounting, Policy};
use crate::regions::RegionMode;

/// The most counters of a rule with `count: summed`: every server publishes its count of each several times a second.
const MAX_SUMMED_COUNTERS: usize = 64;

const COUNTS: &[(&str, HoldCounting)] = &[("exact", HoldCounting::Exact), ("summed", HoldCounting::Summed)];

/// The key in the file, if the rule has it.
pub(super) fn read(reader: &mut FileReader<'_>, fields: &Fields<'_>) -> Option<WithLine<HoldCounting>> {
    let value = fields.get("count")?;
    reader.word(value, "count", COUNTS).map(|count| WithLine { value: count, line: value.line })
}

/// Whether the behaviour without the store fits: such a rule never calls it.
pub(super) fn is_possible(
    count: WithLine<HoldCounting>,
    policy: Policy,
    on_failure: Option<OnFailure>,
    reader: &mut FileReader<'_>,
) -> bool {
    let fits = policy == Policy::Comfort && matches!(on_failure, None | Some(OnFailure::Local));
    if count.value == HoldCounting::Exact || fits {
        return true;
    }
    let message = "`count: summed` is only for policy comfort: no request waits for the store, and without it each \
                   server enforces its share of the limit";
    reader.error(count.line, message, "remove `policy` and `on_failure`, or write `count: exact`");
    false
}

/// Whether the region fits: servers publish their counts in the Redis of their region.
pub(super) fn fits_region(count: WithLine<HoldCounting>, region: &RegionMode, reader: &mut FileReader<'_>) -> bool {
    if count.value == HoldCounting::Exact || matches!(region, RegionMode::Each | RegionMode::Split(_)) {
        return true;
    }
    let message = "`count: summed` sums what the servers of one region count, so no other region can own its counter";
    reader.error(count.line, message, "write `region: each` or `region: split`, or `count: exact`");
    false
}

/// Whether the rule has few counters. `line` is that of the rule.
pub(super) fn has_few_counters(rule: &model::Rule, line: usize, reader: &mut FileReader<'_>) -> bool {
    if rule.terms.count == HoldCounting::Exact {
        return true;
    }
    let message = match rule.listed_counters() {
        Some(..=MAX_SUMMED_COUNTERS) => return true,
        Some(counters) => {
            format!(
                "`count: summed` is for rules with at most {MAX_SUMMED_COUNTERS} counters, and this one has {counters}"
            )
        }
        None => "`count: summed` is for rules with few counters: `key: []`, or attributes whose values `match` lists"
            .to_owned(),
    };
    reader.error(line, message, "write `key: []`, list the values under `match`, or write `count: exact`");
    false
}
