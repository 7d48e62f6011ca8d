//! Which part of a limit is reserved for each tier of callers.

use std::fmt;

/// The most tiers with a reserve.
pub const MAX_RESERVES: usize = 8;

/// Reserved parts of a limit, one for each of a few tiers, by their number. All other callers share what is left.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TierReserves {
    shares: [f64; MAX_RESERVES],
    count: usize,
}

/// Why reserves are not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidReserves {
    /// There are more than [`MAX_RESERVES`].
    TooMany,
    /// The reserve with this number is not above 0 and at most 1.
    OutOfRange(usize),
    /// Their sum is above [`TierReserves::MAX_SUM`].
    Sum,
}

impl TierReserves {
    /// The largest sum of all reserves. Callers without one need a part of the limit as well.
    pub const MAX_SUM: f64 = 0.8;

    /// Checks reserves.
    pub fn new(reserves: &[f64]) -> Result<TierReserves, InvalidReserves> {
        let mut shares = [0.0; MAX_RESERVES];
        let Some(places) = shares.get_mut(..reserves.len()) else { return Err(InvalidReserves::TooMany) };
        if let Some(number) = reserves.iter().position(|share| !(*share > 0.0 && *share <= 1.0)) {
            return Err(InvalidReserves::OutOfRange(number));
        }
        // A sum of tenths is not exact.
        if reserves.iter().sum::<f64>() > TierReserves::MAX_SUM + 1e-9 {
            return Err(InvalidReserves::Sum);
        }
        places.copy_from_slice(reserves);
        Ok(TierReserves { shares, count: reserves.len() })
    }

    /// The reserved shares, by number.
    pub fn shares(&self) -> &[f64] {
        &self.shares[..self.count.min(MAX_RESERVES)]
    }

    /// Whether nothing is reserved.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl fmt::Display for InvalidReserves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidReserves::TooMany => write!(f, "there are more than {MAX_RESERVES} reserves"),
            InvalidReserves::OutOfRange(number) => write!(f, "reserve {number} is not above 0 and at most 1"),
            InvalidReserves::Sum => write!(f, "the reserves add up to more than {}", TierReserves::MAX_SUM),
        }
    }
}

impl std::error::Error for InvalidReserves {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserves_are_checked() {
        let rows = [
            (&[][..], Ok(())),
            (&[0.3, 0.2], Ok(())),
            (&[0.1; 8], Ok(())),
            (&[0.05; 9], Err(InvalidReserves::TooMany)),
            (&[0.2, 0.0], Err(InvalidReserves::OutOfRange(1))),
            (&[f64::NAN], Err(InvalidReserves::OutOfRange(0))),
            (&[0.5, 0.31], Err(InvalidReserves::Sum)),
        ];
        for (reserves, expected) in rows {
            assert_eq!(TierReserves::new(reserves).map(|valid| assert_eq!(valid.shares(), reserves)), expected);
        }
        assert!(TierReserves::default().is_empty());
        assert_eq!(InvalidReserves::Sum.to_string(), "the reserves add up to more than 0.8");
    }
}
