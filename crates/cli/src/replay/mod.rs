//! `tollgate replay`: decides recorded requests at their own times.
//!
//! Each line of input gives a line of output, in order. An invalid line is reported and skipped; it affects only the exit code.

mod console;
mod formats;
mod lines;
mod recorded_request;
mod summary;
mod timestamp;

use std::io::{self, BufWriter, ErrorKind, IsTerminal as _, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use smallvec::SmallVec;
use tollgate::{Decision, Descriptor, Limiter, ManualClock, MemoryConfig, MemoryStore, Request, Ruleset};
use tollgate_http::request_target::PathNormalization;
use tollgate_rules::quoted;

use super::rules_args::RulesArgs;
use super::spelling_args::{SpellingArgs, normalized};
use super::{EXIT_FAILURE, EXIT_USAGE, print_error, request_error};
pub(crate) use console::Console;
pub(crate) use formats::{InputFormat, MappedField, Mapping};
pub(crate) use lines::{InputLine, InputLines, MAX_LINE_BYTES};
pub(crate) use recorded_request::RecordedRequest;
use summary::Summary;

#[derive(Debug, Args)]
#[command(after_help = FORMATS)]
pub(super) struct Replay {
    /// Rule files, or directories of them; the same as --rules
    #[arg(required_unless_present = "rules", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The format of the requests on standard input
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "tollgate")]
    format: InputFormat,
    /// The field of an attribute in logs and JSON: api_key=query.key, at=time, cost=tokens; may be repeated
    #[arg(long, value_name = "ATTRIBUTE=FIELD", value_parser = MappedField::parse)]
    map: Vec<MappedField>,
    #[command(flatten)]
    spelling: SpellingArgs,
    #[command(flatten)]
    rules: RulesArgs,
}

const FORMATS: &str = r#"Examples:
  tollgate replay rules.yaml < requests.jsonl > decisions.jsonl
  tollgate replay rules.yaml --format nginx --map api_key=query.key < access.log
  tollgate replay rules.yaml --format json --map at=ts --map user=user.id < app.log

A line of input in Tollgate's own format:
  {"at": 1700000000.25, "attributes": {"api_key": "k1"}, "cost": 1}

`at` is Unix seconds or RFC 3339 ("2023-11-14T22:13:20.25Z"). `domain` is needed if the rules have several. `cost` is 1 by default. Instead of `attributes`, there may be `descriptors` in Envoy's format. Other keys are ignored. Attributes are read as the HTTP listener reads them (--http-normalize), descriptors as gRPC does: unchanged.

Access logs have the fields remote_address, remote_user, method, path, query, endpoint, host, status, user_agent, referer, request_id and query.NAME. Without --map, remote_address, method, path, endpoint and host are attributes. Fields of JSON are names, or paths with dots.

A line of output:
  {"allowed": false, "denied_by": "per-key", "rule": "per-key",
   "limit": 100, "remaining": 0, "retry_after_us": 600000, "delay_us": 0}

`rule`, `limit` and `remaining` are those of the tightest enforced limit. `retry_after_us` is that of `denied_by`: null if the request is allowed or never will be. A summary goes to standard error."#;

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
    mapping: Mapping,
    normalization: PathNormalization,
}

type AttributePairs<'r> = SmallVec<[(&'r str, &'r str); 4]>;

/// An error that ends a replay early.
enum ReplayError {
    Input(io::Error),
    Output(io::Error),
}

impl Replay {
    pub(super) fn run(&self) -> ExitCode {
        let paths = self.rules.paths(self.paths.iter().map(PathBuf::as_path));
        if let Some(input) = paths.iter().find(|path| is_input(path)) {
            print_error(format_args!(
                "error: {} is not a rule file; requests come from standard input: write `< {}`",
                quoted(&input.to_string_lossy()),
                input.display()
            ));
            return ExitCode::from(EXIT_USAGE);
        }
        let mapping = match Mapping::new(self.format, &self.map) {
            Ok(mapping) => mapping,
            Err(message) => {
                print_error(format_args!("error: {message}"));
                return ExitCode::from(EXIT_USAGE);
            }
        };
        let rules = match self.rules.load(&paths) {
            Ok(rules) => rules,
            Err(code) => return code,
        };
        let mut summary = Summary::new(&rules);
        let mut console = Console::new(self.format);
        let replayer = Replayer::new(rules, mapping, self.spelling.normalization());
        if io::stdin().is_terminal() {
            print_error("reading requests from standard input; Ctrl-D ends them, and `< FILE` reads a file");
        }
        let mut lines = InputLines::new(io::stdin().lock());
        let mut out = BufWriter::with_capacity(OUTPUT_BUFFER_BYTES, io::stdout().lock());
        let done = replayer.replay(&mut lines, &mut out, &mut summary, &mut console);
        match &done {
            // The reader has closed the output; no summary is needed.
            Err(ReplayError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => {
                return exit_code(self.is_acceptable(&summary, &console));
            }
            Err(ReplayError::Output(error)) => console.print(format_args!("standard output can't be written: {error}")),
            Err(ReplayError::Input(error)) => {
                console.print(format_args!("standard input can't be read after line {}: {error}", lines.number()));
            }
            Ok(()) => {}
        }
        console.print(&summary);
        console.print(self.totals(&summary, &console, lines.number()));
        if let evicted @ 1.. = replayer.limiter.store().stats().evicted {
            console.print(format_args!("{evicted} live counters were evicted: their callers started from zero"));
        }
        exit_code(done.is_ok() && self.is_acceptable(&summary, &console))
    }

    /// Whether the lines could be read: all of them, or some of an access log.
    fn is_acceptable(&self, summary: &Summary, console: &Console) -> bool {
        console.bad() == 0 || (self.format.tolerates_invalid_lines() && summary.requests() > 0)
    }

    fn totals(&self, summary: &Summary, console: &Console, lines: u64) -> String {
        let (requests, refused) = (summary.requests(), summary.refused());
        let invalid = if self.format.tolerates_invalid_lines() { "skipped" } else { "bad" };
        format!(
            "requests {requests}: allowed {}, refused {refused}; {invalid} lines: {}; {} lines/s",
            requests - refused,
            console.bad(),
            console.rate(lines)
        )
    }
}

impl Replayer {
    fn new(rules: Ruleset, mapping: Mapping, normalization: PathNormalization) -> Replayer {
        let clock = ManualClock::default();
        // Recorded lines are often slightly out of order. A counter is stored as long as an earlier line could still need it.
        let config = MemoryConfig { grace: rules.longest_period(), ..MemoryConfig::default() };
        let store = config.build_with(clock.clone());
        Replayer { limiter: Limiter::new(rules, store), clock, mapping, normalization }
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
        let mut recorded = self.mapping.parse(line)?;
        if recorded.is_of_http {
            for (name, value) in recorded.descriptors.iter_mut().flat_map(|descriptor| &mut descriptor.entries) {
                if let Some(normal) = normalized(self.normalization, name, value) {
                    *value = normal.into();
                }
            }
        }
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

/// Whether a path looks like recorded requests.
fn is_input(path: &Path) -> bool {
    path.extension().is_some_and(|end| ["jsonl", "ndjson", "log", "gz"].iter().any(|other| end == *other))
}

fn exit_code(is_ok: bool) -> ExitCode {
    ExitCode::from(if is_ok { 0 } else { EXIT_FAILURE })
}
