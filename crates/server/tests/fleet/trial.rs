//! One fault under load, and what must hold of it.

use std::time::Duration;

use tollgate_core::Source;

use crate::figures::{Figures, admitted, most_within};
use crate::fleet::{Caller, Fleet, Kind, MEMORY};
use crate::load::{Answer, Load, Plan, Sample, until_refused};
use crate::server::eventually;

/// Where trials take place: servers on the store that fails, and one that has nothing to do with it and shows what the machine
/// itself does to answers meanwhile.
pub(crate) struct Stage {
    fleet: Fleet,
    bystander: Fleet,
    /// The run without a fault.
    control: Option<Figures>,
}

/// A fault.
pub(crate) struct Trial {
    pub(crate) name: &'static str,
    pub(crate) callers: Vec<Caller>,
    /// The nodes that it hits; the callers of all others must not notice. Without a cluster it hits everybody.
    pub(crate) hits: Hits,
    pub(crate) bound: Bound,
}

/// Whom a fault hits.
pub(crate) enum Hits {
    Nobody,
    Everybody,
    Node(usize),
}

/// What may be let pass of the callers that a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// As many as without it.
    Exact,
    /// The store was away: as many again, and one for each server that rounds its share up.
    Outage,
    /// It was away and came back empty.
    OutageAndLoss,
    /// It was there and lost all it had.
    Loss,
}

/// A trial that runs.
pub(crate) struct Running<'t> {
    pub(crate) load: Load,
    trial: &'t Trial,
    servers: usize,
}

/// How long a check waits for the store by default.
const DEADLINE: Duration = Duration::from_millis(8);

/// What may come on top of it, for one request in a thousand and for the slowest. What the machine itself takes comes besides.
const MOST_P999: Duration = Duration::from_millis(10);
const MOST_MAX: Duration = Duration::from_millis(100);

/// Requests a second to the fleet, and to the bystander.
const RATE: u64 = 300;
const BESIDE: u64 = 100;

/// Answers in a row from the store after which a server has it back.
const IN_A_ROW: usize = 8;

impl Stage {
    /// Two servers on this store.
    pub(crate) fn on(store: &str) -> Stage {
        Stage { fleet: Fleet::start(store, 2), bystander: Fleet::start(MEMORY, 1), control: None }
    }

    /// Runs a load, does this to the store in the middle, waits until all is as before, and looks at what came of it.
    #[track_caller]
    pub(crate) fn run(&mut self, trial: Trial, fault: impl FnOnce(&Running<'_>)) {
        let asks: Vec<_> = trial.callers.iter().map(|caller| caller.ask.clone()).collect();
        let plan = |fleet: &Fleet, rate| Plan { servers: fleet.addresses(), asks: asks.clone(), rate };
        let beside = Load::start(plan(&self.bystander, BESIDE));
        let load = Load::start(plan(&self.fleet, RATE));
        let running = Running { load, trial: &trial, servers: self.fleet.len() };
        running.a_while();
        let before = running.load.so_far().len();
        fault(&running);
        running.until_back();
        let back = running.load.so_far();
        running.a_while();
        let samples = running.load.stop();
        let (figures, beside) = (Figures::of(&samples), Figures::of(&beside.stop()));
        println!("{:24} {figures}; {}", trial.name, trial.summary(&samples, &back[before..]));
        println!("{:24} {beside}", "  a server beside it");
        self.check_times(&figures, &beside);
        trial.check_counts(&samples, &self.fleet);
        self.control.get_or_insert(figures);
    }

    #[track_caller]
    fn check_times(&self, figures: &Figures, beside: &Figures) {
        assert!(figures.errors.is_empty(), "callers saw errors: {:?}", &figures.errors[..figures.errors.len().min(5)]);
        let control = self.control.clone().unwrap_or_else(|| figures.clone());
        let most = |more: Duration, machine: u64| (DEADLINE + more).as_micros() as u64 + machine;
        assert!(figures.p999 <= most(MOST_P999, control.p999.max(beside.p999)), "p99.9 is {} µs", figures.p999);
        assert!(figures.max <= most(MOST_MAX, control.max.max(beside.max)), "the slowest took {} µs", figures.max);
    }
}

impl Running<'_> {
    /// Goes on for a while: `FLEET_SECONDS`, or so long that something happens.
    pub(crate) fn a_while(&self) {
        let seconds = std::env::var("FLEET_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
        self.load.until_more(seconds.map_or(RATE * 3 / 2, |seconds: u64| seconds * RATE));
    }

    /// Waits until every server answers again from the store to those who were hit.
    #[track_caller]
    fn until_back(&self) {
        let since = self.load.so_far().len();
        let is_back = |server: usize, samples: &[Sample]| {
            let hit = samples.iter().rev().filter(|sample| sample.server == server && self.trial.is_hit(sample.ask));
            let last: Vec<&Sample> = hit.take(IN_A_ROW).collect();
            last.len() == IN_A_ROW
                && !last.iter().any(|sample| sample.is_without_store())
                && last.iter().any(|sample| matches!(sample.answer, Answer::Decided { source: Source::Store, .. }))
        };
        if self.trial.callers.iter().enumerate().any(|(ask, _)| self.trial.is_hit(ask)) {
            let all = |samples: Vec<Sample>| (0..self.servers).all(|server| is_back(server, &samples[since..]));
            let back = eventually(|| all(self.load.so_far()).then_some(()));
            assert!(back.is_some(), "{}: the store did not come back by itself", self.trial.name);
        }
    }
}

impl Trial {
    fn is_hit(&self, ask: usize) -> bool {
        match self.hits {
            Hits::Nobody => false,
            Hits::Everybody => true,
            Hits::Node(node) => self.callers[ask].home.is_some_and(|(_, home)| home == node),
        }
    }

    /// The most that were let pass, beside what may be; and when the store was back.
    fn summary(&self, samples: &[Sample], outage: &[Sample]) -> String {
        let mut worst: Vec<String> = Vec::new();
        for kind in &crate::fleet::KINDS {
            let asks =
                (0..self.callers.len()).filter(|ask| self.callers[*ask].ask.kind == kind.name && self.is_hit(*ask));
            if let Some(most) = asks.map(|ask| passed(kind, samples, ask)).max() {
                worst.push(format!("{most} of {}", kind.limit));
            }
        }
        let first = outage.iter().find(|sample| sample.is_without_store());
        let last = outage.iter().rfind(|sample| sample.is_without_store());
        let away = first.zip(last).map(|(first, last)| (last.ended - first.begun) as f64 / 1e6);
        let away = away.map_or(String::new(), |seconds| format!("; without it for {seconds:.1} s"));
        match worst.is_empty() {
            true => format!("all exact{away}"),
            false => format!("passed {}{away}", worst.join(", ")),
        }
    }

    #[track_caller]
    fn check_counts(&self, samples: &[Sample], fleet: &Fleet) {
        let of = |ask: usize| samples.iter().filter(move |sample| sample.ask == ask);
        let outage = matches!(self.bound, Bound::Outage | Bound::OutageAndLoss);
        for (ask, caller) in self.callers.iter().enumerate() {
            let kind = Kind::of(&caller.ask);
            let without = of(ask).filter(|sample| sample.is_without_store()).count();
            let passed = passed(kind, samples, ask);
            if self.is_hit(ask) && self.bound != Bound::Exact {
                let most = self.bound.most(kind.limit, fleet.len());
                assert!(passed <= most, "{caller:?}: {passed} passed, at most {most} may");
                assert!(!outage || without > 0, "{}: {caller:?} did not notice it", self.name);
                continue;
            }
            // A machine that is busy with something else may let a deadline pass.
            assert!(without * 100 <= of(ask).count(), "{caller:?}: {without} answers without the store");
            if kind.period.is_some() {
                assert!(passed <= kind.limit + without, "{caller:?}: {passed} passed in one period");
                continue;
            }
            let later = until_refused(&fleet.addresses(), &caller.ask, kind.limit + 1);
            let all = passed + later;
            assert!(all <= kind.limit + without, "{caller:?}: {all} passed");
            assert!(all == kind.limit || without > 0, "{caller:?}: only {all} passed");
        }
    }
}

/// How many were let pass, in all or in the worst period.
fn passed(kind: &Kind, samples: &[Sample], ask: usize) -> usize {
    let own = samples.iter().filter(|sample| sample.ask == ask);
    match kind.period {
        Some(period) => most_within(own, period),
        None => admitted(own),
    }
}

impl Bound {
    /// Of a limit, by so many servers.
    fn most(self, limit: usize, servers: usize) -> usize {
        match self {
            Bound::Exact => limit,
            Bound::Loss => 2 * limit,
            Bound::Outage => 2 * limit + servers,
            Bound::OutageAndLoss => 3 * limit + servers,
        }
    }
}
