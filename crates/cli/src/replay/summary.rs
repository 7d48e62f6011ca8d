//! The summary of a replay, by rule.

use std::fmt::{self, Write as _};

use tollgate::{Decision, Mode, Ruleset};

/// The decisions so far.
#[derive(Debug)]
pub(super) struct Summary {
    rules: Vec<RuleTally>,
    requests: u64,
    refused: u64,
}

/// The counts of one rule.
#[derive(Clone, Debug, Default)]
struct RuleTally {
    name: String,
    /// Requests that it applied to.
    requests: RequestCount,
    /// Requests that it denied, alone or with others.
    refused: RequestCount,
    /// Requests that it would have denied outside shadow mode.
    would_refuse: RequestCount,
    /// Requests that passed beyond a soft limit.
    over: RequestCount,
}

/// A number of requests; each counts once, even if several of its descriptors match a rule.
#[derive(Clone, Copy, Debug, Default)]
struct RequestCount {
    number: u64,
    last: u64,
}

impl Summary {
    pub(super) fn new(rules: &Ruleset) -> Summary {
        let several = rules.domains().len() > 1;
        let tallies = rules.domains().iter().flat_map(|domain| {
            domain.rules().iter().map(move |rule| RuleTally {
                name: if several { format!("{}/{}", domain.name(), rule.name()) } else { rule.name().to_owned() },
                ..RuleTally::default()
            })
        });
        Summary { rules: tallies.collect(), requests: 0, refused: 0 }
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    pub(super) fn add(&mut self, decision: &Decision) {
        self.requests += 1;
        self.refused += u64::from(!decision.allowed());
        let request = self.requests;
        // Rules with `any_of` deny only together.
        let any_admits = decision.outcomes().any(|outcome| outcome.mode == Mode::AnyOf && outcome.reading.admits);
        for outcome in decision.outcomes() {
            let tally = &mut self.rules[outcome.rule.number()];
            tally.requests.add(request);
            if !outcome.reading.admits {
                match outcome.mode {
                    Mode::AnyOf if any_admits => {}
                    Mode::Enforce | Mode::AnyOf => tally.refused.add(request),
                    Mode::Shadow => tally.would_refuse.add(request),
                    Mode::Soft => tally.over.add(request),
                }
            }
        }
        for (rule, _) in decision.unlimited() {
            self.rules[rule.number()].requests.add(request);
        }
    }
}

impl RequestCount {
    fn add(&mut self, request: u64) {
        if self.last != request {
            self.last = request;
            self.number += 1;
        }
    }
}

impl fmt::Display for Summary {
    /// A table in the order of the rules.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const COLUMNS: [&str; 4] = ["requests", "refused", "would refuse", "over"];
        let name_width = self.rules.iter().map(|tally| tally.name.chars().count()).chain([4]).max().unwrap_or(0);
        let mut line = format!("{:name_width$}", "rule");
        let widths = COLUMNS.map(|column| column.len().max(8));
        for (column, width) in COLUMNS.into_iter().zip(widths) {
            write!(line, "  {column:>width$}")?;
        }
        write!(f, "{line}")?;
        for tally in &self.rules {
            write!(f, "\n{:name_width$}", tally.name)?;
            for (count, width) in [tally.requests, tally.refused, tally.would_refuse, tally.over].iter().zip(widths) {
                write!(f, "  {:>width$}", count.number)?;
            }
        }
        Ok(())
    }
}
