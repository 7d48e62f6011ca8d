//! `tollgate replay`: decides recorded requests on their own time.
//!
//! A line in, a line out, in order. A line that can't be read is told, skipped, and costs nothing but the exit code.

mod console;
mod lines;
mod moment;
mod recorded;
mod summary;

use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use smallvec::SmallVec;
use tollgate::{Decision, Descriptor, Limiter, ManualClock, MemoryConfig, MemoryStore, Request, Ruleset};

use super::{FAILURE, RulesArgs, request_error};
use console::Console;
use lines::{LONGEST_LINE, Line, Lines};
use recorded::Recorded;
use summary::Summary;

#[derive(Debug, Args)]
#[command(after_help = FORMS)]
pub(super) struct Replay {
    #[command(flatten)]
    rules: RulesArgs,
}

const FORMS: &str = r#"A line of input:
  {"at": 1700000000.25, "domain": "api", "attributes": {"api_key": "k1"}, "cost": 1}
`at` is Unix seconds or RFC 3339 ("2023-11-14T22:13:20.25Z"); `domain` may be left out where the rules have one, `cost`
where it is 1; in place of `attributes`, `descriptors` in Envoy's form. Other keys are ignored.

A line of output:
  {"allowed": false, "denied_by": "per-key", "rule": "per-key", "limit": 100, "remaining": 0, "retry_after_us": 600000, "delay_us": 0}
`rule`, `limit` and `remaining` are those of the enforced limit with the fewest left, `retry_after_us` that of `denied_by`:
null if the request is allowed or never will be. A summary goes to standard error."#;

/// How much output is kept before it is written.
const OUTPUT_BUFFER: usize = 256 << 10;

/// A line of output.
#[derive(Serialize)]
struct Answer<'d> {
    allowed: bool,
    denied_by: Option<&'d str>,
    rule: Option<&'d str>,
    limit: Option<u64>,
    remaining: Option<u64>,
    retry_after_us: Option<u64>,
    delay_us: u64,
}

/// Decides recorded requests.
struct Judge {
    limiter: Limiter<MemoryStore<ManualClock>>,
    clock: ManualClock,
}

type Pairs<'r> = SmallVec<[(&'r str, &'r str); 4]>;

/// What ends a replay early.
enum Stop {
    Input(io::Error),
    Output(io::Error),
}

impl Replay {
    pub(super) fn run(&self) -> ExitCode {
        let rules = match self.rules.load() {
            Ok(rules) => rules,
            Err(code) => return code,
        };
        let mut summary = Summary::new(&rules);
        let mut console = Console::new();
        let judge = Judge::new(rules);
        let mut lines = Lines::new(io::stdin().lock());
        let mut out = BufWriter::with_capacity(OUTPUT_BUFFER, io::stdout().lock());
        let done = judge.judge(&mut lines, &mut out, &mut summary, &mut console);
        match &done {
            // Whoever reads the answers has seen enough, and would not wait for a summary.
            Err(Stop::Output(error)) if error.kind() == ErrorKind::BrokenPipe => return code(console.bad() == 0),
            Err(Stop::Output(error)) => console.say(format_args!("standard output can't be written: {error}")),
            Err(Stop::Input(error)) => {
                console.say(format_args!("standard input can't be read after line {}: {error}", lines.number()));
            }
            Ok(()) => {}
        }
        console.say(&summary);
        console.say(totals(&summary, &console, lines.number()));
        if let evicted @ 1.. = judge.limiter.store().stats().evicted {
            console
                .say(format_args!("{evicted} live counters had to make room for others: their callers started afresh"));
        }
        code(done.is_ok() && console.bad() == 0)
    }
}

impl Judge {
    fn new(rules: Ruleset) -> Judge {
        let clock = ManualClock::default();
        // Recorded lines are often a little out of order. A counter is kept for as long as an earlier line could still need it.
        let config = MemoryConfig { grace: rules.longest_period(), ..MemoryConfig::default() };
        let store = config.build_with(clock.clone());
        Judge { limiter: Limiter::new(rules, store), clock }
    }

    fn judge(
        &self,
        lines: &mut Lines<impl Read>,
        out: &mut impl Write,
        summary: &mut Summary,
        console: &mut Console,
    ) -> Result<(), Stop> {
        loop {
            // Whoever waits for the answers to what was asked so far should have them.
            if lines.may_wait() {
                out.flush().map_err(Stop::Output)?;
            }
            let decision = match lines.next().map_err(Stop::Input)? {
                None => break,
                Some(Line::Text(line)) => self.decide(line),
                Some(Line::TooLong) => Err(format!("it is longer than {LONGEST_LINE} bytes")),
            };
            match decision {
                Ok(decision) => {
                    summary.add(&decision);
                    answer(&decision, out).map_err(Stop::Output)?;
                }
                Err(what) => console.bad_line(lines.number(), &what),
            }
            console.progress(lines.number());
        }
        out.flush().map_err(Stop::Output)
    }

    fn decide(&self, line: &[u8]) -> Result<Decision, String> {
        let recorded = Recorded::read(line)?;
        let entries: SmallVec<[Pairs<'_>; 1]> = recorded
            .descriptors
            .iter()
            .map(|descriptor| descriptor.entries.iter().map(|(name, value)| (&**name, &**value)).collect())
            .collect();
        let descriptors: SmallVec<[Descriptor<'_>; 1]> = entries
            .iter()
            .zip(&recorded.descriptors)
            .map(|(entries, descriptor)| Descriptor { hits: descriptor.hits, ..Descriptor::new(entries) })
            .collect();
        let domain = recorded.domain.as_deref();
        let request = Request { domain, descriptors: &descriptors, cost: recorded.cost, ..Request::default() };
        self.clock.set(recorded.at);
        match tollgate::now(self.limiter.check(&request)) {
            Some(decision) => decision.map_err(|error| request_error(&error, domain, &self.limiter.rules())),
            None => Err("the store did not answer".to_owned()),
        }
    }
}

fn answer(decision: &Decision, out: &mut impl Write) -> io::Result<()> {
    let tightest = decision.tightest();
    let answer = Answer {
        allowed: decision.allowed(),
        denied_by: decision.denied_by().map(|outcome| outcome.rule.name()),
        rule: tightest.map(|outcome| outcome.rule.name()),
        limit: tightest.map(|outcome| outcome.limit.amount()),
        remaining: tightest.map(|outcome| outcome.reading.remaining),
        retry_after_us: decision.wait().span().map(|span| span.as_micros()),
        delay_us: decision.delay().as_micros(),
    };
    serde_json::to_writer(&mut *out, &answer)?;
    out.write_all(b"\n")
}

fn totals(summary: &Summary, console: &Console, lines: u64) -> String {
    let (requests, refused) = (summary.requests(), summary.refused());
    format!(
        "requests {requests}: allowed {}, refused {refused}; bad lines: {}; {} lines/s",
        requests - refused,
        console.bad(),
        console.rate(lines)
    )
}

fn code(is_well: bool) -> ExitCode {
    ExitCode::from(if is_well { 0 } else { FAILURE })
}
