//! Times as documents write them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tollgate_core::Timestamp;

/// A time in the format of RFC 3339: `2025-02-01T00:00:00Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rfc3339(pub Timestamp);

impl FromStr for Rfc3339 {
    type Err = String;

    fn from_str(text: &str) -> Result<Rfc3339, String> {
        let fault = || format!("{text:?} is not an RFC 3339 time; write for instance 2025-02-01T00:00:00Z");
        let time: jiff::Timestamp = text.parse().map_err(|_| fault())?;
        let micros = u64::try_from(time.as_microsecond()).map_err(|_| format!("{text:?} is before 1970"))?;
        Ok(Rfc3339(Timestamp::from_micros(micros)))
    }
}

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = i64::try_from(self.0.as_micros()).unwrap_or(i64::MAX);
        // RFC 3339 ends with the year 9999.
        write!(f, "{}", jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX))
    }
}

impl Serialize for Rfc3339 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rfc3339 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rfc3339, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}
