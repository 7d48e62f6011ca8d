//! The attributes of a request, by the numbers of its domain.

use smallvec::SmallVec;
use tollgate_core::Request;

use crate::compiled::{Attribute, Domain, Rule};
use crate::error::RequestError;

/// The attributes of a request, by the numbers of its domain; the first value of each.
#[derive(Default)]
pub(crate) struct Attributes<'a> {
    values: SmallVec<[AttributeValue<'a>; 8]>,
    /// The maximum cost among its descriptors.
    pub(crate) cost: u64,
    /// Whether it has a single descriptor, which then matches every rule.
    is_lone: bool,
}

#[derive(Clone, Copy)]
struct AttributeValue<'a> {
    attribute: Attribute,
    value: &'a str,
    descriptor: u8,
}

impl<'a> Attributes<'a> {
    /// The attributes of a request.
    pub(crate) fn from_request(request: &Request<'a>, domain: &Domain) -> Result<Attributes<'a>, RequestError> {
        let mut attributes = Attributes::default();
        attributes.read(request, domain)?;
        Ok(attributes)
    }

    pub(crate) fn read(&mut self, request: &Request<'a>, domain: &Domain) -> Result<(), RequestError> {
        if request.descriptors.len() > Request::MAX_DESCRIPTORS {
            return Err(RequestError::TooMany { what: "descriptors", max: Request::MAX_DESCRIPTORS });
        }
        self.is_lone = request.descriptors.len() == 1;
        let mut cost = None;
        for (descriptor, number) in request.descriptors.iter().zip(0..) {
            cost = cost.max(Some(descriptor.hits.unwrap_or(request.cost)));
            if descriptor.entries.len() > Request::MAX_ENTRIES {
                return Err(RequestError::TooMany { what: "entries in a descriptor", max: Request::MAX_ENTRIES });
            }
            for (name, value) in descriptor.entries {
                if name.len().max(value.len()) > Request::MAX_TEXT_BYTES {
                    return Err(RequestError::TooLong);
                }
                // The value is hashed once the rules are found. This loads it into the cache.
                std::hint::black_box(value.as_bytes().first().copied());
                if let Some(attribute) = domain.attributes.get(*name)
                    && self.get(*attribute).is_none()
                {
                    self.values.push(AttributeValue { attribute: *attribute, value, descriptor: number });
                }
            }
        }
        self.cost = cost.unwrap_or(request.cost);
        Ok(())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Attribute, &'a str)> {
        self.values.iter().map(|values| (values.attribute, values.value))
    }

    pub(crate) fn get(&self, attribute: Attribute) -> Option<&'a str> {
        self.values.iter().find(|values| values.attribute == attribute).map(|values| values.value)
    }

    /// The descriptors with attributes of a rule's key and clauses; all descriptors if there are none.
    #[inline]
    pub(crate) fn touched_by(&self, rule: &Rule) -> u64 {
        if self.is_lone {
            return 1;
        }
        let matches_rule = |attribute| {
            rule.key.iter().any(|part| part.attribute == attribute)
                || rule.clauses.iter().any(|(clause, _)| *clause == attribute)
        };
        let touched = self.values.iter().filter(|values| matches_rule(values.attribute));
        match touched.fold(0, |touched, values| touched | 1 << values.descriptor) {
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
