//! Contenders that take turns under load, and what came of it.

use super::LOAD_CORE;
use super::process::{self, Server};
use crate::load;

/// What one contender did in one turn.
#[derive(Clone, Copy)]
pub struct Turn {
    /// Answers a second.
    pub rate: f64,
    /// The shares of a core that the server, those that it asks in turn and the load used.
    pub server: f64,
    pub backends: f64,
    pub load: f64,
}

/// All turns of one contender.
pub struct Turns(Vec<Turn>);

/// A contender's name, and what makes it work for so many seconds.
pub type Contender<'a> = (&'a str, &'a dyn Fn(f64) -> Turn);

/// How long the turn before those that count is.
const WARM_UP: f64 = 1.0;
/// A core that is used less than this was waiting.
const BUSY: f64 = 0.9;

impl Turn {
    /// What one of our loads tells of a server.
    pub fn of(load: &[&str], address: &str, server: &Server, seconds: f64) -> Turn {
        Turn::on(LOAD_CORE, load, address, &[server], seconds)
    }

    /// The same of a server and those that it asks in turn, with the load on these cores.
    pub fn on(cores: &str, load: &[&str], address: &str, servers: &[&Server], seconds: f64) -> Turn {
        let servers: Vec<String> = servers.iter().map(|server| server.id().to_string()).collect();
        let figures = process::load(cores, &[load, &[address, &servers.join(","), &seconds.to_string()]].concat());
        Turn::read(&figures)
    }

    /// From the figures of a load's window.
    pub fn read(figures: &[f64]) -> Turn {
        let [rate, server, backends, load] = *figures else { panic!("four numbers from the load, not {figures:?}") };
        Turn { rate, server, backends, load }
    }

    /// How much of a core was used where it was used most. What shares two cores had both of them, and could use them all.
    fn busiest(&self) -> f64 {
        if self.backends > 0.0 { (self.server + self.backends + self.load) / 2.0 } else { self.server.max(self.load) }
    }

    pub fn cost(&self) -> f64 {
        1e6 * self.server / self.rate
    }

    fn whole_cost(&self) -> f64 {
        1e6 * (self.server + self.backends) / self.rate
    }
}

impl Turns {
    fn median_of(&self, figure: impl Fn(&Turn) -> f64) -> f64 {
        middle(self.0.iter().map(figure).collect()).0
    }

    /// Whether a core was used where it was used most.
    pub fn is_busy(&self) -> bool {
        self.median_of(Turn::busiest) >= BUSY
    }

    /// Answers a second: median, least, most.
    pub fn rate(&self) -> (f64, f64, f64) {
        middle(self.0.iter().map(|turn| turn.rate).collect())
    }

    /// Microseconds of its core that the server used for an answer.
    pub fn cost(&self) -> (f64, f64, f64) {
        middle(self.0.iter().map(Turn::cost).collect())
    }

    /// Microseconds of a core that its backends used for an answer.
    pub fn backend_cost(&self) -> (f64, f64, f64) {
        middle(self.0.iter().map(|turn| 1e6 * turn.backends / turn.rate).collect())
    }

    /// Answers a second compared with those of another in the same round: median, least, most.
    pub fn to(&self, other: &Turns) -> (f64, f64, f64) {
        self.compared(other, |turn| turn.rate)
    }

    /// What the server used for an answer, compared in the same way.
    pub fn cost_to(&self, other: &Turns) -> (f64, f64, f64) {
        self.compared(other, Turn::cost)
    }

    /// Microseconds of a core that the server and its backends used for an answer.
    pub fn whole_cost(&self) -> (f64, f64, f64) {
        middle(self.0.iter().map(Turn::whole_cost).collect())
    }

    /// The same, compared with that of another in the same round.
    pub fn whole_cost_to(&self, other: &Turns) -> (f64, f64, f64) {
        self.compared(other, Turn::whole_cost)
    }

    fn compared(&self, other: &Turns, figure: impl Fn(&Turn) -> f64) -> (f64, f64, f64) {
        middle(self.0.iter().zip(&other.0).map(|(ours, theirs)| figure(ours) / figure(theirs)).collect())
    }
}

/// The median, the least and the most.
pub fn middle(mut figures: Vec<f64>) -> (f64, f64, f64) {
    figures.sort_by(f64::total_cmp);
    (figures[figures.len() / 2], figures[0], figures[figures.len() - 1])
}

/// `ROUNDS`, or 5.
pub fn rounds() -> usize {
    set("ROUNDS").map_or(5, |rounds| (rounds as usize).max(1))
}

/// How many seconds a turn lasts: `SECONDS_A_TURN`, or 3.
pub fn seconds() -> f64 {
    set("SECONDS_A_TURN").unwrap_or(3.0)
}

fn set(name: &str) -> Option<f64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Lets each work once in every round, in turn first and last, after a turn that does not count.
pub fn gather(contenders: &[Contender<'_>]) -> Vec<Turns> {
    let mut turns: Vec<Turns> = contenders.iter().map(|_| Turns(Vec::new())).collect();
    for (_, work) in contenders {
        work(seconds().min(WARM_UP));
    }
    for round in 0..rounds() {
        let mut order: Vec<usize> = (0..contenders.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for number in order {
            let turn = contenders[number].1(seconds());
            turns[number].0.push(turn);
        }
    }
    turns
}

/// The same, and prints what they did.
pub fn take_turns(contenders: &[Contender<'_>]) -> Vec<Turns> {
    let turns = gather(contenders);
    for ((name, _), turns) in contenders.iter().zip(&turns) {
        let (median, least, most) = turns.rate();
        let percent = |figure: fn(&Turn) -> f64| format!("{:.0} %", 100.0 * turns.median_of(figure));
        let (server, backends, load) =
            (percent(|turn| turn.server), percent(|turn| turn.backends), percent(|turn| turn.load));
        let backends = if backends == "0 %" { String::new() } else { format!(", Redis {backends}") };
        println!(
            "  {name:<47} {median:>9.0} a second   ({least:.0} to {most:.0})   busy: server {server}{backends}, load {load}"
        );
    }
    // The first is ours, and never waits of its own accord.
    if turns.first().is_some_and(|ours| !ours.is_busy()) {
        println!(
            "  ! neither server nor load filled its core: other programs had a part of it, and the figures are noise"
        );
    }
    turns
}

/// A figure, median of the rounds, and the least that it should be.
pub fn at_least(what: &str, measured: (f64, f64, f64), target: f64) {
    hold(what, measured, "at least", target, measured.0 >= target);
}

/// A figure, median of the rounds, and the most that it should be.
pub fn at_most(what: &str, measured: (f64, f64, f64), target: f64) {
    hold(what, measured, "at most", target, measured.0 <= target);
}

fn hold(what: &str, (median, least, most): (f64, f64, f64), bound: &str, target: f64, is_reached: bool) {
    // Ratios have digits after the point, counts do not.
    let digits = if target < 100.0 { 2 } else { 0 };
    let word = if is_reached { "reached" } else { "MISSED" };
    println!(
        "  = {what}: {median:.digits$} ({least:.digits$} to {most:.digits$}), {bound} {target:.digits$} required: {word}"
    );
}

/// What the load of gRPC and HTTP is, in words.
pub fn keys() -> String {
    format!("{} keys, {} rounds of {} s", load::KEYS, rounds(), seconds())
}
