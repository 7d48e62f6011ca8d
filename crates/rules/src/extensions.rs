//! Data of any type that other crates attach to a ruleset.

use std::any::Any;
use std::fmt;
use std::sync::OnceLock;

/// At most one value of each type. A value is created at the first access and lives as long as the extensions.
#[derive(Default)]
pub(crate) struct Extensions {
    first: OnceLock<Box<Extension>>,
}

/// A value, and the next one in the list. The list is short: one value for each crate that attaches data.
struct Extension {
    value: Box<dyn Any + Send + Sync>,
    next: OnceLock<Box<Extension>>,
}

impl Extensions {
    /// The value of type `T`, which `make` creates if there is none. Takes no lock once the value exists.
    pub(crate) fn get_or_init<T: Any + Send + Sync>(&self, make: impl Fn() -> T) -> &T {
        let mut slot = &self.first;
        loop {
            let extension = slot.get_or_init(|| Box::new(Extension { value: Box::new(make()), next: OnceLock::new() }));
            if let Some(value) = extension.value.downcast_ref() {
                return value;
            }
            slot = &extension.next;
        }
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extensions").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_value_of_each_type() {
        let extensions = Extensions::default();
        assert_eq!(*extensions.get_or_init(|| 1_u32), 1);
        assert_eq!(extensions.get_or_init(|| "text".to_owned()), "text");
        assert_eq!(*extensions.get_or_init(|| 2_u32), 1, "the first value stays");
        assert_eq!(extensions.get_or_init(|| "other".to_owned()), "text");
    }
}
