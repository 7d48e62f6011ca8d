//! What a shedder does with what it decides.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};

/// What a shedder does with what it decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ShedMode {
    /// It refuses.
    #[default]
    Enforce,
    /// It computes and counts what it would refuse, and admits everything.
    Shadow,
    /// It admits everything and computes nothing.
    Off,
}

/// A text that names no mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownMode;

/// A mode that an operator changes while requests are served.
#[derive(Debug)]
pub(crate) struct ModeSwitch(AtomicU8);

impl ShedMode {
    /// All modes.
    pub const ALL: [ShedMode; 3] = [ShedMode::Enforce, ShedMode::Shadow, ShedMode::Off];

    /// The name in settings and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            ShedMode::Enforce => "enforce",
            ShedMode::Shadow => "shadow",
            ShedMode::Off => "off",
        }
    }
}

impl ModeSwitch {
    pub(crate) fn new(mode: ShedMode) -> ModeSwitch {
        ModeSwitch(AtomicU8::new(mode as u8))
    }

    #[inline]
    pub(crate) fn get(&self) -> ShedMode {
        match self.0.load(Ordering::Relaxed) {
            0 => ShedMode::Enforce,
            1 => ShedMode::Shadow,
            _ => ShedMode::Off,
        }
    }

    pub(crate) fn set(&self, mode: ShedMode) {
        self.0.store(mode as u8, Ordering::Relaxed);
    }
}

impl fmt::Display for ShedMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ShedMode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<ShedMode, UnknownMode> {
        ShedMode::ALL.into_iter().find(|mode| mode.name() == text).ok_or(UnknownMode)
    }
}

impl fmt::Display for UnknownMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mode is one of enforce, shadow, off")
    }
}

impl std::error::Error for UnknownMode {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_names_and_can_be_switched() {
        let switch = ModeSwitch::new(ShedMode::default());
        assert_eq!(switch.get(), ShedMode::Enforce);
        for mode in ShedMode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
            switch.set(mode);
            assert_eq!(switch.get(), mode);
        }
        assert_eq!("on".parse::<ShedMode>(), Err(UnknownMode));
    }
}
