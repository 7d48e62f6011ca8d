//! Compares adaptive caps in front of simulated upstreams, and prints the tables of `docs/shedding.md`.
//!
//! `cargo run --release -p tollgate-shed --example compare_caps` runs the seeds that no choice was made with; with `tuning` as
//! an argument, those that constants were chosen with.

#[path = "../../tests/closed_loop/cap.rs"]
mod cap;
#[path = "../../tests/closed_loop/cells.rs"]
mod cells;
#[path = "../../tests/closed_loop/goals.rs"]
mod goals;
#[path = "../../tests/closed_loop/peers/mod.rs"]
mod peers;
#[path = "../../tests/closed_loop/random.rs"]
mod random;
#[path = "../../tests/closed_loop/run.rs"]
mod run;
#[path = "../../tests/closed_loop/upstream.rs"]
mod upstream;

use cells::{FRESH_SEEDS, Kind, SERVERS, TUNING_SEEDS, classes};
use goals::{COLUMNS, Column, Figure, best_fixed, figures};
use tollgate_shed::Class;
use upstream::Mix;

fn main() {
    let is_tuning = std::env::args().any(|argument| argument == "tuning");
    let seeds: &[u64] = if is_tuning { &TUNING_SEEDS } else { &FRESH_SEEDS };
    let ours = Kind::Ours(Box::default());
    let kinds = [ours.clone(), Kind::Envoy, Kind::Gradient2, Kind::Vegas];
    println!("Seeds {seeds:?}. Refused and goodput: the worst seed; p99 over that without a queue: the median.\n");
    println!("| mix | c | cap |{}", COLUMNS.map(|column| format!(" {} |", title(column))).concat());
    println!("| --- | --- | --- |{}", " --- |".repeat(COLUMNS.len()));
    let mut remarks = Vec::new();
    for (mix, servers) in Mix::ALL.into_iter().flat_map(|mix| SERVERS.map(|servers| (mix, servers))) {
        let rows = kinds.each_ref().map(|kind| figures(kind, mix, servers, seeds));
        for (kind, row) in kinds.iter().zip(&rows) {
            let cells = COLUMNS.iter().zip(row).map(|(column, value)| format!(" {} |", cell(*column, *value)));
            println!("| {} | {servers} | {} |{}", name(mix), kind.name(), cells.collect::<String>());
        }
        for (at, column) in COLUMNS.into_iter().enumerate() {
            remarks.extend(remark(column, mix, servers, &rows.each_ref().map(|row| row[at]), &kinds));
        }
    }
    println!(
        "\nGoals that are missed, and figures that are worse than the best of the others:\n\n{}",
        remarks.join("\n")
    );
    println!(
        "\nThe least limit that never changes with a goodput of 0.98 at 2x:\n\n| mix | c | limit | goodput | p99 |"
    );
    for (mix, servers) in Mix::ALL.into_iter().flat_map(|mix| SERVERS.map(|servers| (mix, servers))) {
        if let Some((limit, goodput, tail)) = best_fixed(mix, servers, seeds[0]) {
            println!("| {} | {servers} | {limit} | {goodput:.3} | {tail:.2} |", name(mix));
        }
    }
    println!(
        "\nWhat gets through of each class, at 1.5x and 3x load:\n\n| mix | c | goodput | p99 | test | get | post | critical |"
    );
    for (mix, servers) in Mix::ALL.into_iter().flat_map(|mix| SERVERS.map(|servers| (mix, servers))) {
        print_classes(&ours, mix, servers, seeds);
    }
}

fn print_classes(kind: &Kind, mix: Mix, servers: usize, seeds: &[u64]) {
    let runs: Vec<_> = seeds.iter().map(|&seed| classes(kind, mix, servers, seed)).collect();
    let worst = |figure: &dyn Fn(usize) -> f64| (0..runs.len()).map(figure).fold(f64::INFINITY, f64::min);
    let passed = |class: Class| {
        let share = |load: usize| worst(&|run| runs[run][load].1[class]);
        format!("{:.1} / {:.1} %", 100.0 * share(0), 100.0 * share(1))
    };
    let goodput = |load: usize| worst(&|run| runs[run][load].0.goodput());
    let tail = |load: usize| -worst(&|run| -runs[run][load].0.p99() / mix.idle_p99());
    let shares = Class::ALL.map(|class| format!(" {} |", passed(class))).concat();
    let (name, one, three) = (name(mix), goodput(0), goodput(1));
    println!("| {name} | {servers} | {one:.3} / {three:.3} | {:.2} / {:.2} |{shares}", tail(0), tail(1));
}

fn name(mix: Mix) -> String {
    format!("{mix:?}").to_lowercase()
}

fn title(column: Column) -> String {
    let figure = match column.figure {
        Figure::Refused => "refused",
        Figure::Goodput => "goodput",
        Figure::Tail => "p99",
    };
    format!("{}: {figure}", column.phase)
}

fn cell(column: Column, value: f64) -> String {
    match column.figure {
        Figure::Refused => format!("{:.2} %", 100.0 * value),
        Figure::Goodput => format!("{value:.3}"),
        Figure::Tail => format!("{value:.2}"),
    }
}

/// What is to be said of a figure: a goal that is missed, or another cap that is better.
fn remark(column: Column, mix: Mix, servers: usize, values: &[f64], kinds: &[Kind]) -> Option<String> {
    let (ours, others) = values.split_first()?;
    let missed = if column.is_met(*ours) { String::new() } else { " misses its goal".to_owned() };
    let better = others.iter().zip(&kinds[1..]).filter(|(other, _)| !column.figure.is_as_good(*ours, **other));
    let better: Vec<_> = better.map(|(other, kind)| format!("{} {}", kind.name(), cell(column, *other))).collect();
    let better = if better.is_empty() { String::new() } else { format!(" (better: {})", better.join(", ")) };
    let text = format!("- {} c = {servers}, {}: {}{missed}{better}", name(mix), title(column), cell(column, *ours));
    (!missed.is_empty() || !better.is_empty()).then_some(text)
}
