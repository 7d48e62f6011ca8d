//! What is expected of a cap in each phase, and how far the best limit that never changes would get.

use crate::cells::{COLD, Kind, LIFE, live};
use crate::run::{Measured, ONE_CLASS, World};
use crate::upstream::Mix;

/// A figure of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// The share of the requests that is refused. Of the seeds, the worst.
    Refused,
    /// What ended in relation to what could have. Of the seeds, the worst.
    Goodput,
    /// The 99th percentile of the latency in relation to the same without a queue. Of the seeds, the median.
    Tail,
}

/// A column of the table: a figure of a phase, and what it should be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) phase: &'static str,
    pub(crate) figure: Figure,
    pub(crate) goal: Option<f64>,
}

const fn column(phase: &'static str, figure: Figure, goal: Option<f64>) -> Column {
    Column { phase, figure, goal }
}

pub(crate) const COLUMNS: [Column; 13] = [
    column("healthy", Figure::Refused, Some(0.001)),
    column("overload 2x", Figure::Goodput, Some(0.98)),
    column("overload 2x", Figure::Tail, Some(1.3)),
    column("healthy after", Figure::Refused, Some(0.001)),
    column("half the servers", Figure::Goodput, None),
    column("half the servers", Figure::Tail, None),
    column("healthy again", Figure::Refused, Some(0.001)),
    column("1.5x slower at 0.9", Figure::Goodput, Some(0.95)),
    column("fast again at 0.9", Figure::Refused, None),
    column("2x slower at 0.3", Figure::Refused, None),
    column("overload 1.2x", Figure::Goodput, None),
    column("cold start at 2x", Figure::Goodput, None),
    column("cold start at 2x", Figure::Tail, None),
];

impl Figure {
    fn of(self, measured: &Measured, idle_p99: f64) -> f64 {
        match self {
            Figure::Refused => measured.refused_share(),
            Figure::Goodput => measured.goodput(),
            Figure::Tail => measured.p99() / idle_p99,
        }
    }

    fn of_seeds(self, mut values: Vec<f64>) -> f64 {
        values.sort_by(f64::total_cmp);
        match self {
            Figure::Refused => values[values.len() - 1],
            Figure::Goodput => values[0],
            Figure::Tail => values[values.len() / 2],
        }
    }

    /// Whether one value is at least as good as another, give or take what nobody would notice.
    pub(crate) fn is_as_good(self, value: f64, other: f64) -> bool {
        match self {
            Figure::Refused => value <= other + 0.001,
            Figure::Goodput => value >= other - 0.005,
            Figure::Tail => value <= other * 1.05,
        }
    }
}

impl Column {
    pub(crate) fn is_met(self, value: f64) -> bool {
        self.goal.is_none_or(|goal| match self.figure {
            Figure::Goodput => value >= goal,
            Figure::Refused | Figure::Tail => value <= goal,
        })
    }
}

/// The figures of a cap in front of one upstream, a column each.
pub(crate) fn figures(kind: &Kind, mix: Mix, servers: usize, seeds: &[u64]) -> Vec<f64> {
    let idle_p99 = mix.idle_p99();
    let runs: Vec<_> = seeds.iter().map(|&seed| live(kind, mix, servers, seed)).collect();
    let names: Vec<_> = LIFE.iter().chain(&COLD).map(|phase| phase.name).collect();
    let value = |column: &Column| {
        let at = names.iter().position(|name| *name == column.phase).unwrap_or(0);
        column.figure.of_seeds(runs.iter().map(|run| column.figure.of(&run[at], idle_p99)).collect())
    };
    COLUMNS.iter().map(value).collect()
}

/// The limit that never changes with the least tail at 2x load of those with enough goodput, and its figures there: it
/// knows the upstream, and no cap can be much better.
pub(crate) fn best_fixed(mix: Mix, servers: usize, seed: u64) -> Option<(u32, f64, f64)> {
    let overload = LIFE[1];
    (servers as u32..2 * servers as u32 + 4).find_map(|limit| {
        let world = World { mix, servers, seed, classes: ONE_CLASS };
        let measured = Kind::Fixed(limit).run(world, &[overload], &mut |_, _| {}).pop()?;
        let goodput = measured.goodput();
        (goodput >= 0.98).then(|| (limit, goodput, measured.p99() / mix.idle_p99()))
    })
}
