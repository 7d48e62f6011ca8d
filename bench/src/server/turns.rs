//! Contenders that take turns under load, and what came of it.

use super::process::{self, Server};
use crate::load;

/// What one contender did in one turn.
#[derive(Clone, Copy)]
pub struct Turn {
    /// Answers a second.
    pub rate: f64,
    /// The shares of their cores that server and load used.
    pub server: f64,
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
        let (server, seconds) = (server.id().to_string(), seconds.to_string());
        let told = process::load(&[load, &[address, &server, &seconds]].concat());
        let [rate, server, load] = told[..] else { panic!("three numbers from the load, not {told:?}") };
        Turn { rate, server, load }
    }
}

impl Turns {
    fn median_of(&self, figure: impl Fn(&Turn) -> f64) -> f64 {
        middle(self.0.iter().map(figure).collect()).0
    }

    /// Answers a second compared with those of another in the same round: median, least, most.
    pub fn to(&self, other: &Turns) -> (f64, f64, f64) {
        middle(self.0.iter().zip(&other.0).map(|(ours, theirs)| ours.rate / theirs.rate).collect())
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

/// Lets each work once in every round, in turn first and last, after a turn that does not count; and prints what they did.
pub fn take_turns(contenders: &[Contender<'_>]) -> Vec<Turns> {
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
    for ((name, _), turns) in contenders.iter().zip(&turns) {
        let (median, least, most) = middle(turns.0.iter().map(|turn| turn.rate).collect());
        let (server, load) = (turns.median_of(|turn| turn.server * 100.0), turns.median_of(|turn| turn.load * 100.0));
        println!(
            "  {name:<44} {median:>9.0} a second   ({least:.0} to {most:.0})   busy: server {server:.0} %, load {load:.0} %"
        );
    }
    // The first is ours, and never waits of its own accord.
    if let Some(ours) = turns.first()
        && ours.median_of(|turn| turn.server.max(turn.load)) < BUSY
    {
        println!(
            "  ! neither server nor load filled its core: other programs had a part of it, and the figures are noise"
        );
    }
    turns
}

/// A ratio, median of the rounds, and the figure that it is held to.
pub fn at_least(what: &str, (ratio, least, most): (f64, f64, f64), wanted: f64) {
    let word = if ratio >= wanted { "reached" } else { "MISSED" };
    println!("  = {what}: {ratio:.2} ({least:.2} to {most:.2}), at least {wanted:.2} wanted: {word}");
}

/// What the load of gRPC and HTTP is, in words.
pub fn keys() -> String {
    format!("{} keys, {} rounds of {} s", load::KEYS, rounds(), seconds())
}
