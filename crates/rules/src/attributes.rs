//! What a request says, by the numbers of its domain's attributes.

use smallvec::SmallVec;
use tollgate_core::Request;

use crate::compiled::{Attribute, Domain, Rule};
use crate::error::RequestError;

/// What a request says, by the numbers of the domain's attributes; the first value of each.
#[derive(Default)]
pub(crate) struct Attributes<'a> {
    seen: SmallVec<[Seen<'a>; 8]>,
    /// The largest cost among its descriptors.
    pub(crate) cost: u64,
    /// Whether it has a single descriptor, which then is the one that every rule looks at.
    is_lone: bool,
}

#[derive(Clone, Copy)]
struct Seen<'a> {
    attribute: Attribute,
    value: &'a str,
    descriptor: u8,
}

impl<'a> Attributes<'a> {
    /// What a request says, all of it.
    pub(crate) fn of(request: &Request<'a>, domain: &Domain) -> Result<Attributes<'a>, RequestError> {
        let mut attributes = Attributes::default();
        attributes.read(request, domain)?;
        Ok(attributes)
    }

    pub(crate) fn read(&mut self, request: &Request<'a>, domain: &Domain) -> Result<(), RequestError> {
        if request.descriptors.len() > Request::MOST_DESCRIPTORS {
            return Err(RequestError::TooMany { what: "descriptors", most: Request::MOST_DESCRIPTORS });
        }
        self.is_lone = request.descriptors.len() == 1;
        let mut cost = None;
        for (descriptor, number) in request.descriptors.iter().zip(0..) {
            cost = cost.max(Some(descriptor.hits.unwrap_or(request.cost)));
            if descriptor.entries.len() > Request::MOST_ENTRIES {
                return Err(RequestError::TooMany { what: "entries in a descriptor", most: Request::MOST_ENTRIES });
            }
            for (name, value) in descriptor.entries {
                if name.len().max(value.len()) > Request::LONGEST_TEXT {
                    return Err(RequestError::TooLong);
                }
                // The value will be hashed once the rules are found. If it is not in the cache, it comes meanwhile.
                std::hint::black_box(value.as_bytes().first().copied());
                if let Some(attribute) = domain.attributes.get(*name)
                    && self.get(*attribute).is_none()
                {
                    self.seen.push(Seen { attribute: *attribute, value, descriptor: number });
                }
            }
        }
        self.cost = cost.unwrap_or(request.cost);
        Ok(())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Attribute, &'a str)> {
        self.seen.iter().map(|seen| (seen.attribute, seen.value))
    }

    pub(crate) fn get(&self, attribute: Attribute) -> Option<&'a str> {
        self.seen.iter().find(|seen| seen.attribute == attribute).map(|seen| seen.value)
    }

    /// The descriptors that a rule's key and clauses look at; all of them where it looks at none.
    #[inline]
    pub(crate) fn touched_by(&self, rule: &Rule) -> u64 {
        if self.is_lone {
            return 1;
        }
        let looks_at = |attribute| {
            rule.key.iter().any(|part| part.attribute == attribute)
                || rule.clauses.iter().any(|(clause, _)| *clause == attribute)
        };
        let touched = self.seen.iter().filter(|seen| looks_at(seen.attribute));
        match touched.fold(0, |touched, seen| touched | 1 << seen.descriptor) {
            0 => u64::MAX,
            touched => touched,
        }
    }
}

impl Domain {
    /// The name of an attribute. Slow: for errors and explanations.
    pub(crate) fn attribute_name(&self, attribute: Attribute) -> &str {
        self.attributes.iter().find(|(_, number)| **number == attribute).map_or("", |(name, _)| name)
    }
}
