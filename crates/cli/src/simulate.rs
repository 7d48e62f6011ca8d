//! `tollgate simulate`: what a fleet does with its limits.

use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use tollgate_simulate::presets::{PRESETS, Plan, Preset};
use tollgate_simulate::report::{self, Run};
use tollgate_simulate::{Scenario, simulate, svg};

use super::{EXIT_FAILURE, EXIT_USAGE, print_error, write_output};

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Simulate {
    /// A scenario file, or the name of a preset
    #[arg(value_name = "SCENARIO")]
    scenario: String,
    /// The seed of all randomness [default: that of the scenario]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Run so many seeds, from the first on
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seeds: u64,
    /// Only the scenarios of a preset whose name contains this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Write a JSON document
    #[arg(long)]
    json: bool,
    /// Write a picture of the last run as SVG: admitted requests against those of an exact fleet, over time
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Presets:
  exercise    200 gateways share 10,000 requests a minute, at loads from 0.5 to 5
  hot         1M requests a second of 100 keys on 500 servers
  s1          1M requests a second of 5M keys by Zipf's law on 500 servers
  s2          5M requests a second of 100M keys on 1,000 servers
  thresholds  one key at 1,000 to 200,000 requests a second on 1,000 servers
  regions     three regions 40 ms apart with four servers each, and limits of each kind
  random      a small world with random limits, traffic and faults; another one for each seed

A limit that is exceeded, or units that are not accounted for, are errors: the exit code is 1, and the command that repeats the
run is printed. A goal of a preset that is missed is reported only.";

/// The largest scenario file, in bytes.
const MAX_SCENARIO_BYTES: u64 = 1 << 20;

impl Simulate {
    pub(super) fn run(&self) -> ExitCode {
        let mut runs = Vec::new();
        for number in 0..self.seeds {
            let plans = match self.plans(number) {
                Ok(plans) => plans,
                Err((message, code)) => {
                    print_error(message);
                    return ExitCode::from(code);
                }
            };
            // Of many seeds only those are of interest that fail.
            let found = plans.into_iter().map(|plan| self.run_plan(plan));
            runs.extend(found.filter(|run| self.seeds == 1 || !run.is_correct()));
        }
        if let (Some(path), Some(run)) = (&self.picture, runs.last())
            && let Err(error) = fs::write(path, svg(&run.outcome))
        {
            print_error(format_args!("{} can't be written: {error}", path.display()));
            return ExitCode::from(EXIT_FAILURE);
        }
        let text = match (self.json, runs.as_slice()) {
            (true, runs) => format!("{:#}\n", report::json(runs)),
            (false, []) => format!("{} seeds, nothing wrong\n", self.seeds),
            (false, [run]) => report::details(run) + &report::findings(&runs),
            (false, runs) => report::table(runs) + &report::findings(runs),
        };
        let is_correct = runs.iter().all(Run::is_correct);
        write_output(&text, if is_correct { 0 } else { EXIT_FAILURE })
    }

    /// The scenarios to run with the seed of this number, or a message and the exit code.
    fn plans(&self, number: u64) -> Result<Vec<Plan>, (String, u8)> {
        if let Some(preset) = Preset::find(&self.scenario) {
            let plans = preset
                .plans(self.seed.unwrap_or(1).saturating_add(number))
                .map_err(|error| (error.to_string(), EXIT_FAILURE))?;
            let plans: Vec<Plan> = plans.into_iter().filter(|plan| plan.label.contains(&self.only)).collect();
            return match plans.is_empty() {
                true => Err((format!("no scenario of {} contains `{}`", self.scenario, self.only), EXIT_USAGE)),
                false => Ok(plans),
            };
        }
        let path = Path::new(&self.scenario);
        let is_large = fs::metadata(path).is_ok_and(|metadata| metadata.len() > MAX_SCENARIO_BYTES);
        if is_large {
            return Err((
                format!("{}: the file is larger than {MAX_SCENARIO_BYTES} bytes", self.scenario),
                EXIT_FAILURE,
            ));
        }
        let text = fs::read_to_string(path).map_err(|error| {
            let names = PRESETS.map(|preset| preset.name).join(", ");
            (format!("{} can't be read: {error}; name a scenario file or a preset: {names}", self.scenario), EXIT_USAGE)
        })?;
        let name = path.file_stem().map_or_else(|| self.scenario.clone(), |stem| stem.to_string_lossy().into_owned());
        match Scenario::read(&name, &text) {
            Ok(mut scenario) => {
                scenario.seed = self.seed.unwrap_or(scenario.seed).saturating_add(number);
                Ok(vec![Plan { label: scenario.name.clone(), scenario, goals: Vec::new() }])
            }
            Err(problems) => {
                let lines = problems.iter().map(|problem| {
                    format!("{}:{}: error: {}; {}", self.scenario, problem.line, problem.message, problem.remedy)
                });
                Err((lines.collect::<Vec<_>>().join("\n"), EXIT_FAILURE))
            }
        }
    }

    fn run_plan(&self, plan: Plan) -> Run {
        let Plan { label, scenario, goals } = plan;
        let seed = scenario.seed;
        let shows_progress = io::stderr().is_terminal();
        let mut shown = -1.0;
        let outcome = simulate(&scenario, &mut |share| {
            // A line for each percent is enough.
            if shows_progress && share >= shown + 0.01 {
                shown = share;
                let _ = write!(io::stderr(), "\r{label}, seed {seed}: {:.0} % ", 100.0 * share);
            }
        });
        if shows_progress {
            let _ = write!(io::stderr(), "\r\u{1b}[K");
        }
        let only = if label == scenario.name { String::new() } else { format!(" --only '{label}'") };
        let command = format!("tollgate simulate {}{only} --seed {seed}", self.scenario);
        Run { label, outcome, goals, command }
    }
}
