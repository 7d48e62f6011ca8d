//! What threads write, apart from what they only read.

/// A value on cache lines of its own: processors fetch them in pairs of 64 bytes.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);
