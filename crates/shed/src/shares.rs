//! Which part of a limit each class may use.

use std::fmt;

use crate::class::{ByClass, Class};

/// For each class, the share of a limit up to which it is admitted: above 0, at most 1, and never less than that of a less
/// important class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassShares(ByClass<f64>);

/// Why shares are not valid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InvalidShares {
    /// A share is not above 0 and at most 1.
    OutOfRange(Class),
    /// A class has a smaller share than a less important one.
    BelowLessImportant(Class),
}

impl Default for ClassShares {
    /// 0.7 for test, 0.8 for get, 0.9 for post and all for critical: what the cap leaves to a class when less important
    /// ones have filled their part.
    fn default() -> ClassShares {
        ClassShares(ByClass::new([0.7, 0.8, 0.9, 1.0]))
    }
}

impl ClassShares {
    /// Checks shares.
    pub fn new(shares: ByClass<f64>) -> Result<ClassShares, InvalidShares> {
        let mut least: f64 = 0.0;
        for (class, &share) in shares.iter() {
            if !(share > 0.0 && share <= 1.0) {
                return Err(InvalidShares::OutOfRange(class));
            }
            if share < least {
                return Err(InvalidShares::BelowLessImportant(class));
            }
            least = share;
        }
        Ok(ClassShares(shares))
    }

    /// The share of a class.
    pub fn of(&self, class: Class) -> f64 {
        self.0[class]
    }

    /// How many requests may be in flight when one of each class is admitted, itself included. At least 1, so that no
    /// class starves on an idle upstream. Critical requests have what rounding leaves: of a limit of 7.6, post may use 6
    /// and critical 8, so that the reserve of a small limit is not a single request.
    pub fn ceilings(&self, limit: f64) -> ByClass<u32> {
        ByClass::from_fn(|class| {
            let part = limit * self.0[class];
            let rounded = if class == Class::Critical { part.ceil() } else { part.floor() };
            rounded.max(1.0) as u32
        })
    }
}

impl fmt::Display for InvalidShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidShares::OutOfRange(class) => write!(f, "the share of {class} is not above 0 and at most 1"),
            InvalidShares::BelowLessImportant(class) => {
                write!(f, "the share of {class} is smaller than that of a less important class")
            }
        }
    }
}

impl std::error::Error for InvalidShares {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceilings_are_shares_of_the_limit_and_at_least_one() {
        let rows = [
            (100.0, [70, 80, 90, 100]),
            (10.4, [7, 8, 9, 11]),
            (7.6, [5, 6, 6, 8]),
            (3.0, [2, 2, 2, 3]),
            (1.0, [1, 1, 1, 1]),
            (0.0, [1, 1, 1, 1]),
        ];
        for (limit, ceilings) in rows {
            assert_eq!(ClassShares::default().ceilings(limit), ByClass::new(ceilings), "{limit}");
        }
    }

    #[test]
    fn shares_are_checked() {
        let check = |shares| ClassShares::new(ByClass::new(shares)).map(|_| ());
        assert_eq!(check([0.1, 0.1, 0.5, 1.0]), Ok(()));
        assert_eq!(check([0.0, 0.1, 0.5, 1.0]), Err(InvalidShares::OutOfRange(Class::Test)));
        assert_eq!(check([0.1, f64::NAN, 0.5, 1.0]), Err(InvalidShares::OutOfRange(Class::Get)));
        assert_eq!(check([0.1, 0.2, 0.5, 1.1]), Err(InvalidShares::OutOfRange(Class::Critical)));
        assert_eq!(check([0.1, 0.6, 0.5, 1.0]), Err(InvalidShares::BelowLessImportant(Class::Post)));
        assert_eq!(
            InvalidShares::BelowLessImportant(Class::Post).to_string(),
            "the share of post is smaller than that of a less important class"
        );
    }
}
