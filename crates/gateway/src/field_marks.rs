//! Which kinds of fields a head has.
//!
//! A proxy looks for many fields that nearly no request has. Each kind is found out once for a name, when it is read, and a head has
//! those of all of its names: what it does not have need not be searched for.

use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName};

use crate::field_names::{X_REQUEST_ID, is_left_out, is_of_proxies};

/// The kinds of fields of a head, or of one name. A kind that is absent is certainly not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldMarks(u16);

impl FieldMarks {
    pub(crate) const CONNECTION: FieldMarks = FieldMarks(1);
    pub(crate) const CONTENT_LENGTH: FieldMarks = FieldMarks(1 << 1);
    pub(crate) const EXPECT: FieldMarks = FieldMarks(1 << 2);
    pub(crate) const TE: FieldMarks = FieldMarks(1 << 3);
    pub(crate) const TRANSFER_ENCODING: FieldMarks = FieldMarks(1 << 4);
    pub(crate) const UPGRADE: FieldMarks = FieldMarks(1 << 5);
    pub(crate) const REQUEST_ID: FieldMarks = FieldMarks(1 << 6);
    /// Fields of a request that are never forwarded as they are.
    pub(crate) const LEFT_OUT: FieldMarks = FieldMarks(1 << 7);
    /// Fields that only a trusted proxy may set.
    pub(crate) const OF_PROXIES: FieldMarks = FieldMarks(1 << 8);
    /// Names with a `_`.
    pub(crate) const UNDERSCORE: FieldMarks = FieldMarks(1 << 9);

    /// Those of a head.
    pub fn of(headers: &HeaderMap) -> FieldMarks {
        headers.keys().map(FieldMarks::of_name).fold(FieldMarks::default(), FieldMarks::with)
    }

    pub(crate) fn of_name(name: &HeaderName) -> FieldMarks {
        let kinds = [
            (*name == CONNECTION, FieldMarks::CONNECTION),
            (*name == CONTENT_LENGTH, FieldMarks::CONTENT_LENGTH),
            (*name == EXPECT, FieldMarks::EXPECT),
            (*name == TE, FieldMarks::TE),
            (*name == TRANSFER_ENCODING, FieldMarks::TRANSFER_ENCODING),
            (*name == UPGRADE, FieldMarks::UPGRADE),
            (*name == X_REQUEST_ID, FieldMarks::REQUEST_ID),
            (is_left_out(name), FieldMarks::LEFT_OUT),
            (is_of_proxies(name), FieldMarks::OF_PROXIES),
            (name.as_str().contains('_'), FieldMarks::UNDERSCORE),
        ];
        kinds.into_iter().filter(|(is, _)| *is).fold(FieldMarks::default(), |marks, (_, mark)| marks.with(mark))
    }

    pub(crate) const fn with(self, other: FieldMarks) -> FieldMarks {
        FieldMarks(self.0 | other.0)
    }

    /// Whether there is a field of any of these kinds.
    pub(crate) fn has(self, any: FieldMarks) -> bool {
        self.0 & any.0 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_the_kinds_of_its_names() {
        let of = |names: &[&str]| {
            let fields = names.iter().map(|name| (name.parse::<HeaderName>().unwrap(), "1".parse().unwrap()));
            FieldMarks::of(&fields.collect())
        };
        assert_eq!(of(&["host", "accept", "x-api-key", "cookie", "user-agent"]), FieldMarks::default());
        for (name, marks) in [
            ("connection", FieldMarks::CONNECTION.with(FieldMarks::LEFT_OUT)),
            ("content-length", FieldMarks::CONTENT_LENGTH),
            ("expect", FieldMarks::EXPECT.with(FieldMarks::LEFT_OUT)),
            ("te", FieldMarks::TE.with(FieldMarks::LEFT_OUT)),
            ("transfer-encoding", FieldMarks::TRANSFER_ENCODING.with(FieldMarks::LEFT_OUT)),
            ("upgrade", FieldMarks::UPGRADE.with(FieldMarks::LEFT_OUT)),
            ("x-request-id", FieldMarks::REQUEST_ID),
            ("keep-alive", FieldMarks::LEFT_OUT),
            ("proxy-authorization", FieldMarks::LEFT_OUT),
            ("x-tollgate-tier", FieldMarks::LEFT_OUT),
            ("x_tollgate_tier", FieldMarks::LEFT_OUT.with(FieldMarks::UNDERSCORE)),
            ("x-forwarded-for", FieldMarks::OF_PROXIES),
            ("x_real_ip", FieldMarks::OF_PROXIES.with(FieldMarks::UNDERSCORE)),
        ] {
            assert_eq!(of(&[name]), marks, "{name}");
            assert_eq!(of(&["host", name, "accept"]), marks, "{name}");
        }
    }
}
