//! Instructions: entries that address the limiter itself and do not describe the request. Every wire with names and
//! values removes them before rules are matched.

use std::sync::LazyLock;

use tollgate::{Ask, Clock, Request, SystemClock, named_claim};
use tollgate_rules::quoted;

/// The instructions of a request. They apply to the whole request, in whichever descriptor they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Instructions<'a> {
    ask: Option<AskInstruction>,
    claim: Option<&'a str>,
    once: OnceInstruction<'a>,
    /// How many were ignored.
    ignored: u32,
}

/// The idempotency key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum OnceInstruction<'a> {
    #[default]
    None,
    Key(&'a str),
    /// There is none that the whole request agrees on.
    Contradictory,
}

/// The ask, if it is not the usual one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AskInstruction {
    Debit,
    Return,
}

/// Why an instruction is invalid, for the caller.
#[derive(Debug, PartialEq, Eq)]
pub struct InstructionError(pub String);

/// The prefix of instructions, which no attribute has.
const PREFIX: &str = "tollgate.";

/// `debit` or `return`.
pub(crate) const ASK: &str = "tollgate.ask";
/// The caller's name for the claim.
pub(crate) const CLAIM: &str = "tollgate.claim";
/// The idempotency key of the request.
pub(crate) const ONCE: &str = "tollgate.once";

/// The time of returns: callers do not say when they took the units.
static CLOCK: LazyLock<SystemClock> = LazyLock::new(SystemClock::default);

/// Whether an entry with this name is an instruction.
#[inline]
pub(crate) fn is_instruction(name: &str) -> bool {
    name.starts_with(PREFIX)
}

impl<'a> Instructions<'a> {
    /// Takes an entry if it is an instruction; `false` if not, as for most entries. Its value is not longer than
    /// [`Request::MAX_ONCE_BYTES`].
    ///
    /// Names of claims and idempotency keys may be a client's, so they are never an error: an empty key is none, of
    /// contradictory names of a claim the first counts, and of contradictory keys none.
    ///
    /// # Errors
    /// If the gateway does not know the instruction. It is ignored then.
    #[inline]
    pub(crate) fn take(&mut self, name: &str, value: &'a str) -> Result<bool, InstructionError> {
        if !is_instruction(name) {
            return Ok(false);
        }
        self.follow(name, value).map(|()| true)
    }

    #[inline(never)]
    fn follow(&mut self, name: &str, value: &'a str) -> Result<(), InstructionError> {
        match name {
            ASK => match value {
                "debit" => set_once(ASK, &mut self.ask, AskInstruction::Debit),
                "return" => set_once(ASK, &mut self.ask, AskInstruction::Return),
                _ => Err(InstructionError(format!(
                    "{ASK} is {}; it must be `debit` or `return`, or omitted",
                    quoted(value)
                ))),
            },
            CLAIM => {
                self.ignored += u32::from(set_once(CLAIM, &mut self.claim, value).is_err());
                Ok(())
            }
            ONCE => {
                self.set_key(value);
                Ok(())
            }
            _ => Err(InstructionError(format!(
                "{} is not an instruction; use {ASK}, {CLAIM} or {ONCE}, and another name for attributes",
                quoted(name)
            ))),
        }
    }

    fn set_key(&mut self, key: &'a str) {
        self.once = match self.once {
            before if key.is_empty() => {
                self.ignored += 1;
                before
            }
            OnceInstruction::None => OnceInstruction::Key(key),
            OnceInstruction::Key(before) if before == key => self.once,
            OnceInstruction::Key(_) | OnceInstruction::Contradictory => {
                self.ignored += 1;
                OnceInstruction::Contradictory
            }
        };
    }

    /// How many instructions were ignored.
    pub(crate) fn ignored(&self) -> u32 {
        self.ignored
    }

    /// Requests a return of units, like `tollgate.ask = return`; `false` if a debit is requested.
    pub(crate) fn request_return(&mut self) -> bool {
        set_once(ASK, &mut self.ask, AskInstruction::Return).is_ok()
    }

    /// Whether there are no instructions.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Instructions::default()
    }

    /// The request with the instructions applied.
    pub(crate) fn apply_to(&self, request: Request<'a>) -> Request<'a> {
        Request {
            ask: match self.ask {
                None => request.ask,
                Some(AskInstruction::Debit) => Ask::Regardless,
                Some(AskInstruction::Return) => Ask::Return { taken_at: CLOCK.now() },
            },
            claim: self.claim.map(named_claim).or(request.claim),
            once: match self.once {
                OnceInstruction::None => request.once,
                OnceInstruction::Key(key) => Some(key),
                OnceInstruction::Contradictory => None,
            },
            ..request
        }
    }
}

/// Sets the value of an instruction, unless it has another value already.
fn set_once<T: PartialEq + Copy>(name: &str, slot: &mut Option<T>, value: T) -> Result<(), InstructionError> {
    match slot.replace(value) {
        Some(before) if before != value => {
            *slot = Some(before);
            Err(InstructionError(format!("{name} has two values; it applies to the whole request, send one")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
