//! What a run is to show.

use crate::bound::most_requests_for_a_call;
use crate::outcome::Outcome;

/// A figure that a run must reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// At least this share of what an exact fleet admits, in the whole run and in every window.
    Admitted(f64),
    /// At most this many calls a minute.
    CallsPerMinute(f64),
    /// At most this many calls a second.
    CallsPerSecond(f64),
    /// At least this many requests for a call.
    Ratio(f64),
    /// At least this share of the [most requests for a call](most_requests_for_a_call).
    ShareOfBound(f64),
}

/// Whether a goal was reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// Whether it was.
    pub is_reached: bool,
    /// The goal and the figure.
    pub text: String,
}

impl Goal {
    /// Compares a run with the goal.
    pub fn judge(&self, outcome: &Outcome) -> Judgement {
        let seconds = outcome.seconds();
        let calls = outcome.calls.total() as f64;
        let (is_reached, text) = match *self {
            Goal::Admitted(least) => {
                let share = outcome.against_exact().min(outcome.least_window().unwrap_or(f64::MAX));
                (share >= least, format!("admits {:.2} % of exact, goal {:.0} %", 100.0 * share, 100.0 * least))
            }
            Goal::CallsPerMinute(most) => {
                let rate = calls / seconds * 60.0;
                (rate <= most, format!("{rate:.0} calls a minute, goal {most}"))
            }
            Goal::CallsPerSecond(most) => {
                let rate = calls / seconds;
                (rate <= most, format!("{rate:.0} calls a second, goal {most}"))
            }
            Goal::Ratio(least) => {
                let ratio = outcome.ratio();
                (ratio >= least, format!("{ratio:.1} requests for a call, goal {least}"))
            }
            Goal::ShareOfBound(least) => {
                let (ratio, bound) = (outcome.ratio(), most_requests_for_a_call(&outcome.scenario));
                let text =
                    format!("{ratio:.2} requests for a call of at most {bound:.2}: {:.2}, goal {least}", ratio / bound);
                (ratio >= least * bound, text)
            }
        };
        Judgement { is_reached, text }
    }
}
