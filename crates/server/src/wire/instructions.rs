//! Instructions: entries that speak to the limiter itself and say nothing of the request. They are taken out before rules are
//! matched, on every wire that brings names and values.

use std::sync::LazyLock;

use tollgate::{Ask, Clock, Request, SystemClock, named_claim};
use tollgate_rules::quoted;

/// What a request's instructions come to. They hold for all of it, in whichever descriptor they stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Instructions<'a> {
    ask: Option<Wanted>,
    claim: Option<&'a str>,
    once: Option<&'a str>,
}

/// What is asked of the limits, where it is not room for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Debit,
    Return,
}

/// Why an instruction can't be followed, in words for the caller.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Misread(pub(crate) String);

/// How their names begin, and no attribute's.
const PREFIX: &str = "tollgate.";

/// `debit` or `return`.
pub(crate) const ASK: &str = "tollgate.ask";
/// The caller's name for the claim.
pub(crate) const CLAIM: &str = "tollgate.claim";
/// The caller's name for the request, under which it is decided once.
pub(crate) const ONCE: &str = "tollgate.once";

/// The longest name for a claim, in bytes.
const LONGEST_CLAIM: usize = 255;

/// Returns are dated: that of a caller who does not say when it took is dated now.
static CLOCK: LazyLock<SystemClock> = LazyLock::new(SystemClock::default);

/// Whether an entry of this name is an instruction.
#[inline]
pub(crate) fn is_instruction(name: &str) -> bool {
    name.starts_with(PREFIX)
}

impl<'a> Instructions<'a> {
    /// Takes an entry that is an instruction; `false` if it is none, which most are.
    ///
    /// # Errors
    /// What there is to say instead. The instruction is as good as not sent.
    #[inline]
    pub(crate) fn take(&mut self, name: &str, value: &'a str) -> Result<bool, Misread> {
        if !is_instruction(name) {
            return Ok(false);
        }
        self.follow(name, value).map(|()| true)
    }

    #[inline(never)]
    fn follow(&mut self, name: &str, value: &'a str) -> Result<(), Misread> {
        match name {
            ASK => match value {
                "debit" => agreed(ASK, &mut self.ask, Wanted::Debit),
                "return" => agreed(ASK, &mut self.ask, Wanted::Return),
                _ => Err(Misread(format!("{ASK} is {}; it is `debit` or `return`, or left out", quoted(value)))),
            },
            CLAIM => agreed(CLAIM, &mut self.claim, sized(CLAIM, value, LONGEST_CLAIM)?),
            ONCE => agreed(ONCE, &mut self.once, sized(ONCE, value, Request::LONGEST_ONCE)?),
            _ => Err(Misread(format!(
                "{} is no instruction; there are {ASK}, {CLAIM} and {ONCE}, and attributes have other names",
                quoted(name)
            ))),
        }
    }

    /// Asks for units to be given back, as `tollgate.ask = return` does; `false` if a debit was asked for.
    pub(crate) fn give_back(&mut self) -> bool {
        agreed(ASK, &mut self.ask, Wanted::Return).is_ok()
    }

    /// Whether there were none.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Instructions::default()
    }

    /// The request as they want it.
    pub(crate) fn applied_to(&self, request: Request<'a>) -> Request<'a> {
        Request {
            ask: match self.ask {
                None => request.ask,
                Some(Wanted::Debit) => Ask::Regardless,
                Some(Wanted::Return) => Ask::Return { taken_at: CLOCK.now() },
            },
            claim: self.claim.map(named_claim).or(request.claim),
            once: self.once.or(request.once),
            ..request
        }
    }
}

/// Keeps what an instruction says, unless it was said otherwise before.
fn agreed<T: PartialEq + Copy>(name: &str, known: &mut Option<T>, said: T) -> Result<(), Misread> {
    match known.replace(said) {
        Some(before) if before != said => {
            *known = Some(before);
            Err(Misread(format!("{name} is there twice and says two things; it holds for the whole request, say one")))
        }
        _ => Ok(()),
    }
}

fn sized<'a>(name: &str, value: &'a str, longest: usize) -> Result<&'a str, Misread> {
    match value.len() {
        1.. if value.len() <= longest => Ok(value),
        length => Err(Misread(format!("{name} has {length} bytes; it must have 1 to {longest}"))),
    }
}

#[cfg(test)]
mod tests;
