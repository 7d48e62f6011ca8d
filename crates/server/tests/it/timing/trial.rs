//! One fault under load, and what must hold of it.

use std::cell::RefCell;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tollgate_core::Source;
use tollgate_testing::{eventually, number_from_env};

use crate::fleet::figures::{Figures, admitted, most_within};
use crate::fleet::load::{Answer, Load, Plan, Sample, until_refused};
use crate::fleet::servers::{Caller, Fleet, Kind, MEMORY};

/// Where trials take place: servers on the store that fails, and one that has nothing to do with it and shows what the machine
/// itself does to answers meanwhile.
pub(crate) struct Stage {
    fleet: Fleet,
    bystander: Fleet,
    /// The run without a fault, and its bystander's. It comes first, and takes longer than the servers need to hear of each other:
    /// until then each would take more than its share when the store fails.
    control: Option<[Figures; 2]>,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Those of the fleet; the one after them is the bystander.
    servers: usize,
}

/// How long a check waits for the store by default.
const DEADLINE: Duration = Duration::from_millis(8);

/// What may come on top of it, for one request in a thousand and for the slowest. What the machine itself takes comes besides.
const MOST_P999: Duration = Duration::from_millis(10);
const MOST_MAX: Duration = Duration::from_millis(100);

/// Requests a second, to each server: so few that the servers and not the machine are measured.
const RATE: u64 = 150;

/// Answers in a row from the store after which a server has it back.
const IN_A_ROW: usize = 8;

/// How often a trial is tried that was not as it should be, and how often one that the machine spoilt.
const TRIES: usize = 3;
const SPOILT_TRIES: usize = 2;

/// What was not as it should be, although it may be the machine that did it; what may never be panics.
pub(crate) struct Flaw {
    what: String,
    /// The longest, in microseconds, that the bystander's callers waited meanwhile.
    machine: u64,
}

thread_local! {
    /// Whether each trial of this test was judged. The first is the one without a fault.
    static JUDGED: RefCell<Vec<bool>> = const { RefCell::new(Vec::new()) };
}

/// The trials of all tests with a fault, and those of them that were judged.
static TRIALS: AtomicUsize = AtomicUsize::new(0);
static JUDGED_TRIALS: AtomicUsize = AtomicUsize::new(0);

/// Runs a trial, given its number, until it is as it should be. One that never is fails, unless the machine itself stood still for
/// longer than the servers' deadline: that says nothing about them, and the trial is not judged. See [`report_judged`].
#[track_caller]
pub(crate) fn tried(mut trial: impl FnMut(usize) -> Result<(), Flaw>) {
    let note = |is_judged| JUDGED.with_borrow_mut(|judged| judged.push(is_judged));
    let mut spoilt = 0;
    for number in 0..TRIES {
        let Err(Flaw { what, machine }) = trial(number) else { return note(true) };
        println!("  not as it should be: {what}; the server without a store took {machine} µs");
        spoilt += usize::from(Duration::from_micros(machine) > DEADLINE);
        if spoilt == SPOILT_TRIES {
            println!("  not judged: the machine is too busy");
            return note(false);
        }
    }
    panic!("not once as it should be");
}

/// Ends a test: prints how many of its trials were judged, and fails if none with a fault was.
#[track_caller]
pub(crate) fn report_judged(test: &str) {
    let trials = JUDGED.take();
    let with_fault = trials.get(1..).unwrap_or_default();
    let judged = with_fault.iter().filter(|judged| **judged).count();
    let all = TRIALS.fetch_add(with_fault.len(), Ordering::Relaxed) + with_fault.len();
    let all_judged = JUDGED_TRIALS.fetch_add(judged, Ordering::Relaxed) + judged;
    // Not by println!, which is shown only if the test fails.
    let _ = writeln!(
        io::stderr(),
        "latency under faults, {test}: {judged} of {} trials judged; {all_judged} of {all} in this run so far",
        with_fault.len()
    );
    assert!(judged > 0, "{test}: no trial was judged: the machine is too busy");
}

impl Stage {
    /// Two servers on this store.
    pub(crate) fn on(store: &str) -> Stage {
        Stage { fleet: Fleet::start(store, 2), bystander: Fleet::start(MEMORY, 1), control: None }
    }

    /// Runs a load, does this to the store in the middle, waits until all is as before, and looks at what came of it.
    #[track_caller]
    pub(crate) fn run(&mut self, trial: &Trial, fault: impl FnOnce(&Running<'_>)) -> Result<(), Flaw> {
        let asks = trial.callers.iter().map(|caller| caller.ask.clone()).collect();
        let servers = [self.fleet.addresses(), self.bystander.addresses()].concat();
        let load = Load::start(Plan { rate: RATE * servers.len() as u64, servers, asks });
        let running = Running { load, trial, servers: self.fleet.len() };
        running.a_while();
        let before = running.load.so_far().len();
        fault(&running);
        running.until_back();
        let outage = running.load.so_far().split_off(before);
        running.a_while();
        let all = running.load.stop();
        let (samples, beside): (Vec<Sample>, Vec<Sample>) =
            all.into_iter().partition(|sample| sample.server < self.fleet.len());
        let figures = [Figures::of(&samples), Figures::of(&beside)];
        println!("{:26} {}; {}", trial.name, figures[0], trial.summary(&samples, &outage));
        println!("{:26} {}", "  a server beside it", figures[1]);
        let times = self.judge_times(&figures);
        let counts = trial.judge_counts(&samples, &self.fleet);
        self.control.get_or_insert(figures.clone());
        times.and(counts).map_err(|what| Flaw { what, machine: figures[1].max })
    }

    #[track_caller]
    fn judge_times(&self, [figures, beside]: &[Figures; 2]) -> Result<(), String> {
        assert!(figures.errors.is_empty(), "callers saw errors: {:?}", &figures.errors[..figures.errors.len().min(5)]);
        let control = self.control.as_ref();
        let most = |more: Duration, machine: fn(&Figures) -> u64| {
            let control = control.map_or(0, |[control, _]| machine(control));
            (DEADLINE + more).as_micros() as u64 + machine(beside).max(control)
        };
        let (p999, max) = (most(MOST_P999, |figures| figures.p999), most(MOST_MAX, |figures| figures.max));
        match (figures.p999 <= p999, figures.max <= max) {
            (true, true) => Ok(()),
            (false, _) => Err(format!("p99.9 is {} µs, at most {p999} are good", figures.p999)),
            (_, false) => Err(format!("the slowest took {} µs, at most {max} are good", figures.max)),
        }
    }
}

impl Running<'_> {
    /// Goes on for a while: `FLEET_SECONDS`, or so long that something happens.
    pub(crate) fn a_while(&self) {
        let seconds = number_from_env("FLEET_SECONDS");
        let rate = RATE * (self.servers as u64 + 1);
        self.load.until_more(seconds.map_or(rate * 3 / 2, |seconds| rate * seconds));
    }

    /// Waits until every server answers again from the store to those who were hit.
    #[track_caller]
    fn until_back(&self) {
        let since = self.load.so_far().len();
        let is_back = |server: usize, samples: &[Sample]| {
            let hit = samples.iter().rev().filter(|sample| sample.server == server && self.trial.is_hit(sample.ask));
            let last: Vec<&Sample> = hit.take(IN_A_ROW).collect();
            last.len() == IN_A_ROW
                && !last.iter().any(|sample| sample.answer.is_without_store())
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
        for kind in &crate::fleet::servers::KINDS {
            let asks =
                (0..self.callers.len()).filter(|ask| self.callers[*ask].ask.kind == kind.name && self.is_hit(*ask));
            if let Some(most) = asks.map(|ask| passed(kind, samples, ask)).max() {
                worst.push(format!("{most} of {}", kind.limit));
            }
        }
        let first = outage.iter().find(|sample| sample.answer.is_without_store());
        let last = outage.iter().rfind(|sample| sample.answer.is_without_store());
        let away = first.zip(last).map(|(first, last)| (last.ended - first.begun) as f64 / 1e6);
        let away = away.map_or(String::new(), |seconds| format!("; without it for {seconds:.1} s"));
        match worst.is_empty() {
            true if samples.iter().any(|sample| sample.answer.is_without_store()) => "exact but for those".to_owned(),
            true => "exact".to_owned(),
            false => format!("passed {}{away}", worst.join(", ")),
        }
    }

    /// Panics if more passed than may, or fewer. That a caller was answered without the store although his shard was well is an
    /// error.
    #[track_caller]
    fn judge_counts(&self, samples: &[Sample], fleet: &Fleet) -> Result<(), String> {
        let mut judged = Ok(());
        for (ask, caller) in self.callers.iter().enumerate() {
            let (is_hit, kind) = (self.is_hit(ask), Kind::of(&caller.ask));
            let mut tally = Tally::of(kind, samples, ask);
            let without = tally.without;
            let is_exact = !is_hit && kind.period.is_none();
            if is_exact {
                tally.add(&until_refused(&fleet.addresses(), &caller.ask, 2 * kind.limit));
            }
            let passed = tally.passed;
            let bound = if is_hit { self.bound } else { Bound::Exact };
            let most = bound.most(kind.limit, fleet.len(), tally.local);
            assert!(passed <= most, "{}: {caller:?}: {passed} passed, at most {most} may", self.name);
            let is_short = is_exact && passed < kind.limit && tally.without == 0;
            assert!(!is_short, "{}: {caller:?}: only {passed} passed", self.name);
            let noticed = without > 0 || !matches!(bound, Bound::Outage | Bound::OutageAndLoss);
            assert!(noticed, "{}: {caller:?} did not notice it", self.name);
            if !is_hit && without * 100 > tally.asked {
                judged = Err(format!("{}: {without} of {} answers without the store", caller.ask.user, tally.asked));
            }
        }
        judged
    }
}

/// What one caller was answered.
struct Tally {
    asked: usize,
    /// Let pass, in all or in the worst period.
    passed: usize,
    /// Answered without the store.
    without: usize,
    /// Those of them that were let pass. A machine that stands still for a deadline is an outage to a server.
    local: usize,
}

impl Tally {
    fn of(kind: &Kind, samples: &[Sample], ask: usize) -> Tally {
        let answers: Vec<Answer> =
            samples.iter().filter(|sample| sample.ask == ask).map(|sample| sample.answer.clone()).collect();
        let mut tally = Tally { asked: answers.len(), passed: 0, without: 0, local: 0 };
        tally.add(&answers);
        Tally { passed: passed(kind, samples, ask), ..tally }
    }

    fn add(&mut self, answers: &[Answer]) {
        for answer in answers {
            self.passed += usize::from(answer.is_allowed());
            self.without += usize::from(answer.is_without_store());
            self.local += usize::from(answer.is_without_store() && answer.is_allowed());
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
    /// Of a limit, by so many servers, which by themselves let so many pass.
    fn most(self, limit: usize, servers: usize, local: usize) -> usize {
        match self {
            Bound::Exact => limit + local,
            Bound::Loss => 2 * limit + local,
            Bound::Outage => 2 * limit + servers,
            Bound::OutageAndLoss => 3 * limit + servers,
        }
    }
}
