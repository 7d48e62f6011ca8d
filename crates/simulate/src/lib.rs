//! Simulates a fleet of servers that share limits.
//!
//! Decisions are those of `tollgate-core`, and leases are those of `tollgate-store`: the code that servers run. What is
//! simulated is around them: requests, the network, the store's queue, clocks and faults. There is no I/O, no clock and no
//! thread, and all randomness depends on the seed of the [`Scenario`]: equal scenarios have equal results.
//!
//! At every admission the simulator checks that no limit is exceeded, and at the end that all units are accounted for.

mod bound;
mod counters;
mod engine;
mod goal;
mod measure;
mod outcome;
mod picture;
pub mod presets;
mod random;
pub mod report;
mod scenario;
pub mod size;
mod traffic;
mod worlds;

pub use bound::most_requests_for_a_call;
pub use goal::{Goal, Judgement};
pub use measure::{Calls, Moment, ServerTally, Times, Window};
pub use outcome::{Outcome, Violation};
pub use picture::svg;
pub use scenario::{
    Bursts, Fault, Lost, Network, PlannedFault, PlannedLimit, PlannedMode, PlannedRegion, PlannedRegions, Routing,
    Scenario, ScenarioProblem, Traffic,
};
pub use worlds::random_world;

/// Runs a scenario. `progress` is called now and then with the share that is done.
pub fn simulate(scenario: &Scenario, progress: &mut dyn FnMut(f64)) -> Outcome {
    let world = engine::World::new(scenario);
    engine::Engine::new(scenario, &world).run(progress)
}
