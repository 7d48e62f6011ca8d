//! Prints the figures of a preset or a scenario file: `figures [SCENARIO] [SEED] [ONLY] [SEEDS]`. For work on the lease policy, where building the
//! whole command line takes too long.

use std::process::ExitCode;

use tollgate_simulate::presets::{Plan, Preset};
use tollgate_simulate::report::{self, Run};
use tollgate_simulate::{Scenario, simulate};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|number| number.parse::<u64>().ok()).unwrap_or(1);
    let name = arguments.first().map_or("exercise", String::as_str);
    let only = arguments.get(2).map_or("", String::as_str);
    let (seed, seeds) = (number(1), number(3));
    let mut runs = Vec::new();
    for seed in seed..seed + seeds {
        let file = || std::fs::read_to_string(name).map_err(|error| error.to_string());
        let plans = match Preset::find(name) {
            Some(preset) => preset.plans(seed).map_err(|error| error.to_string()),
            None => file().and_then(|text| match Scenario::read(name, &text) {
                Ok(scenario) => {
                    Ok(vec![Plan { label: name.to_owned(), scenario: Scenario { seed, ..scenario }, goals: vec![] }])
                }
                Err(problems) => Err(format!("{problems:#?}")),
            }),
        };
        let plans = match plans {
            Ok(plans) => plans,
            Err(error) => {
                eprintln!("{name}: {error}");
                return ExitCode::FAILURE;
            }
        };
        for plan in plans.into_iter().filter(|plan| plan.label.contains(only)) {
            let outcome = simulate(&plan.scenario, &mut |_| {});
            let command = format!("figures {name} {seed} '{}'", plan.label);
            let run = Run { label: plan.label, outcome, goals: plan.goals, command };
            if seeds == 1 {
                eprintln!("{}: {:?} {:?}", run.label, run.outcome.calls, run.outcome.units);
            }
            if run.outcome.uncovered > 0 {
                let (most, first) = (run.outcome.uncovered, &run.outcome.first_uncovered);
                eprintln!("{}: {most} units more than the store counts: {first:?}", run.command);
                if seeds == 1 {
                    eprintln!("{:#?}", run.outcome.scenario);
                }
            }
            if seeds == 1 || !run.is_correct() {
                runs.push(run);
            }
        }
    }
    print!("{}{}", report::table(&runs), report::findings(&runs));
    match runs.iter().all(Run::is_correct) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
