//! Fields whose names differ from those of credentials in `_` and `-` only. CGI and WSGI applications can't distinguish
//! them, so one of them would be served as another caller than the one that was counted.

use http::{HeaderMap, HeaderName};
use smallvec::SmallVec;

use crate::field_marks::FieldMarks;
use crate::model::{AttributeConfig, AttributeSource, TokenSource};

/// The fields that attributes are read from, if their names have a `_` or `-`.
#[derive(Debug, Default)]
pub(super) struct Lookalikes {
    names: Vec<HeaderName>,
    /// Whether one of the names has a `_`.
    has_underscores: bool,
}

impl Lookalikes {
    pub(super) fn of(attributes: &[AttributeConfig]) -> Lookalikes {
        let sources = attributes.iter().flat_map(|attribute| &attribute.sources);
        let names = sources.filter_map(|source| match source {
            AttributeSource::Header(name) => Some(name),
            AttributeSource::JwtClaim { issuer, .. } => match &issuer.token {
                TokenSource::Header(name) => Some(name),
                TokenSource::Bearer | TokenSource::Cookie(_) => None,
            },
            _ => None,
        });
        let names: Vec<_> = names.filter(|name| name.as_str().contains(['-', '_'])).cloned().collect();
        let has_underscores = names.iter().any(|name| name.as_str().contains('_'));
        Lookalikes { names, has_underscores }
    }

    /// Removes them from a request with fields of these kinds.
    pub(super) fn remove(&self, headers: &mut HeaderMap, marks: FieldMarks) {
        // Nearly no field has a `_`, and without one on either side names are the same or different.
        if self.names.is_empty() || !(self.has_underscores || marks.has(FieldMarks::UNDERSCORE)) {
            return;
        }
        let removed: SmallVec<[HeaderName; 4]> = headers.keys().filter(|name| self.is_one(name)).cloned().collect();
        for name in removed {
            headers.remove(name);
        }
    }

    fn is_one(&self, name: &HeaderName) -> bool {
        !self.names.contains(name)
            && self.names.iter().any(|own| own.as_str().bytes().map(spelled).eq(name.as_str().bytes().map(spelled)))
    }
}

/// A character of a name as CGI spells it.
fn spelled(byte: u8) -> u8 {
    if byte == b'-' { b'_' } else { byte }
}
