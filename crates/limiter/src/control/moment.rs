//! Moments as documents write them.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp as Instant;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tollgate_core::Timestamp;

/// A moment, written as RFC 3339 has it: `2025-02-01T00:00:00Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Timestamp);

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Moment, String> {
        let fault = || format!("{text:?} is not a moment; write for instance 2025-02-01T00:00:00Z");
        let instant: Instant = text.parse().map_err(|_| fault())?;
        let micros = u64::try_from(instant.as_microsecond()).map_err(|_| format!("{text:?} is before 1970"))?;
        Ok(Moment(Timestamp::from_micros(micros)))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = i64::try_from(self.0.as_micros()).unwrap_or(i64::MAX);
        // Past the year 9999 there is no way to write it.
        write!(f, "{}", Instant::from_microsecond(micros).unwrap_or(Instant::MAX))
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Moment, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}
