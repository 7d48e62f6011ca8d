//! A limit on the requests in flight to one upstream, which follows the upstream's latency.
//!
//! Requests take atomic operations only. What a window of requests showed is evaluated by the request that ends the
//! window, behind a lock that no request waits for.

mod burst;
mod control;
mod reserved;
mod samples;
mod settings;
mod status;

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};

use burst::Burst;
use control::{Control, Next, Observed};
use reserved::{ClassPart, Holder, Reserved};
use samples::Samples;

pub use reserved::ReserveStatus;
pub use settings::{CapPolicy, CapSettings, InvalidSettings, ReserveRule};
pub use status::CapStatus;

use crate::class::{ByClass, Class};
use crate::mode::{ModeSwitch, ShedMode};
use crate::padded::Padded;
use crate::shares::ClassShares;
use crate::time::{Monotonic, nanos};

/// An adaptive limit on the requests in flight to one upstream.
pub struct AdaptiveCap {
    /// Without those of a burst.
    in_flight: Padded<AtomicU32>,
    burst: Padded<Burst>,
    /// What requests read, and what only the end of a window writes.
    current: Padded<Current>,
    /// What requests write, other than the number in flight.
    window: Padded<Written>,
    samples: Samples,
    /// Those of requests that met no queue.
    idle: Samples,
    refused: ByClass<AtomicU64>,
    control: Mutex<State>,
    shares: ClassShares,
    /// What tiers have reserved, if any has.
    reserved: Option<Box<Reserved>>,
    /// How long a window that lacks samples goes on before they are counted again, in nanoseconds.
    recheck: u64,
}

/// The decision about a request.
#[derive(Debug)]
#[must_use = "an admitted request has to be released"]
pub enum Admission {
    /// The request may be sent, and must be [released](AdaptiveCap::release) when it has ended.
    Admitted(Begun),
    /// The request may be sent, and must be released; in mode `enforce` it would have been refused.
    WouldRefuse(Begun),
    /// The request is answered with 503.
    Refused,
}

/// A request in flight. It is released exactly once.
#[derive(Debug)]
#[must_use = "a request that is not released stays in flight"]
pub struct Begun {
    at: Monotonic,
    /// Whether so few others were in flight that it meets no queue.
    is_idle: bool,
    /// Whether it was admitted above the limit, as a part of a burst.
    is_burst: bool,
    /// Whether it waits for its client and is not in flight meanwhile.
    is_paused: bool,
    holder: Holder,
}

/// How a request ended, as far as its latency says something about the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// An answer with a status below 500, to a first try. Its latency is a sample.
    Answered,
    /// No answer within the time allowed. That time is a sample: the latency is at least as long.
    TimedOut,
    /// Anything else: an answer of 500 or above, a failed connection, a retry, a caller that went away. Errors are often
    /// fast, and must not make the limit grow.
    Unsampled,
}

struct Current {
    ceilings: ByClass<AtomicU32>,
    idle_ceiling: AtomicU32,
    samples_since: AtomicU64,
    /// When the window may end, in nanoseconds.
    ends: AtomicU64,
    mode: ModeSwitch,
}

struct Written {
    peak: AtomicU32,
    refused: AtomicU64,
}

struct State {
    control: Control,
    /// Of the window that has begun, when one has.
    next: Option<Next>,
}

impl AdaptiveCap {
    /// A cap for an upstream of which nothing is known. The seed decides the jitter of probes.
    pub fn new(settings: CapSettings, seed: u64) -> Result<AdaptiveCap, InvalidSettings> {
        settings.validate()?;
        let limit = f64::from(settings.initial);
        let ceilings = settings.shares.ceilings(limit).map(|ceiling| AtomicU32::new(*ceiling));
        let reserved = (!settings.reserves.is_empty())
            .then(|| Box::new(Reserved::new(settings.reserves, settings.policy.reserve_rule, limit)));
        Ok(AdaptiveCap {
            in_flight: Padded(AtomicU32::new(0)),
            burst: Padded(Burst::new(&settings.policy)),
            current: Padded(Current {
                ceilings,
                idle_ceiling: AtomicU32::new(1),
                samples_since: AtomicU64::new(0),
                ends: AtomicU64::new(0),
                mode: ModeSwitch::new(settings.mode),
            }),
            window: Padded(Written { peak: AtomicU32::new(0), refused: AtomicU64::new(0) }),
            samples: Samples::new(),
            idle: Samples::new(),
            refused: ByClass::default(),
            shares: settings.shares,
            reserved,
            recheck: nanos(settings.window / 4).max(1),
            control: Mutex::new(State { control: Control::new(settings, seed), next: None }),
        })
    }

    /// Decides a request of a caller without a reserve. One that is admitted counts as in flight until it is released.
    #[inline]
    pub fn try_acquire(&self, class: Class, now: Monotonic) -> Admission {
        self.try_acquire_for(None, class, now)
    }

    /// Decides a request of a caller of the tier whose reserve has this number.
    #[inline]
    pub fn try_acquire_for(&self, reserve: Option<usize>, class: Class, now: Monotonic) -> Admission {
        let (mode, holder) = (self.current.0.mode.get(), Holder::new(reserve));
        if mode == ShedMode::Off {
            self.in_flight.0.fetch_add(1, Ordering::Relaxed);
            return Admission::Admitted(self.begin(now, false, holder));
        }
        self.end_window(now);
        let ceiling = self.ceiling(holder, class);
        let taken = self.in_flight.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |in_flight| {
            (in_flight < ceiling).then(|| in_flight.saturating_add(1))
        });
        match taken {
            Ok(before) => {
                let in_flight = before.saturating_add(1);
                self.raise_peak(in_flight);
                let all = in_flight.saturating_add(self.burst.0.in_flight());
                let is_idle = all <= self.current.0.idle_ceiling.load(Ordering::Relaxed);
                Admission::Admitted(self.begin(now, is_idle, holder))
            }
            Err(_) => self.refuse(class, holder, mode, now),
        }
    }

    /// Whether a request would be admitted now. Counts nothing.
    #[inline]
    pub fn has_room(&self, class: Class, now: Monotonic) -> bool {
        self.has_room_for(None, class, now)
    }

    /// The same for a caller of the tier whose reserve has this number.
    #[inline]
    pub fn has_room_for(&self, reserve: Option<usize>, class: Class, now: Monotonic) -> bool {
        if self.current.0.mode.get() != ShedMode::Enforce {
            return true;
        }
        self.end_window(now);
        self.in_flight.0.load(Ordering::Relaxed) < self.ceiling(Holder::new(reserve), class) || self.burst.0.has_room()
    }

    /// The upstream waits for the client's part of a request, so that the request is not in flight until it is
    /// [resumed](Self::resume): slow clients must not use up the limit.
    pub fn pause(&self, begun: &mut Begun) {
        if !begun.is_paused {
            self.leave(begun);
            (begun.is_paused, begun.is_burst) = (true, false);
        }
    }

    /// The upstream has all that it needs of a request now: its latency begins. One that was paused is in flight again, whether
    /// or not there is room: it has been admitted.
    pub fn resume(&self, begun: &mut Begun, now: Monotonic) {
        begun.at = now;
        if begun.is_paused {
            if let Some(reserved) = &self.reserved {
                reserved.begin(begun.holder);
            }
            let before = self.in_flight.0.fetch_add(1, Ordering::Relaxed);
            self.raise_peak(before.saturating_add(1));
            // It may meet a queue of others that were admitted meanwhile.
            (begun.is_paused, begun.is_idle) = (false, false);
        }
    }

    /// A request is not in flight any more.
    #[inline]
    fn leave(&self, begun: &Begun) {
        if let Some(reserved) = &self.reserved {
            reserved.end(begun.holder);
        }
        match begun.is_burst {
            true => self.burst.0.end(),
            false => _ = self.in_flight.0.fetch_sub(1, Ordering::Relaxed),
        }
    }

    /// Ends a request.
    #[inline]
    pub fn release(&self, begun: Begun, now: Monotonic, end: RequestEnd) {
        if !begun.is_paused {
            self.leave(&begun);
        }
        if self.current.0.mode.get() == ShedMode::Off {
            return;
        }
        let is_recent = begun.at.as_nanos() >= self.current.0.samples_since.load(Ordering::Relaxed);
        // A clock that was set back would make the request look fast.
        if end != RequestEnd::Unsampled && is_recent && now >= begun.at {
            let nanos = now.nanos_since(begun.at);
            self.samples.record(nanos);
            if begun.is_idle {
                self.idle.record(nanos);
            }
        }
        self.end_window(now);
    }

    /// What the cap does with what it decides.
    pub fn mode(&self) -> ShedMode {
        self.current.0.mode.get()
    }

    /// Changes what the cap does with what it decides, from the next request on.
    pub fn set_mode(&self, mode: ShedMode) {
        self.current.0.mode.set(mode);
    }

    /// How many requests may be in flight when one is admitted, itself included.
    #[inline]
    fn ceiling(&self, holder: Holder, class: Class) -> u32 {
        let ceilings = &self.current.0.ceilings;
        let ceiling = ceilings[class].load(Ordering::Relaxed);
        match &self.reserved {
            None => ceiling,
            Some(reserved) => {
                let limit = ceilings[Class::Critical].load(Ordering::Relaxed);
                reserved.ceiling(holder, ClassPart { limit, ceiling, share: self.shares.of(class) })
            }
        }
    }

    /// A request that is in flight begins.
    #[inline]
    fn begin(&self, at: Monotonic, is_idle: bool, holder: Holder) -> Begun {
        if let Some(reserved) = &self.reserved {
            reserved.begin(holder);
        }
        Begun { at, is_idle, is_burst: false, is_paused: false, holder }
    }

    #[cold]
    fn refuse(&self, class: Class, holder: Holder, mode: ShedMode, now: Monotonic) -> Admission {
        let is_enforced = mode == ShedMode::Enforce;
        // The limit follows what is above it, whether or not that is admitted.
        self.window.0.refused.fetch_add(1, Ordering::Relaxed);
        if self.burst.0.take(is_enforced) {
            if !is_enforced {
                self.in_flight.0.fetch_add(1, Ordering::Relaxed);
            }
            return Admission::Admitted(Begun { is_burst: is_enforced, ..self.begin(now, false, holder) });
        }
        self.refused[class].fetch_add(1, Ordering::Relaxed);
        if let Some(reserved) = &self.reserved {
            reserved.refuse(holder);
        }
        if is_enforced {
            return Admission::Refused;
        }
        let before = self.in_flight.0.fetch_add(1, Ordering::Relaxed);
        self.raise_peak(before.saturating_add(1));
        Admission::WouldRefuse(self.begin(now, false, holder))
    }

    #[inline]
    fn raise_peak(&self, in_flight: u32) {
        if in_flight > self.window.0.peak.load(Ordering::Relaxed) {
            self.window.0.peak.fetch_max(in_flight, Ordering::Relaxed);
        }
    }

    #[inline]
    fn end_window(&self, now: Monotonic) {
        if now.as_nanos() >= self.current.0.ends.load(Ordering::Relaxed) {
            self.evaluate(now);
        }
    }

    #[cold]
    fn evaluate(&self, now: Monotonic) {
        let mut state = match self.control.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another request is ending the window.
            Err(TryLockError::WouldBlock) => return,
        };
        let State { control, next } = &mut *state;
        let Some(window) = *next else {
            let first = control.begin(now);
            *next = Some(first);
            return self.install(&first);
        };
        if now < window.ends {
            return;
        }
        let has_expired = window.expires.is_some_and(|expires| now >= expires);
        if !has_expired && self.samples.count() < window.samples {
            self.current.0.ends.store(now.as_nanos().saturating_add(self.recheck), Ordering::Relaxed);
            return;
        }
        let has_idle = self.idle.count() >= window.idle_samples;
        let observed = Observed {
            ended: now,
            latencies: self.samples.take(),
            idle: if has_idle { self.idle.take() } else { None },
            peak: self.window.0.peak.swap(self.in_flight.0.load(Ordering::Relaxed), Ordering::Relaxed),
            refused: self.window.0.refused.swap(0, Ordering::Relaxed),
            is_enforced: self.mode() == ShedMode::Enforce,
        };
        self.burst.0.refill(&observed, control);
        let following = control.end_window(&observed);
        *next = Some(following);
        self.install(&following);
    }

    fn install(&self, next: &Next) {
        for (class, ceiling) in self.shares.ceilings(next.limit).iter() {
            self.current.0.ceilings[class].store(*ceiling, Ordering::Relaxed);
        }
        if let Some(reserved) = &self.reserved {
            reserved.install(next.limit);
        }
        self.current.0.idle_ceiling.store(next.idle_ceiling.max(1.0) as u32, Ordering::Relaxed);
        self.current.0.samples_since.store(next.samples_since.as_nanos(), Ordering::Relaxed);
        self.current.0.ends.store(next.ends.as_nanos(), Ordering::Relaxed);
    }
}

impl fmt::Debug for AdaptiveCap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AdaptiveCap").field(&self.status()).finish()
    }
}

#[cfg(test)]
mod tests;
