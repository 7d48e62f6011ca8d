//! Callers of several tiers in front of one upstream: who gets through when there is too much load.

pub(crate) mod fronts;
pub(crate) mod queues;
pub(crate) mod scenes;

use tollgate_shed::{Begun, ByClass, Class};

use crate::random::Random;
use crate::upstream::{Job, MEAN, Mix, Upstream};
use fronts::{Front, Outcome, Waiting};

/// Callers that behave alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    /// 0 is the lowest.
    pub(crate) tier: usize,
    /// How many callers there are.
    pub(crate) callers: u64,
    /// Their requests together, in relation to what the upstream can do.
    pub(crate) load: f64,
}

/// A time with the same load.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub(crate) seconds: u64,
    /// What is measured begins after so many seconds.
    pub(crate) from: u64,
    pub(crate) flows: Vec<Flow>,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: u64,
    /// The place of its flow in the stage.
    pub(crate) flow: usize,
    pub(crate) tier: usize,
    /// Different for each caller.
    pub(crate) caller: u64,
    pub(crate) class: Class,
}

/// What a stage came to.
#[derive(Clone, Debug)]
pub(crate) struct Outcomes {
    pub(crate) flows: Vec<FlowOutcome>,
    /// What ended in relation to what could have.
    pub(crate) goodput: f64,
    /// How much was lowered at the end of each tenth of a second.
    pub(crate) lowered: Vec<f64>,
}

/// What a flow came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowOutcome {
    offered: u64,
    refused: u64,
    /// From the arrival to the end, in microseconds.
    latencies: Vec<u32>,
}

/// An upstream and its requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tenants {
    pub(crate) mix: Mix,
    pub(crate) servers: usize,
    pub(crate) seed: u64,
    pub(crate) classes: ByClass<f64>,
}

const SECOND: u64 = 1_000_000_000;
const TENTH: u64 = SECOND / 10;

impl FlowOutcome {
    /// The share of the requests that got through.
    pub(crate) fn passed(&self) -> f64 {
        1.0 - self.refused as f64 / (self.offered as f64).max(1.0)
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }
}

impl Outcomes {
    /// The 99th percentile of the latency of some flows, waiting included, in nanoseconds.
    pub(crate) fn p99(&self, flows: impl Fn(usize) -> bool) -> f64 {
        let chosen = self.flows.iter().enumerate().filter(|(flow, _)| flows(*flow));
        let mut latencies: Vec<u32> = chosen.flat_map(|(_, flow)| flow.latencies.iter().copied()).collect();
        if latencies.is_empty() {
            return f64::NAN;
        }
        let at = (latencies.len() * 99 / 100).min(latencies.len() - 1);
        f64::from(*latencies.select_nth_unstable(at).1) * 1e3
    }
}

/// Runs the stages one after the other.
pub(crate) fn run(front: &mut dyn Front, tenants: Tenants, stages: &[Stage]) -> Vec<Outcomes> {
    let mut upstream = Upstream::<(Arrival, Begun)>::new(tenants.mix, tenants.servers, tenants.seed);
    let mut random = Random::new(tenants.seed, 5);
    let (mut began, mut results) = (0, Vec::new());
    for stage in stages {
        let load: f64 = stage.flows.iter().map(|flow| flow.load).sum();
        let gap = MEAN / (tenants.servers as f64 * load);
        let (from, ends) = (began + stage.from * SECOND, began + stage.seconds * SECOND);
        let mut outcomes =
            Outcomes { flows: vec![FlowOutcome::default(); stage.flows.len()], goodput: 0.0, lowered: Vec::new() };
        let (mut ended, mut watched) = (0u64, began);
        let mut arrival = began + (gap * random.exponential()) as u64;
        loop {
            let end = upstream.next_end().unwrap_or(u64::MAX);
            let now = end.min(arrival);
            if now >= ends {
                break;
            }
            while now >= watched {
                outcomes.lowered.push(front.lowered());
                watched += TENTH;
            }
            if end <= arrival {
                let Some((now, job)) = upstream.finish() else { break };
                let (request, begun) = job.begun;
                front.end(request, begun, now);
                // Requests of the stage before are in flight when another begins.
                if let Some(flow) = outcomes.flows.get_mut(request.flow).filter(|_| request.at >= from) {
                    flow.latencies.push(((now - request.at) / 1_000) as u32);
                }
                ended += u64::from(now >= from);
            } else {
                let request = draw(&stage.flows, load, tenants.classes, now, &mut random);
                let flow = &mut outcomes.flows[request.flow];
                flow.offered += u64::from(now >= from);
                match front.arrive(request, now) {
                    Outcome::Sent(begun) => upstream.arrive(Job { begun: (request, begun), arrived: now }, now),
                    Outcome::Waits => {}
                    Outcome::Refused => flow.refused += u64::from(now >= from),
                }
                arrival = now + (gap * random.exponential()) as u64;
            }
            while let Some(waiting) = front.next_waiting(now) {
                match waiting {
                    Waiting::Sent(request, begun) => {
                        upstream.arrive(Job { begun: (request, begun), arrived: request.at }, now);
                    }
                    Waiting::Expired(request) => {
                        if let Some(flow) = outcomes.flows.get_mut(request.flow).filter(|_| request.at >= from) {
                            flow.refused += 1;
                        }
                    }
                }
            }
        }
        let possible = load.min(1.0) * tenants.servers as f64 * (ends - from) as f64 / MEAN;
        outcomes.goodput = ended as f64 / possible;
        results.push(outcomes);
        began = ends;
    }
    results
}

fn draw(flows: &[Flow], load: f64, classes: ByClass<f64>, at: u64, random: &mut Random) -> Arrival {
    let mut left = load * random.unit();
    let chosen = flows.iter().position(|flow| {
        left -= flow.load;
        left < 0.0
    });
    let flow = chosen.unwrap_or(0);
    let caller = ((flow as u64) << 32) | (random.unit() * flows[flow].callers as f64) as u64;
    Arrival { at, flow, tier: flows[flow].tier, caller, class: crate::run::class(&classes, random.unit()) }
}
