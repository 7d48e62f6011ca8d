//! The runs whose figures are compared, and the caps that are compared in them.

use tollgate_shed::{AdaptiveCap, ByClass, CapSettings, Class};

use crate::cap::{Cap, Fixed};
use crate::peers::{Envoy, Gradient2, Vegas};
use crate::run::{Measured, ONE_CLASS, Phase, World, run};
use crate::upstream::Mix;

/// Seeds that constants were chosen with. Those up to 105 were looked at before the last change.
pub(crate) const TUNING_SEEDS: [u64; 5] = [1, 2, 3, 4, 5];
/// Seeds that one choice was made with: that bursts count as refused.
#[allow(dead_code, reason = "the example that compares caps does not use them")]
pub(crate) const JUDGING_SEEDS: [u64; 5] = [201, 202, 203, 204, 205];
/// Seeds that no choice was made with.
#[allow(dead_code, reason = "only the example that compares caps uses them")]
pub(crate) const FRESH_SEEDS: [u64; 10] = [301, 302, 303, 304, 305, 306, 307, 308, 309, 310];
pub(crate) const SERVERS: [usize; 3] = [4, 16, 64];

const WELL: Phase = Phase { name: "", seconds: 0, load: 0.6, servers: 1.0, slowness: 1.0 };

/// One run through what happens to an upstream in its life.
pub(crate) const LIFE: [Phase; 9] = [
    Phase { name: "healthy", seconds: 130, ..WELL },
    Phase { name: "overload 2x", seconds: 130, load: 2.0, ..WELL },
    Phase { name: "healthy after", seconds: 60, ..WELL },
    Phase { name: "half the servers", seconds: 60, load: 1.0, servers: 0.5, ..WELL },
    Phase { name: "healthy again", seconds: 60, ..WELL },
    Phase { name: "1.5x slower at 0.9", seconds: 130, load: 0.9, slowness: 1.5, ..WELL },
    Phase { name: "fast again at 0.9", seconds: 60, load: 0.9, ..WELL },
    Phase { name: "2x slower at 0.3", seconds: 60, load: 0.3, slowness: 2.0, ..WELL },
    Phase { name: "overload 1.2x", seconds: 60, load: 1.2, ..WELL },
];

/// A start in overload.
pub(crate) const COLD: [Phase; 1] = [Phase { name: "cold start at 2x", seconds: 60, load: 2.0, ..WELL }];

/// The classes of a usual API.
pub(crate) const USUAL_CLASSES: ByClass<f64> = ByClass::new([0.1, 0.6, 0.25, 0.05]);
pub(crate) const OVERLOADS: [Phase; 2] = [
    Phase { name: "classes at 1.5x", seconds: 130, load: 1.5, ..WELL },
    Phase { name: "classes at 3x", seconds: 130, load: 3.0, ..WELL },
];

/// A kind of cap.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Ours(Box<CapSettings>),
    Envoy,
    Gradient2,
    Vegas,
    Fixed(u32),
}

impl Kind {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Kind::Ours(_) => "tollgate",
            Kind::Envoy => "envoy p50",
            Kind::Gradient2 => "gradient2",
            Kind::Vegas => "vegas",
            Kind::Fixed(_) => "fixed",
        }
    }

    /// Runs phases with a new cap.
    pub(crate) fn run(&self, world: World, phases: &[Phase], watch: &mut dyn FnMut(f64, f64)) -> Vec<Measured> {
        fn with(mut cap: impl Cap, world: World, phases: &[Phase], watch: &mut dyn FnMut(f64, f64)) -> Vec<Measured> {
            run(&mut cap, world, phases, watch)
        }
        match self {
            Kind::Ours(settings) => match AdaptiveCap::new(CapSettings::clone(settings), world.seed) {
                Ok(cap) => with(cap, world, phases, watch),
                Err(_) => Vec::new(),
            },
            Kind::Envoy => with(Envoy::new(world.seed), world, phases, watch),
            Kind::Gradient2 => with(Gradient2::new(), world, phases, watch),
            Kind::Vegas => with(Vegas::new(world.seed), world, phases, watch),
            Kind::Fixed(limit) => with(Fixed { limit: *limit, in_flight: 0 }, world, phases, watch),
        }
    }
}

/// Runs a life and a cold start.
pub(crate) fn live(kind: &Kind, mix: Mix, servers: usize, seed: u64) -> Vec<Measured> {
    let world = World { mix, servers, seed, classes: ONE_CLASS };
    let mut results = kind.run(world, &LIFE, &mut |_, _| {});
    results.extend(kind.run(world, &COLD, &mut |_, _| {}));
    results
}

/// The share of each class that gets through, in each overload.
pub(crate) fn classes(kind: &Kind, mix: Mix, servers: usize, seed: u64) -> Vec<(Measured, ByClass<f64>)> {
    let world = World { mix, servers, seed, classes: USUAL_CLASSES };
    let runs = OVERLOADS.iter().flat_map(|phase| kind.run(world, &[*phase], &mut |_, _| {}));
    runs.map(|measured| {
        let passed = ByClass::from_fn(|class: Class| measured.passed(class));
        (measured, passed)
    })
    .collect()
}
