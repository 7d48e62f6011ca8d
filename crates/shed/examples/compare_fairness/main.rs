//! Compares what decides between callers when there is too much load, and prints the tables of `docs/shedding.md`.
//!
//! `cargo run --release -p tollgate-shed --example compare_fairness` runs seeds that no constant was chosen with;
//! with `tuning` as an argument, those that were.
#![allow(dead_code, clippy::expect_used)] // The other simulations use the rest; settings of a simulation are valid.

#[path = "../../tests/closed_loop/cap.rs"]
mod cap;
#[path = "../../tests/closed_loop/cells.rs"]
mod cells;
#[path = "../../tests/closed_loop/peers/mod.rs"]
mod peers;
#[path = "../../tests/closed_loop/random.rs"]
mod random;
#[path = "../../tests/closed_loop/run.rs"]
mod run;
#[path = "../../tests/closed_loop/tenants/mod.rs"]
mod tenants;
#[path = "../../tests/closed_loop/upstream.rs"]
mod upstream;

use cells::{JUDGING_SEEDS, TUNING_SEEDS};
use tenants::Outcomes;
use tenants::scenes::{Kind, Scene, alone, comeback, flood, noisy, noisy_tiers, play, play_one_class};
use upstream::Mix;

const SERVERS: [usize; 2] = [16, 64];
const MIXES: [Mix; 2] = [Mix::Exponential, Mix::Bimodal];
const QUEUES: [Kind; 2] = [Kind::Queues(250), Kind::Queues(2_000)];

type Play = fn(Kind, &Scene, Mix, usize, u64) -> Vec<Outcomes>;

fn main() {
    let is_tuning = std::env::args().any(|argument| argument == "tuning");
    let seeds = if is_tuning { TUNING_SEEDS } else { JUDGING_SEEDS };
    println!("Seeds {seeds:?}. Admitted and goodput: the worst seed; p99 over that without a queue: the median.");
    reserves(&seeds);
    one_noisy_caller(&seeds);
}

fn reserves(seeds: &[u64]) {
    let kinds = [Kind::Cap, Kind::HoldBack, Kind::AboveLimit, Kind::Fairness, Kind::Both, QUEUES[0], QUEUES[1]];
    let scenes = [
        flood("flood 1.5x", 1.5, 0.5),
        flood("flood 3x", 3.0, 0.5),
        flood("flood 3x, reserves used up", 3.0, 1.0),
        alone("free alone 1.5x", 1.5),
        comeback(),
    ];
    println!("\n| scene | times | c | by | free | pro | enterprise | goodput | p99 | p99 of enterprise |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for scene in &scenes {
        for (mix, servers) in MIXES.into_iter().flat_map(|mix| SERVERS.map(|servers| (mix, servers))) {
            for kind in kinds {
                let runs = last(play, kind, scene, mix, servers, seeds);
                let flows = runs[0].flows.len();
                let passed = (0..3).map(|flow| match flow < flows {
                    true => format!(" {:.1} % |", 100.0 * least(&runs, |run| run.flows[flow].passed())),
                    false => " |".to_owned(),
                });
                let tail = |flow: Option<usize>| {
                    median(&runs, |run| run.p99(|own| flow.is_none_or(|flow| flow == own)) / mix.idle_p99())
                };
                println!(
                    "| {} | {} | {servers} | {} |{} {:.3} | {} | {} |",
                    scene.name,
                    name(mix),
                    kind.name(),
                    passed.collect::<String>(),
                    least(&runs, |run| run.goodput),
                    shown(tail(None)),
                    shown(tail(Some(2)))
                );
            }
        }
    }
}

fn one_noisy_caller(seeds: &[u64]) {
    let kinds = [Kind::Cap, Kind::Fairness, Kind::Both, QUEUES[0], QUEUES[1]];
    let scenes = [
        noisy("10 of 50 others, 1.5x", 10.0, 1.5),
        noisy("50 of 50 others, 1.5x", 50.0, 1.5),
        noisy("500 of 50 others, 1.5x", 500.0, 1.5),
        noisy("50 of 50 others, 3x", 50.0, 3.0),
    ];
    println!(
        "\n| scene | times | c | by | others | noisy | goodput | p99 | lowered | after: refused | restored after |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for scene in &scenes {
        for (mix, servers) in MIXES.into_iter().flat_map(|mix| SERVERS.map(|servers| (mix, servers))) {
            for kind in kinds {
                let all: Vec<_> = seeds.iter().map(|&seed| play_one_class(kind, scene, mix, servers, seed)).collect();
                let runs: Vec<_> = all.iter().map(|run| run[1].clone()).collect();
                let after: Vec<_> = all.iter().map(|run| run[2].clone()).collect();
                // From 60 s on, when it should be at rest.
                let late = |run: &Outcomes| run.lowered[600..].to_vec();
                let (low, high) = (
                    least(&runs, |run| late(run).into_iter().fold(f64::INFINITY, f64::min)),
                    -least(&runs, |run| -late(run).into_iter().fold(0.0, f64::max)),
                );
                let restored = |run: &Outcomes| {
                    run.lowered.iter().rposition(|amount| *amount > 0.0).map_or(0.0, |at| at as f64 / 10.0)
                };
                let refused = |run: &Outcomes| run.flows.iter().map(|flow| flow.refused()).sum::<u64>() as f64;
                println!(
                    "| {} | {} | {servers} | {} | {:.1} % | {:.1} % | {:.3} | {:.2} | {low:.2} to {high:.2} | {:.0} | {:.1} s |",
                    scene.name,
                    name(mix),
                    kind.name(),
                    100.0 * least(&runs, |run| run.flows[0].passed()),
                    100.0 * least(&runs, |run| run.flows[1].passed()),
                    least(&runs, |run| run.goodput),
                    median(&runs, |run| run.p99(|_| true) / mix.idle_p99()),
                    -least(&after, |run| -refused(run)),
                    -least(&after, |run| -restored(run)),
                );
            }
        }
    }
    println!("\nTwo tiers with busy callers at 1.5x, all in one class:\n");
    println!("| times | c | by | free | free, busy | enterprise | enterprise, busy | goodput | p99 |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let scene = noisy_tiers("tiers");
    for (mix, servers) in MIXES.into_iter().flat_map(|mix| SERVERS.map(|servers| (mix, servers))) {
        for kind in kinds {
            let runs = last(play_one_class, kind, &scene, mix, servers, seeds);
            let passed = (0..4).map(|flow| format!(" {:.1} % |", 100.0 * least(&runs, |run| run.flows[flow].passed())));
            println!(
                "| {} | {servers} | {} |{} {:.3} | {:.2} |",
                name(mix),
                kind.name(),
                passed.collect::<String>(),
                least(&runs, |run| run.goodput),
                median(&runs, |run| run.p99(|_| true) / mix.idle_p99())
            );
        }
    }
}

/// The last stage of each run.
fn last(play: Play, kind: Kind, scene: &Scene, mix: Mix, servers: usize, seeds: &[u64]) -> Vec<Outcomes> {
    seeds.iter().filter_map(|&seed| play(kind, scene, mix, servers, seed).pop()).collect()
}

fn least(runs: &[Outcomes], figure: impl Fn(&Outcomes) -> f64) -> f64 {
    runs.iter().map(figure).fold(f64::INFINITY, f64::min)
}

fn median(runs: &[Outcomes], figure: impl Fn(&Outcomes) -> f64) -> f64 {
    let mut values: Vec<_> = runs.iter().map(figure).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A tail. Nothing if the flow has no requests.
fn shown(tail: f64) -> String {
    if tail.is_nan() { String::new() } else { format!("{tail:.2}") }
}

fn name(mix: Mix) -> String {
    format!("{mix:?}").to_lowercase()
}
