//! Explains a decision in one sentence with its numbers.

use std::borrow::Cow;
use std::fmt::Write as _;

use tollgate::{Mode, RegionLink, Source, Span, Wait};
use tollgate_rules::ResolvedBy;
use tollgate_rules::tenants::BlockAction;

use super::{DecisionEntry, EntryLimit, EntryShed, Repetition};
use crate::outcome::DecisionOutcome;

/// Other refusing limits that are names.
const MAX_OTHERS: usize = 3;

impl DecisionEntry {
    /// Explains the decision.
    pub fn explain(&self) -> String {
        let mut text = self.subject().into_owned();
        match self.outcome {
            DecisionOutcome::Deny => self.refused(&mut text),
            DecisionOutcome::Blocked => {
                add(&mut text, format_args!(" was refused: it, or its address, is blocked{}", self.block_status()))
            }
            DecisionOutcome::Shadow => self.would_be_refused(&mut text),
            DecisionOutcome::Soft => {
                text.push_str(" passed beyond a soft limit");
                self.by(&mut text, ": ");
            }
            DecisionOutcome::Shed => {
                text.push_str(" passed: too many checks were in flight to ask the store");
                self.add_fallback(&mut text);
            }
            DecisionOutcome::Assumed => {
                text.push_str(" passed: the store could not answer");
                self.add_fallback(&mut text);
            }
            DecisionOutcome::Allow => self.passed(&mut text),
        }
        text.push_str(match self.link {
            RegionLink::Together => "",
            RegionLink::Lagging => {
                "; other regions heard of units too late, so limits that count in all of them were lowered"
            }
            RegionLink::Apart => "; another region could not be reached, and what it admitted was not counted",
        });
        if self.is_replay {
            text.push_str("; it repeats the decision about the same request, by its idempotency key");
        }
        if let Some(Repetition { count, until }) = self.repetition {
            let within = length(until.since(self.at));
            add(&mut text, format_args!("; the entry stands for {count} such decisions within {within}"));
        }
        text.push('.');
        text
    }

    fn subject(&self) -> Cow<'_, str> {
        match self.caller.as_deref() {
            Some("") => "the caller with an empty name".into(),
            Some(caller) => caller.into(),
            None => "a request without a caller".into(),
        }
    }

    /// The response status to a blocked caller.
    fn block_status(&self) -> &'static str {
        match self.block {
            Some(BlockAction::Forbidden) => " (403)",
            Some(BlockAction::TooMany) => " (429)",
            Some(BlockAction::Banned) => " (403, after too many refusals)",
            Some(BlockAction::Marked | BlockAction::Admitted) | None => "",
        }
    }

    fn refused(&self, text: &mut String) {
        if let Some(shed) = &self.shed {
            return self.was_shed(text, shed);
        }
        text.push_str(" was refused");
        let Some(limit) = self.decider() else {
            return text.push_str(match self.is_replay {
                true => ", by rules that have changed since",
                false => "",
            });
        };
        let reason = match self.source {
            Source::Assumed => "the store could not answer",
            Source::Shed => "too many checks were in flight to ask the store",
            Source::Store | Source::Lease | Source::Cache | Source::Summed | Source::Local => {
                return self.by_limit(text, ": ", limit);
            }
        };
        add(text, format_args!(": {reason}, and {} ({}) refuses then", limit.rule, limit.allows()));
    }

    /// What a shedder protected, and what it knew of the request.
    fn was_shed(&self, text: &mut String, shed: &EntryShed) {
        text.push_str(" was shed (503)");
        match (&*shed.by, &shed.upstream, self.decider()) {
            ("adaptive", Some(upstream), _) => add(
                text,
                format_args!(": the upstream {upstream} had as many requests in flight as it answers without a queue"),
            ),
            ("fairness", Some(upstream), _) => add(
                text,
                format_args!(": the upstream {upstream} was overloaded, and the caller sent more than its fair rate"),
            ),
            ("worker", ..) => text.push_str(": this server had been overloaded for long"),
            (_, _, Some(limit)) => self.by_limit(text, " to protect the service: ", limit),
            (by, ..) => add(text, format_args!(" by {by}")),
        }
        let class = shed.class.as_ref().map(|class| format!("the class {class}"));
        let route = shed.route.as_ref().map(|route| format!("the route {route}"));
        let known: Vec<String> = [class, route].into_iter().flatten().collect();
        if !known.is_empty() {
            add(text, format_args!("; it was of {}", known.join(" and ")));
        }
    }

    fn would_be_refused(&self, text: &mut String) {
        text.push_str(" passed");
        match self.decider() {
            Some(limit) if limit.mode == Mode::Shadow => {
                text.push_str(", but would have been refused by a limit in shadow mode");
                self.by_limit(text, ": ", limit);
            }
            Some(limit) => {
                text.push_str(", since this server refuses nothing (shadow mode); it would have been refused");
                self.by_limit(text, ": ", limit);
            }
            None => {
                text.push_str(", since this server refuses nothing (shadow mode); it, or its address, is blocked");
                text.push_str(self.block_status());
            }
        }
    }

    fn passed(&self, text: &mut String) {
        text.push_str(" passed");
        match self.block {
            Some(BlockAction::Marked) => text.push_str(", marked as blocked"),
            Some(BlockAction::Admitted) => text.push_str(", marked as banned: it is served whatever its limits say"),
            _ => {}
        }
        let Some(limit) = self.decider() else { return text.push_str(": no limit applied to it") };
        let (used, left) = (self.used(limit), limit.remaining);
        add(text, format_args!(": {}, {used}, and {left} were left", limit.rule_allows()));
        self.counted_by(text);
    }

    /// The fallback of a limit that was not checked.
    fn add_fallback(&self, text: &mut String) {
        if let Some(limit) = self.decider() {
            add(text, format_args!(", and {} ({}) lets requests pass then", limit.rule, limit.allows()));
        }
    }

    fn by(&self, text: &mut String, before: &str) {
        if let Some(limit) = self.decider() {
            self.by_limit(text, before, limit);
        }
    }

    /// The limit, its counter, the used share of it, and when there is room.
    fn by_limit(&self, text: &mut String, before: &str, limit: &EntryLimit) {
        add(text, format_args!("{before}{}, {}", limit.rule_allows(), self.used(limit)));
        if limit.units != 1 {
            add(text, format_args!(", {} were requested", limit.units));
        }
        match (limit.wait, limit.is_concurrency()) {
            _ if limit.amount == 0 => {}
            (Wait::For(wait), true) => {
                add(text, format_args!(", and there was room when one ended, {} later at the latest", length(wait)));
            }
            (Wait::For(wait), false) => add(text, format_args!(", and there was room again {} later", length(wait))),
            (Wait::Forever, _) => text.push_str(", and there is never room for that many"),
            (Wait::None, _) => {}
        }
        self.counted_by(text);
        let refused = |one: &&EntryLimit| !one.admits && one.mode == limit.mode;
        let others: Vec<_> = self.limits.iter().skip(1).filter(refused).map(|one| one.rule.as_str()).collect();
        if !others.is_empty() {
            let more = if others.len() > MAX_OTHERS { " and others" } else { "" };
            let names = others[..others.len().min(MAX_OTHERS)].join(", ");
            add(text, format_args!("; {names}{more} had no room either"));
        }
    }

    /// The used share of a counter, and by whom.
    fn used(&self, limit: &EntryLimit) -> String {
        let (used, quota) = (limit.used, limit.quota());
        let who = match limit.key.as_str() {
            "" => "all callers",
            key if self.caller.as_deref() == Some(key) => "it",
            key => key,
        };
        let used = match limit.is_concurrency() {
            true => format!("{who} had {used} of {quota} in flight"),
            false => format!("{who} had used {used} of {quota}"),
        };
        match &limit.region {
            Some(region) => format!("{used} (counted in {region})"),
            None => used,
        }
    }

    fn counted_by(&self, text: &mut String) {
        text.push_str(match self.source {
            Source::Cache => " (from the deny cache)",
            Source::Local => " (counted by this server alone while the store was unavailable or full)",
            Source::Store | Source::Lease | Source::Summed | Source::Assumed | Source::Shed => "",
        });
    }
}

impl EntryLimit {
    fn is_concurrency(&self) -> bool {
        self.period == EntryLimit::CONCURRENT
    }

    /// `100/minute with a burst of 200`.
    fn allows(&self) -> String {
        let mut text = match self.is_concurrency() {
            true => format!("{} at a time", self.amount),
            false => format!("{}/{}", self.amount, self.period),
        };
        if let Some(burst) = self.burst {
            add(&mut text, format_args!(" with a burst of {burst}"));
        }
        text
    }

    /// `per-user allows 100/minute to the tier free`.
    fn rule_allows(&self) -> String {
        let whom = match self.by {
            ResolvedBy::Default => "".into(),
            ResolvedBy::Tier => format!(" to the tier {}", self.tier),
            ResolvedBy::Override => " by an override of its own".into(),
            ResolvedBy::OverrideGlob => " by an override for names like it".into(),
            ResolvedBy::OverrideAll => " by an override for all callers".into(),
            ResolvedBy::Emergency => " in an emergency".into(),
            ResolvedBy::Request => " as the request specified".into(),
        };
        format!("{} allows {}{whom}", self.rule, self.allows())
    }
}

/// `12.5 s`, `3 min 20 s`, `2 h`: rounded up, so that nobody retries too early.
fn length(span: Span) -> String {
    let millis = span.as_micros().div_ceil(1_000);
    let seconds = millis.div_ceil(1_000);
    let two = |whole: u64, unit: &str, rest: u64, smaller: &str| match rest {
        0 => format!("{whole} {unit}"),
        rest => format!("{whole} {unit} {rest} {smaller}"),
    };
    match seconds {
        0..60 if millis < 1_000 => format!("{millis} ms"),
        0..60 => {
            let tenths = millis.div_ceil(100);
            match tenths % 10 {
                0 => format!("{} s", tenths / 10),
                tenth => format!("{}.{tenth} s", tenths / 10),
            }
        }
        60..3_600 => two(seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

fn add(text: &mut String, more: std::fmt::Arguments<'_>) {
    // Writing to a String can't fail.
    let _ = text.write_fmt(more);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_short_and_never_too_short() {
        for (micros, expected) in [
            (1, "1 ms"),
            (12_500_000, "12.5 s"),
            (12_000_001, "12.1 s"),
            (1_000_000, "1 s"),
            (59_950_000, "1 min"),
            (60_000_000, "1 min"),
            (200_000_000, "3 min 20 s"),
            (7_260_000_000, "2 h 1 min"),
            (90_000_000_000, "1 d 1 h"),
        ] {
            assert_eq!(length(Span::from_micros(micros)), expected, "{micros}");
        }
    }
}
