//! `tollgate replay`: decides recorded requests at their own times.
//!
//! Each line of input gives a line of output, in order. An invalid line is reported and skipped; it affects only the exit code.

mod console;
mod lines;
mod recorded_request;
mod summary;
mod timestamp;

use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use smallvec::SmallVec;
use tollgate::{Decision, Descriptor, Limiter, ManualClock, MemoryConfig, MemoryStore, Request, Ruleset};

use super::{EXIT_FAILURE, RulesArgs, request_error};
use console::Console;
use lines::{InputLine, InputLines, MAX_LINE_BYTES};
use recorded_request::RecordedRequest;
use summary::Summary;

#[derive(Debug, Args)]
#[command(after_help = FORMATS)]
pub(super) struct Replay {
    #[command(flatten)]
    rules: RulesArgs,
}

const FORMATS: &str = r#"A line of input:
  {"at": 1700000000.25, "domain": "api", "attributes": {"api_key": "k1"}, "cost": 1}
`at` is Unix seconds or RFC 3339 ("2023-11-14T22:13:20.25Z"). `domain` may be omitted if the
rules have one, `cost` if it is 1. Instead of `attributes`, there may be `descriptors` in Envoy's
format. Other keys are ignored.

A line of output:
  {"allowed": false, "denied_by": "per-key", "rule": "per-key", "limit": 100, "remaining": 0, "retry_after_us": 600000, "delay_us": 0}
`rule`, `limit` and `remaining` are those of the tightest enforced limit, `retry_after_us` is that
of `denied_by`: null if the request is allowed or never will be. A summary goes to standard error."#;

/// The bytes of output that are buffered.
const OUTPUT_BUFFER_BYTES: usize = 256 << 10;

/// A line of output.
#[derive(Serialize)]
struct DecisionLine<'d> {
    allowed: bool,
    denied_by: Option<&'d str>,
    rule: Option<&'d str>,
    limit: Option<u64>,
    remaining: Option<u64>,
    retry_after_us: Option<u64>,
    delay_us: u64,
}

/// The limiter, with a clock that follows the recorded requests.
struct Replayer {
    limiter: Limiter<MemoryStore<ManualClock>>,
    clock: ManualClock,
}

type AttributePairs<'r> = SmallVec<[(&'r str, &'r str); 4]>;

/// An error that ends a replay early.
enum ReplayError {
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
        let replayer = Replayer::new(rules);
        let mut lines = InputLines::new(io::stdin().lock());
        let mut out = BufWriter::with_capacity(OUTPUT_BUFFER_BYTES, io::stdout().lock());
        let done = replayer.replay(&mut lines, &mut out, &mut summary, &mut console);
        match &done {
            // The reader has closed the output; no summary is needed.
            Err(ReplayError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => {
                return exit_code(console.bad() == 0);
            }
            Err(ReplayError::Output(error)) => console.print(format_args!("standard output can't be written: {error}")),
            Err(ReplayError::Input(error)) => {
                console.print(format_args!("standard input can't be read after line {}: {error}", lines.number()));
            }
            Ok(()) => {}
        }
        console.print(&summary);
        console.print(totals(&summary, &console, lines.number()));
        if let evicted @ 1.. = replayer.limiter.store().stats().evicted {
            console.print(format_args!("{evicted} live counters were evicted: their callers started from zero"));
        }
        exit_code(done.is_ok() && console.bad() == 0)
    }
}

impl Replayer {
    fn new(rules: Ruleset) -> Replayer {
        let clock = ManualClock::default();
        // Recorded lines are often slightly out of order. A counter is stored as long as an earlier line could still need it.
        let config = MemoryConfig { grace: rules.longest_period(), ..MemoryConfig::default() };
        let store = config.build_with(clock.clone());
        Replayer { limiter: Limiter::new(rules, store), clock }
    }

    fn replay(
        &self,
        lines: &mut InputLines<impl Read>,
        out: &mut impl Write,
        summary: &mut Summary,
        console: &mut Console,
    ) -> Result<(), ReplayError> {
        loop {
            // Before blocking, write the results so far.
            if lines.may_block() {
                out.flush().map_err(ReplayError::Output)?;
            }
            let decision = match lines.next().map_err(ReplayError::Input)? {
                None => break,
                Some(InputLine::Text(line)) => self.decide(line),
                Some(InputLine::TooLong) => Err(format!("it is longer than {MAX_LINE_BYTES} bytes")),
            };
            match decision {
                Ok(decision) => {
                    summary.add(&decision);
                    write_decision(&decision, out).map_err(ReplayError::Output)?;
                }
                Err(error) => console.bad_line(lines.number(), &error),
            }
            console.progress(lines.number());
        }
        out.flush().map_err(ReplayError::Output)
    }

    fn decide(&self, line: &[u8]) -> Result<Decision, String> {
        let recorded = RecordedRequest::parse(line)?;
        let entries: SmallVec<[AttributePairs<'_>; 1]> = recorded
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
        match tollgate::poll_once(self.limiter.check_request(&request)) {
            Some(decision) => decision.map_err(|error| request_error(&error, domain, &self.limiter.rules())),
            None => Err("the store did not answer".to_owned()),
        }
    }
}

fn write_decision(decision: &Decision, out: &mut impl Write) -> io::Result<()> {
    let tightest = decision.tightest();
    let line = DecisionLine {
        allowed: decision.allowed(),
        denied_by: decision.denied_by().map(|outcome| outcome.rule.name()),
        rule: tightest.map(|outcome| outcome.rule.name()),
        limit: tightest.map(|outcome| outcome.limit.amount()),
        remaining: tightest.map(|outcome| outcome.reading.remaining),
        retry_after_us: decision.wait().span().map(|span| span.as_micros()),
        delay_us: decision.delay().as_micros(),
    };
    serde_json::to_writer(&mut *out, &line)?;
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

fn exit_code(is_ok: bool) -> ExitCode {
    ExitCode::from(if is_ok { 0 } else { EXIT_FAILURE })
}
