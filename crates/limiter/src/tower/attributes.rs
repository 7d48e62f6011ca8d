//! What a request says of itself, as rules read it.

use std::borrow::Cow;

use http::request::Parts;
use smallvec::SmallVec;
use tollgate_core::Request;

use crate::told::beginning;

/// The attributes of a request, in the order in which they were added. Where a name comes twice, rules read the first.
#[derive(Clone, Debug, Default)]
pub struct Attributes<'r> {
    entries: SmallVec<[(Cow<'r, str>, Cow<'r, str>); 8]>,
}

/// Reads attributes from the head of a request.
pub trait Extract: Send + Sync + 'static {
    /// Adds what it finds.
    fn extract<'r>(&'r self, head: &'r Parts, attributes: &mut Attributes<'r>);
}

/// A function that reads attributes.
pub(super) struct ByFunction<F>(pub(super) F);

impl<'r> Attributes<'r> {
    /// The most attributes of a request. Those that come later are left out: a request that says too much is still counted.
    pub const MOST: usize = Request::MOST_ENTRIES;
    /// The longest name or value, in bytes. Longer ones are cut: a value that is too long must not be a way past the limits.
    pub const LONGEST: usize = Request::LONGEST_TEXT;

    /// Adds one.
    pub fn add(&mut self, name: impl Into<Cow<'r, str>>, value: impl Into<Cow<'r, str>>) -> &mut Self {
        if self.entries.len() < Self::MOST {
            self.entries.push((cut(name.into()), cut(value.into())));
        }
        self
    }

    /// All of them, as a descriptor has them.
    pub(super) fn entries(&self) -> SmallVec<[(&str, &str); 8]> {
        self.entries.iter().map(|(name, value)| (&**name, &**value)).collect()
    }
}

fn cut(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.len() <= Attributes::LONGEST {
        return text;
    }
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(beginning(text, Attributes::LONGEST)),
        Cow::Owned(mut text) => {
            text.truncate(beginning(&text, Attributes::LONGEST).len());
            Cow::Owned(text)
        }
    }
}

impl<F> Extract for ByFunction<F>
where
    F: for<'r> Fn(&'r Parts, &mut Attributes<'r>) + Send + Sync + 'static,
{
    fn extract<'r>(&'r self, head: &'r Parts, attributes: &mut Attributes<'r>) {
        (self.0)(head, attributes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_and_what_is_too_much_left_out() {
        let long = "ä".repeat(Attributes::LONGEST);
        let mut attributes = Attributes::default();
        attributes.add("owned", long.clone()).add("borrowed", &*long);
        for number in 0..2 * Attributes::MOST {
            attributes.add(number.to_string(), "1");
        }
        let entries = attributes.entries();
        assert_eq!(entries.len(), Attributes::MOST);
        assert!(entries[..2].iter().all(|(_, value)| value.len() == Attributes::LONGEST && long.starts_with(value)));
        assert_eq!(entries[2], ("0", "1"));
    }
}
