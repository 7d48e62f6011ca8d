//! A trial: one fault under load, and the bounds that must hold.

use std::cell::RefCell;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tollgate_core::Source;
use tollgate_testing::{eventually, number_from_env};

use crate::fleet::load::{CheckResult, Load, Plan, Sample, check_until_refused};
use crate::fleet::servers::{Caller, Fleet, MEMORY, RuleKind};
use crate::fleet::statistics::{LoadStatistics, admitted, max_admitted_within};

/// The servers of trials: those on the store that fails, and a bystander with counters in memory, whose latency shows the effect
/// of the machine itself.
pub(crate) struct Testbed {
    fleet: Fleet,
    bystander: Fleet,
    /// The trial without a fault, and its bystander's. It comes first, and takes longer than the servers need to count each other:
    /// until then each would take more than its share when the store fails.
    baseline: Option<[LoadStatistics; 2]>,
}

/// A fault, and the callers of its load.
pub(crate) struct Trial {
    pub(crate) name: &'static str,
    pub(crate) callers: Vec<Caller>,
    /// The nodes that fail; callers of other nodes must not be affected.
    pub(crate) scope: FaultScope,
    pub(crate) bound: AdmissionBound,
}

/// The callers that a fault affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultScope {
    None,
    All,
    Node(usize),
}

/// How many requests of affected callers may be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionBound {
    /// As many as without the fault.
    Exact,
    /// The store was unavailable: as many again, and one for each server that rounds its share up.
    Outage,
    /// The store was unavailable and came back empty.
    OutageAndLoss,
    /// The store was available and lost its data.
    Loss,
}

/// A trial with its load.
pub(crate) struct RunningTrial<'t> {
    pub(crate) load: Load,
    trial: &'t Trial,
    /// The number of the fleet's servers; the next one is the bystander.
    servers: usize,
}

/// How long a check waits for the store by default.
const DEADLINE: Duration = Duration::from_millis(8);

/// The latency that is allowed beyond the deadline, without that of the machine itself.
const MAX_EXTRA_P999: Duration = Duration::from_millis(10);
const MAX_EXTRA: Duration = Duration::from_millis(100);

/// Requests a second to each server: so few that the machine does not limit the load.
const RATE: u64 = 150;

/// How many consecutive results from the store show that a server is connected again.
const CONSECUTIVE_RESULTS: usize = 8;

/// How often a trial runs until it is sound, and how many more times if the machine disturbed it.
const MAX_ATTEMPTS: usize = 3;
const MAX_DISTURBED: usize = 6;

/// A violation that the machine may have caused. A violation that it can't cause panics.
pub(crate) struct Violation {
    message: String,
    /// The longest latency of the bystander meanwhile, in microseconds.
    bystander_max: u64,
}

thread_local! {
    /// Whether each trial of this test was judged. The first one has no fault.
    static JUDGED: RefCell<Vec<bool>> = const { RefCell::new(Vec::new()) };
}

/// How many trials with a fault there were in all tests, and how many of them were judged.
static TRIALS: AtomicUsize = AtomicUsize::new(0);
static JUDGED_TRIALS: AtomicUsize = AtomicUsize::new(0);

/// Runs a trial, given the number of the attempt, until there is no violation. It fails after the last attempt, unless the machine
/// itself paused for longer than the servers' deadline: then the trial is not judged. See [`report_judged`].
#[track_caller]
pub(crate) fn run_until_sound(mut trial: impl FnMut(usize) -> Result<(), Violation>) {
    let record = |is_judged| JUDGED.with_borrow_mut(|judged| judged.push(is_judged));
    let mut disturbed = 0;
    for number in 0..MAX_ATTEMPTS + MAX_DISTURBED {
        if number - disturbed == MAX_ATTEMPTS {
            break;
        }
        let Err(Violation { message, bystander_max }) = trial(number) else { return record(true) };
        println!("  violation: {message}; the bystander took {bystander_max} µs");
        disturbed += usize::from(Duration::from_micros(bystander_max) > DEADLINE);
        if disturbed == MAX_DISTURBED {
            println!("  not judged: the machine is too busy");
            return record(false);
        }
    }
    panic!("every attempt had a violation");
}

/// Ends a test: prints how many of its trials were judged, and fails if none with a fault was.
#[track_caller]
pub(crate) fn report_judged(test: &str) {
    let trials = JUDGED.take();
    let with_fault = trials.get(1..).unwrap_or_default();
    let judged = with_fault.iter().filter(|judged| **judged).count();
    let all = TRIALS.fetch_add(with_fault.len(), Ordering::Relaxed) + with_fault.len();
    let all_judged = JUDGED_TRIALS.fetch_add(judged, Ordering::Relaxed) + judged;
    // Unlike println!, this is shown even if the test passes.
    let _ = writeln!(
        io::stderr(),
        "latency under faults, {test}: {judged} of {} trials judged; {all_judged} of {all} in this run so far",
        with_fault.len()
    );
    assert!(judged > 0, "{test}: no trial was judged: the machine is too busy");
}

impl Testbed {
    /// Two servers on this store.
    pub(crate) fn new(store: &str) -> Testbed {
        Testbed { fleet: Fleet::start(store, 2), bystander: Fleet::start(MEMORY, 1), baseline: None }
    }

    /// Runs a load, causes the fault, waits for recovery, and judges the results.
    #[track_caller]
    pub(crate) fn run(&mut self, trial: &Trial, fault: impl FnOnce(&RunningTrial<'_>)) -> Result<(), Violation> {
        let checks = trial.callers.iter().map(|caller| caller.check.clone()).collect();
        let servers = [self.fleet.addresses(), self.bystander.addresses()].concat();
        let load = Load::start(Plan { rate: RATE * servers.len() as u64, servers, checks });
        let running = RunningTrial { load, trial, servers: self.fleet.len() };
        running.continue_load();
        let before = running.load.samples().len();
        fault(&running);
        running.wait_for_recovery();
        let outage = running.load.samples().split_off(before);
        running.continue_load();
        let all = running.load.stop();
        let (samples, bystander): (Vec<Sample>, Vec<Sample>) =
            all.into_iter().partition(|sample| sample.server < self.fleet.len());
        let statistics = [LoadStatistics::from_samples(&samples), LoadStatistics::from_samples(&bystander)];
        println!("{:26} {}; {}", trial.name, statistics[0], trial.summary(&samples, &outage));
        println!("{:26} {}", "  the bystander", statistics[1]);
        let latency = self.judge_latency(&statistics);
        let counts = trial.judge_counts(&samples, &self.fleet);
        self.baseline.get_or_insert(statistics.clone());
        latency.and(counts).map_err(|message| Violation { message, bystander_max: statistics[1].max })
    }

    #[track_caller]
    fn judge_latency(&self, [statistics, bystander]: &[LoadStatistics; 2]) -> Result<(), String> {
        let errors = &statistics.errors;
        assert!(errors.is_empty(), "requests failed: {:?}", &errors[..errors.len().min(5)]);
        let baseline = self.baseline.as_ref();
        let allowed = |extra: Duration, latency: fn(&LoadStatistics) -> u64| {
            let baseline = baseline.map_or(0, |[baseline, _]| latency(baseline));
            (DEADLINE + extra).as_micros() as u64 + latency(bystander).max(baseline)
        };
        let (p999, max) =
            (allowed(MAX_EXTRA_P999, |statistics| statistics.p999), allowed(MAX_EXTRA, |statistics| statistics.max));
        match (statistics.p999 <= p999, statistics.max <= max) {
            (true, true) => Ok(()),
            (false, _) => Err(format!("p99.9 is {} µs; the bound is {p999}", statistics.p999)),
            (_, false) => Err(format!("the slowest request took {} µs; the bound is {max}", statistics.max)),
        }
    }
}

impl RunningTrial<'_> {
    /// Continues the load for `FLEET_SECONDS`, or for one and a half seconds.
    pub(crate) fn continue_load(&self) {
        let seconds = number_from_env("FLEET_SECONDS");
        let rate = RATE * (self.servers as u64 + 1);
        self.load.wait_for_more(seconds.map_or(rate * 3 / 2, |seconds| rate * seconds));
    }

    /// Waits until every server decides about affected callers by the store again.
    #[track_caller]
    fn wait_for_recovery(&self) {
        let since = self.load.samples().len();
        let has_recovered = |server: usize, samples: &[Sample]| {
            let affected =
                samples.iter().rev().filter(|sample| sample.server == server && self.trial.is_affected(sample.check));
            let last: Vec<&Sample> = affected.take(CONSECUTIVE_RESULTS).collect();
            last.len() == CONSECUTIVE_RESULTS
                && !last.iter().any(|sample| sample.result.is_without_store())
                && last.iter().any(|sample| matches!(sample.result, CheckResult::Decided { source: Source::Store, .. }))
        };
        if self.trial.callers.iter().enumerate().any(|(check, _)| self.trial.is_affected(check)) {
            let all = |samples: Vec<Sample>| (0..self.servers).all(|server| has_recovered(server, &samples[since..]));
            let recovered = eventually(|| all(self.load.samples()).then_some(()));
            assert!(recovered.is_some(), "{}: the servers did not reconnect to the store", self.trial.name);
        }
    }
}

impl Trial {
    fn is_affected(&self, check: usize) -> bool {
        match self.scope {
            FaultScope::None => false,
            FaultScope::All => true,
            FaultScope::Node(node) => self.callers[check].home.is_some_and(|(_, home)| home == node),
        }
    }

    /// The most requests of a caller that were admitted, by kind of rule; and how long the store was unavailable.
    fn summary(&self, samples: &[Sample], outage: &[Sample]) -> String {
        let mut worst: Vec<String> = Vec::new();
        for kind in &crate::fleet::servers::KINDS {
            let is_of_kind = |check: &usize| self.callers[*check].check.kind == kind.name && self.is_affected(*check);
            let checks = (0..self.callers.len()).filter(is_of_kind);
            if let Some(most) = checks.map(|check| max_admitted(kind, samples, check)).max() {
                worst.push(format!("{most} of {}", kind.limit));
            }
        }
        let first = outage.iter().find(|sample| sample.result.is_without_store());
        let last = outage.iter().rfind(|sample| sample.result.is_without_store());
        let outage = first.zip(last).map(|(first, last)| (last.ended - first.started) as f64 / 1e6);
        let outage = outage.map_or(String::new(), |seconds| format!("; without the store for {seconds:.1} s"));
        match worst.is_empty() {
            true if samples.iter().any(|sample| sample.result.is_without_store()) => {
                "exact except for those".to_owned()
            }
            true => "exact".to_owned(),
            false => format!("admitted {}{outage}", worst.join(", ")),
        }
    }

    /// Panics if too many or too few requests were admitted. Decisions without the store about callers of a healthy shard are a
    /// violation.
    #[track_caller]
    fn judge_counts(&self, samples: &[Sample], fleet: &Fleet) -> Result<(), String> {
        let mut judged = Ok(());
        for (check, caller) in self.callers.iter().enumerate() {
            let (is_affected, kind) = (self.is_affected(check), RuleKind::find(&caller.check));
            let mut tally = ResultTally::from_samples(kind, samples, check);
            let without_store = tally.without_store;
            let is_exact = !is_affected && kind.period.is_none();
            if is_exact {
                tally.add(&check_until_refused(&fleet.addresses(), &caller.check, 2 * kind.limit));
            }
            let admitted = tally.admitted;
            let bound = if is_affected { self.bound } else { AdmissionBound::Exact };
            let max = bound.max_admitted(kind.limit, fleet.len(), tally.local);
            assert!(admitted <= max, "{}: {caller:?}: {admitted} admitted, the bound is {max}", self.name);
            let is_short = is_exact && admitted < kind.limit && tally.without_store == 0;
            assert!(!is_short, "{}: {caller:?}: only {admitted} admitted", self.name);
            let has_effect =
                without_store > 0 || !matches!(bound, AdmissionBound::Outage | AdmissionBound::OutageAndLoss);
            assert!(has_effect, "{}: {caller:?} was not affected", self.name);
            if !is_affected && without_store * 100 > tally.checks {
                let (user, checks) = (&caller.check.user, tally.checks);
                judged = Err(format!("{user}: {without_store} of {checks} decisions without the store"));
            }
        }
        judged
    }
}

/// The results of one caller's checks.
struct ResultTally {
    checks: usize,
    /// Admitted, in all or in the worst period.
    admitted: usize,
    /// Decided without the store.
    without_store: usize,
    /// Admitted without the store. To a server, a machine that pauses for a deadline is an outage.
    local: usize,
}

impl ResultTally {
    fn from_samples(kind: &RuleKind, samples: &[Sample], check: usize) -> ResultTally {
        let own = samples.iter().filter(|sample| sample.check == check);
        let results: Vec<CheckResult> = own.map(|sample| sample.result.clone()).collect();
        let mut tally = ResultTally { checks: results.len(), admitted: 0, without_store: 0, local: 0 };
        tally.add(&results);
        ResultTally { admitted: max_admitted(kind, samples, check), ..tally }
    }

    fn add(&mut self, results: &[CheckResult]) {
        for result in results {
            self.admitted += usize::from(result.is_allowed());
            self.without_store += usize::from(result.is_without_store());
            self.local += usize::from(result.is_without_store() && result.is_allowed());
        }
    }
}

/// How many requests were admitted, in all or in the worst period.
fn max_admitted(kind: &RuleKind, samples: &[Sample], check: usize) -> usize {
    let own = samples.iter().filter(|sample| sample.check == check);
    match kind.period {
        Some(period) => max_admitted_within(own, period),
        None => admitted(own),
    }
}

impl AdmissionBound {
    /// The bound for a limit, this many servers, and `local` requests that they admitted without the store.
    fn max_admitted(self, limit: usize, servers: usize, local: usize) -> usize {
        match self {
            AdmissionBound::Exact => limit + local,
            AdmissionBound::Loss => 2 * limit + local,
            AdmissionBound::Outage => 2 * limit + servers,
            AdmissionBound::OutageAndLoss => 3 * limit + servers,
        }
    }
}
