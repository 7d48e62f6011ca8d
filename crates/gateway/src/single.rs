//! Values that a request should have once.

/// Several different values where one was expected. Servers differ in which of them they read, so the request has no single
/// meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repeated;

/// The only value. One that is repeated is still one.
pub(crate) fn single<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Result<Option<T>, Repeated> {
    let mut values = values.into_iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.all(|other| other == first) { Ok(Some(first)) } else { Err(Repeated) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_values_are_none() {
        for (values, expected) in [
            (&[][..], Ok(None)),
            (&["a"], Ok(Some("a"))),
            (&["a", "a"], Ok(Some("a"))),
            (&["a", "b"], Err(Repeated)),
            (&["", "a"], Err(Repeated)),
            (&["a", "a", "b"], Err(Repeated)),
        ] {
            assert_eq!(single(values.iter().copied()), expected, "{values:?}");
        }
    }
}
