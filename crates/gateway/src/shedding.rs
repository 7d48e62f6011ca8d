//! What shedders refused.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_shed::{ByClass, Class, Shedder};

/// Refused requests by shedder and class.
#[derive(Debug, Default)]
pub(crate) struct ShedCounts([ByClass<AtomicU64>; Shedder::ALL.len()]);

impl ShedCounts {
    pub(crate) fn count(&self, by: Shedder, class: Class) {
        self.0[by as usize][class].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn of(&self, by: Shedder) -> ByClass<u64> {
        self.0[by as usize].map(|count| count.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_shedder_and_class() {
        let counts = ShedCounts::default();
        counts.count(Shedder::Fleet, Class::Get);
        counts.count(Shedder::Fleet, Class::Get);
        counts.count(Shedder::Worker, Class::Critical);
        assert_eq!(counts.of(Shedder::Fleet), ByClass::new([0, 2, 0, 0]));
        assert_eq!(counts.of(Shedder::Worker), ByClass::new([0, 0, 0, 1]));
        assert_eq!(counts.of(Shedder::Adaptive), ByClass::default());
    }
}
