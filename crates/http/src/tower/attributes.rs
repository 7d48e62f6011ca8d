//! The attributes of a request, as rules read them.

use std::borrow::Cow;

use http::request::Parts;
use smallvec::SmallVec;
use tollgate_core::Request;
use tollgate_rules::attribute_text::shorten;

/// The attributes of a request, in the order in which they were added. If a name is repeated, rules read the first
/// value.
#[derive(Clone, Debug, Default)]
pub struct Attributes<'r> {
    entries: SmallVec<[(Cow<'r, str>, Cow<'r, str>); 8]>,
}

/// Reads attributes from the head of a request.
pub trait Extract: Send + Sync + 'static {
    /// Adds the attributes that it finds.
    fn extract<'r>(&'r self, head: &'r Parts, attributes: &mut Attributes<'r>);
}

/// An extractor from a function.
pub(super) struct ByFunction<F>(pub(super) F);

impl<'r> Attributes<'r> {
    /// The largest number of attributes. Further ones are dropped: the request is still counted.
    pub const MAX_ATTRIBUTES: usize = Request::MAX_ENTRIES;
    /// The maximum length of a name or value, in bytes. Longer ones are their beginning and a digest: a long value must
    /// not bypass the limits.
    pub const MAX_BYTES: usize = Request::MAX_TEXT_BYTES;

    /// Adds an attribute.
    pub fn add(&mut self, name: impl Into<Cow<'r, str>>, value: impl Into<Cow<'r, str>>) -> &mut Self {
        if self.entries.len() < Self::MAX_ATTRIBUTES {
            self.entries.push((cut(name.into()), cut(value.into())));
        }
        self
    }

    /// The entries of a descriptor.
    pub(super) fn entries(&self) -> SmallVec<[(&str, &str); 8]> {
        self.entries.iter().map(|(name, value)| (&**name, &**value)).collect()
    }
}

/// A text within the bound, as on the server.
fn cut(text: Cow<'_, str>) -> Cow<'_, str> {
    match shorten(&text, Attributes::MAX_BYTES) {
        Cow::Owned(short) => Cow::Owned(short),
        Cow::Borrowed(_) => text,
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
    fn long_texts_are_shortened_and_further_attributes_dropped() {
        let long = "ä".repeat(Attributes::MAX_BYTES);
        let mut attributes = Attributes::default();
        attributes.add("owned", long.clone()).add("borrowed", &*long);
        for number in 0..2 * Attributes::MAX_ATTRIBUTES {
            attributes.add(number.to_string(), "1");
        }
        let entries = attributes.entries();
        assert_eq!(entries.len(), Attributes::MAX_ATTRIBUTES);
        assert!(entries[..2].iter().all(|(_, value)| value.len() <= Attributes::MAX_BYTES && value.starts_with("ää")));
        assert_eq!(entries[0].1, entries[1].1);
        assert_eq!(entries[2], ("0", "1"));
    }
}
