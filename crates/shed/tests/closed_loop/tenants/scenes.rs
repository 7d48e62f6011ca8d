//! The scenes whose figures are compared, and what is compared in them.

use tollgate_shed::{ByClass, CapPolicy, CapSettings, FairnessSettings, ReserveRule, TierReserves};

use super::fronts::{Caps, Front};
use super::queues::Queues;
use super::{Flow, Outcomes, Stage, Tenants, run};
use crate::cells::USUAL_CLASSES;
use crate::upstream::Mix;

/// What decides requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The cap with its class shares.
    Cap,
    /// With reserves that are held back …
    HoldBack,
    /// … or above the limit.
    AboveLimit,
    /// The cap with its class shares, and a fairness shedder.
    Fairness,
    /// With reserves above the limit, and a fairness shedder.
    Both,
    /// Weighted fair queues, in which a request waits at most so many milliseconds.
    Queues(u64),
}

pub(crate) const FREE: usize = 0;
pub(crate) const PRO: usize = 1;
pub(crate) const ENTERPRISE: usize = 2;

/// The reserves of pro and enterprise.
const RESERVES: [f64; 2] = [0.2, 0.3];
const RESERVE_OF_TIER: [Option<usize>; 3] = [None, Some(0), Some(1)];

impl Kind {
    pub(crate) fn name(self) -> String {
        match self {
            Kind::Cap => "cap".to_owned(),
            Kind::HoldBack => "cap, reserves held back".to_owned(),
            Kind::AboveLimit => "cap, reserves above the limit".to_owned(),
            Kind::Fairness => "cap, fairness".to_owned(),
            Kind::Both => "cap, reserves, fairness".to_owned(),
            Kind::Queues(wait) => format!("queues, {wait} ms"),
        }
    }

    pub(crate) fn front(self, seed: u64) -> Box<dyn Front> {
        let reserves = |rule| CapSettings {
            reserves: TierReserves::new(&RESERVES).expect("valid reserves"),
            policy: CapPolicy { reserve_rule: rule, ..CapPolicy::default() },
            ..CapSettings::default()
        };
        let fairness = Some(FairnessSettings::default());
        let (none, above) = (CapSettings::default(), reserves(ReserveRule::AboveLimit));
        match self {
            Kind::Cap => Box::new(Caps::new(none, &[], None, seed)),
            Kind::HoldBack => Box::new(Caps::new(reserves(ReserveRule::HoldBack), &RESERVE_OF_TIER, None, seed)),
            Kind::AboveLimit => Box::new(Caps::new(above, &RESERVE_OF_TIER, None, seed)),
            Kind::Fairness => Box::new(Caps::new(none, &[], fairness, seed)),
            Kind::Both => Box::new(Caps::new(above, &RESERVE_OF_TIER, fairness, seed)),
            Kind::Queues(wait) => Box::new(Queues::new(none, &[0.5, 0.2, 0.3], wait * 1_000_000, seed)),
        }
    }
}

/// One stage after another.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    pub(crate) stages: Vec<Stage>,
}

const HEALTHY: f64 = 0.6;

fn flow(tier: usize, callers: u64, load: f64) -> Flow {
    Flow { tier, callers, load }
}

/// A flood of free callers. The others have a load of this part of their reserves.
pub(crate) fn flood(name: &'static str, load: f64, part: f64) -> Scene {
    let [pro, enterprise] = RESERVES.map(|reserve| reserve * part);
    let flows = vec![flow(FREE, 100, load - pro - enterprise), flow(PRO, 20, pro), flow(ENTERPRISE, 5, enterprise)];
    Scene { name, stages: vec![healthy(), Stage { seconds: 120, from: 10, flows }] }
}

/// Nobody but free callers, beyond the capacity.
pub(crate) fn alone(name: &'static str, load: f64) -> Scene {
    Scene { name, stages: vec![healthy(), Stage { seconds: 120, from: 10, flows: vec![flow(FREE, 100, load)] }] }
}

/// Reserved tiers come back to an upstream that free callers have filled: the first second of it.
pub(crate) fn comeback() -> Scene {
    let mut scene = alone("comeback", 1.5);
    let flows = vec![flow(FREE, 100, 1.25), flow(PRO, 20, 0.1), flow(ENTERPRISE, 5, 0.15)];
    scene.stages.push(Stage { seconds: 1, from: 0, flows });
    scene
}

/// One caller that sends as much as so many of 50 others, then as before.
pub(crate) fn noisy(name: &'static str, times: f64, load: f64) -> Scene {
    let one = load / (50.0 + times);
    let flows = vec![flow(FREE, 50, 50.0 * one), flow(FREE, 1, times * one)];
    let stages = vec![healthy(), Stage { seconds: 120, from: 20, flows }, Stage { from: 0, ..healthy() }];
    Scene { name, stages }
}

/// The same of the enterprise tier, with callers of the free tier who send much as well.
pub(crate) fn noisy_tiers(name: &'static str) -> Scene {
    let flows = vec![flow(FREE, 40, 0.3), flow(FREE, 2, 0.6), flow(ENTERPRISE, 10, 0.2), flow(ENTERPRISE, 1, 0.4)];
    Scene { name, stages: vec![healthy(), Stage { seconds: 120, from: 40, flows }] }
}

fn healthy() -> Stage {
    let flows = vec![flow(FREE, 50, HEALTHY * 0.6), flow(PRO, 10, HEALTHY * 0.2), flow(ENTERPRISE, 5, HEALTHY * 0.2)];
    Stage { seconds: 60, from: 0, flows }
}

/// Runs a scene with the classes of a usual API.
pub(crate) fn play(kind: Kind, scene: &Scene, mix: Mix, servers: usize, seed: u64) -> Vec<Outcomes> {
    let tenants = Tenants { mix, servers, seed, classes: USUAL_CLASSES };
    run(&mut *kind.front(seed), tenants, &scene.stages)
}

/// The same with one class, which may use the whole limit.
pub(crate) fn play_one_class(kind: Kind, scene: &Scene, mix: Mix, servers: usize, seed: u64) -> Vec<Outcomes> {
    let tenants = Tenants { mix, servers, seed, classes: ByClass::new([0.0, 0.0, 0.0, 1.0]) };
    run(&mut *kind.front(seed), tenants, &scene.stages)
}
