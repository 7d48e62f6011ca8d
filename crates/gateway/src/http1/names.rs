//! Names of fields, remembered by each worker: most heads have the same ones, and a name that was read before needs neither to be
//! read again nor a copy of its own.

use std::cell::RefCell;

use http::HeaderName;
use smallvec::SmallVec;

use crate::field_marks::FieldMarks;

/// The names that were read last, by a hash of how they were written.
pub(super) struct KnownNames([Option<KnownName>; SLOTS]);

struct KnownName {
    written: SmallVec<[u8; MAX_NAME_BYTES]>,
    name: HeaderName,
    marks: FieldMarks,
}

/// The number of names that are remembered. A power of two.
const SLOTS: usize = 128;
/// Longer names are not remembered.
const MAX_NAME_BYTES: usize = 32;

thread_local! {
    static NAMES: RefCell<KnownNames> = const { RefCell::new(KnownNames([const { None }; SLOTS])) };
}

impl KnownNames {
    /// Calls `read` with the names of this worker.
    pub(super) fn with<T>(read: impl FnOnce(&mut KnownNames) -> T) -> T {
        NAMES.with_borrow_mut(read)
    }

    /// A name and its kinds. `None` if it is invalid.
    pub(super) fn read(&mut self, text: &[u8]) -> Option<(HeaderName, FieldMarks)> {
        let slot = &mut self.0[slot(text)];
        match slot {
            Some(known) if known.written[..] == *text => Some((known.name.clone(), known.marks)),
            _ => {
                let name = HeaderName::from_bytes(text).ok()?;
                let marks = FieldMarks::of_name(&name);
                if text.len() <= MAX_NAME_BYTES {
                    *slot = Some(KnownName { written: SmallVec::from_slice(text), name: name.clone(), marks });
                }
                Some((name, marks))
            }
        }
    }
}

/// The place of a name.
fn slot(text: &[u8]) -> usize {
    let [first, .., last] = text else { return 0 };
    (text.len() + usize::from(*first) * 7 + usize::from(*last) * 31 + usize::from(text[text.len() / 2]) * 101) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<HeaderName> {
        let (name, marks) = KnownNames::with(|names| names.read(text.as_bytes()))?;
        assert_eq!(marks, FieldMarks::of_name(&name), "{text}");
        Some(name)
    }

    #[test]
    fn a_name_is_read_the_same_way_every_time() {
        let long = "x-".repeat(40);
        for _ in 0..3 {
            for text in ["Accept", "ACCEPT", "accept", "X-Api-Key", "x-api-KEY", "traceparent", &long] {
                assert_eq!(read(text), HeaderName::from_bytes(text.as_bytes()).ok(), "{text}");
                assert!(read(text).is_some(), "{text}");
            }
            for bad in ["", "a b", "a\u{e4}", "a:", "x-api-ke\u{6b}\u{0}"] {
                assert_eq!(read(bad), None, "{bad:?}");
            }
        }
    }

    #[test]
    fn names_in_the_same_place_are_not_mistaken_for_each_other() {
        for number in 0..10_000 {
            let text = format!("x-{number}");
            assert_eq!(read(&text).unwrap(), text.as_str());
        }
        assert_eq!(read("X-77").unwrap(), "x-77");
    }
}
