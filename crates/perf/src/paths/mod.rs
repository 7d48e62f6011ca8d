//! The paths that are measured. Each prepares itself, warms up, and then repeats one iteration.

pub(crate) mod decisions;
pub(crate) mod gateway;
mod redis_codec;
mod rule_files;
pub(crate) mod wires;

/// A path with a budget.
pub(crate) struct MeasuredPath {
    pub(crate) name: &'static str,
    /// How often it is repeated while instructions are counted.
    pub(crate) iterations: u64,
    prepare: fn() -> Iteration,
}

/// One iteration of a path that is ready to run.
pub(crate) type Iteration = Box<dyn FnMut()>;

/// The name of the function whose instructions are counted, with everything that it calls.
pub(crate) const MEASURED: &str = "repeat_measured";

/// Iterations before instructions are counted: buffers have grown and counters exist then.
const WARM_UP: u64 = 2_000;

pub(crate) const ALL: &[MeasuredPath] = &[
    MeasuredPath { name: "decide, one limit", iterations: 5_000, prepare: decisions::one_limit },
    MeasuredPath { name: "decide, four limits", iterations: 5_000, prepare: decisions::four_limits },
    MeasuredPath { name: "decide, one limit refused", iterations: 5_000, prepare: decisions::refused },
    MeasuredPath {
        name: "decide, tenants, caller without an override",
        iterations: 5_000,
        prepare: decisions::others_overrides,
    },
    MeasuredPath {
        name: "decide, tenants, caller with an override",
        iterations: 5_000,
        prepare: decisions::own_override,
    },
    MeasuredPath { name: "decide, one limit, metrics", iterations: 5_000, prepare: decisions::counted },
    MeasuredPath { name: "decide, one limit, metrics and traffic", iterations: 5_000, prepare: decisions::sampled },
    MeasuredPath {
        name: "decide, one limit, metrics and heaviest keys",
        iterations: 5_000,
        prepare: decisions::observed,
    },
    MeasuredPath {
        name: "decide, four limits, metrics and heaviest keys",
        iterations: 5_000,
        prepare: decisions::four_observed,
    },
    MeasuredPath { name: "decide, one global limit", iterations: 5_000, prepare: decisions::one_global_limit },
    MeasuredPath { name: "decide, rare key, leases off", iterations: 5_000, prepare: decisions::rare_unleased },
    MeasuredPath { name: "decide, rare key, leases", iterations: 5_000, prepare: decisions::rare },
    MeasuredPath { name: "decide, busy key, leases", iterations: 5_000, prepare: decisions::busy },
    MeasuredPath { name: "gRPC check on a connection", iterations: 2_000, prepare: wires::grpc },
    MeasuredPath { name: "HTTP check on a connection", iterations: 2_000, prepare: wires::http },
    MeasuredPath {
        name: "HTTP check with a receipt, and its settlement",
        iterations: 1_000,
        prepare: wires::settlements,
    },
    MeasuredPath { name: "RESP throttle on a connection, 16 in a batch", iterations: 500, prepare: wires::resp },
    MeasuredPath { name: "gateway, GET that no rule applies to", iterations: 1_000, prepare: gateway::plain },
    MeasuredPath { name: "gateway, GET with two rates", iterations: 1_000, prepare: gateway::two_rates },
    MeasuredPath { name: "gateway, GET refused by a rate", iterations: 1_000, prepare: gateway::refused },
    MeasuredPath { name: "Redis codec, one limit", iterations: 5_000, prepare: redis_codec::one_limit },
    MeasuredPath { name: "Redis codec, four limits", iterations: 5_000, prepare: redis_codec::four_limits },
    MeasuredPath { name: "load 1,000 rules", iterations: 1, prepare: rule_files::load },
];

/// Runs one path: what valgrind is called with.
pub(crate) fn run(name: &str) -> Result<(), String> {
    let path = ALL.iter().find(|path| path.name == name).ok_or_else(|| format!("no path is called {name}"))?;
    let mut iteration = (path.prepare)();
    for _ in 0..WARM_UP.min(path.iterations) {
        iteration();
    }
    repeat_measured(path.iterations, &mut *iteration);
    Ok(())
}

/// Valgrind counts from the begin of this function to its end.
#[inline(never)]
fn repeat_measured(iterations: u64, iteration: &mut dyn FnMut()) {
    for _ in 0..iterations {
        iteration();
    }
}
