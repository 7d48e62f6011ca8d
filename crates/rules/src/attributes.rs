//! Attributes by number: a domain numbers those that its rules use, and a request is read by these numbers.

use prefetch_index::prefetch_index;
use smallvec::SmallVec;
use tollgate_core::Request;

use crate::error::RequestError;
use crate::index::ByText;

/// The number of an attribute that some rule of the domain uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Attribute(pub(crate) u32);

/// Numbers for the attributes that rules use.
#[derive(Debug, Default)]
pub(crate) struct AttributeNumbers {
    numbers: ByText<Attribute>,
    /// Most names are found here, without hashing them: it has a place for each length, first and last byte.
    direct: Vec<Option<(Box<str>, Attribute)>>,
}

/// The number of direct places, a power of two: several times as many as a domain usually has attributes.
const DIRECT_PLACES: usize = 64;

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

impl AttributeNumbers {
    /// The number of an attribute, which is new if the name is.
    pub(crate) fn number(&mut self, name: &str) -> Attribute {
        let next = Attribute(self.numbers.len() as u32);
        let number = *self.numbers.entry(name.into()).or_insert(next);
        self.direct.resize(DIRECT_PLACES, None);
        // The first name has the place. Others are looked up in the map.
        self.direct[direct_place(name)].get_or_insert_with(|| (name.into(), number));
        number
    }

    /// The number of an attribute that some rule uses.
    #[inline]
    pub(crate) fn get(&self, name: &str) -> Option<Attribute> {
        match self.direct.get(direct_place(name))? {
            // No name has this place, so it is unknown.
            None => None,
            Some((known, number)) if **known == *name => Some(*number),
            Some(_) => self.numbers.get(name).copied(),
        }
    }

    /// All names with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, Attribute)> {
        self.numbers.iter().map(|(name, number)| (&**name, *number))
    }
}

#[inline]
fn direct_place(name: &str) -> usize {
    let byte = |byte: Option<&u8>| usize::from(byte.copied().unwrap_or_default());
    let bytes = name.as_bytes();
    (bytes.len() + 5 * byte(bytes.first()) + 13 * byte(bytes.last())) % DIRECT_PLACES
}

impl<'a> Attributes<'a> {
    /// The attributes of a request, by these numbers.
    pub(crate) fn from_request(
        request: &Request<'a>,
        numbers: &AttributeNumbers,
    ) -> Result<Attributes<'a>, RequestError> {
        let mut attributes = Attributes::default();
        attributes.read(request, numbers)?;
        Ok(attributes)
    }

    pub(crate) fn read(&mut self, request: &Request<'a>, numbers: &AttributeNumbers) -> Result<(), RequestError> {
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
                // The value is hashed once the rules are found.
                prefetch_index(value.as_bytes(), 0);
                if let Some(attribute) = numbers.get(name)
                    && self.get(attribute).is_none()
                {
                    self.values.push(AttributeValue { attribute, value, descriptor: number });
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

    /// The descriptors with such attributes, as a bit set; all descriptors if there are none.
    #[inline]
    pub(crate) fn descriptors_with(&self, is_relevant: impl Fn(Attribute) -> bool) -> u64 {
        if self.is_lone {
            return 1;
        }
        let relevant = self.values.iter().filter(|values| is_relevant(values.attribute));
        match relevant.fold(0, |found, values| found | 1 << values.descriptor) {
            0 => u64::MAX,
            found => found,
        }
    }
}
