//! Attributes by number: a domain numbers those that its rules use, and a request is read by these numbers.

use prefetch_index::prefetch_index;
use smallvec::SmallVec;
use tollgate_core::{Descriptor, Request};

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
#[derive(Clone, Copy)]
pub(crate) struct Attributes<'p, 'a> {
    places: &'p [AttributePlace],
    descriptors: &'a [Descriptor<'a>],
    /// The maximum cost among its descriptors.
    pub(crate) cost: u64,
}

/// Where each attribute of a request is, if some rule uses it.
pub(crate) type AttributePlaces = SmallVec<[AttributePlace; 8]>;

/// Where the first value of an attribute is in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttributePlace {
    pub(crate) attribute: Attribute,
    pub(crate) descriptor: u8,
    pub(crate) entry: u8,
}

/// What a first look at a request says, apart from its values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outline {
    /// A hash of the names. Not a strong one: names are compared as well.
    pub(crate) names: u64,
    /// The number of entries, and the bytes of their names.
    pub(crate) entries: usize,
    pub(crate) name_bytes: usize,
    /// The maximum cost among its descriptors.
    pub(crate) cost: u64,
    /// Whether a limit came with it.
    pub(crate) has_limits: bool,
}

const _: () = assert!(Request::MAX_DESCRIPTORS <= 1 << u8::BITS && Request::MAX_ENTRIES <= 1 << u8::BITS);

impl Outline {
    /// The outline of a request within the bounds. Its values are loaded meanwhile.
    ///
    /// # Errors
    /// If the request exceeds a bound.
    #[inline]
    pub(crate) fn of(request: &Request<'_>) -> Result<Outline, RequestError> {
        if request.descriptors.len() > Request::MAX_DESCRIPTORS {
            return Err(RequestError::TooMany { what: "descriptors", max: Request::MAX_DESCRIPTORS });
        }
        let mut outline = Outline { names: 0, entries: 0, name_bytes: 0, cost: 0, has_limits: false };
        let mut cost = None;
        for descriptor in request.descriptors {
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
                outline.names = (outline.names ^ sketch(name)).wrapping_mul(MIX);
                outline.name_bytes += name.len();
            }
            outline.entries += descriptor.entries.len();
            outline.has_limits |= descriptor.limit.is_some();
        }
        outline.cost = cost.unwrap_or(request.cost);
        Ok(outline)
    }
}

/// An odd number without a pattern.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// The length, the first and the last byte of a name.
#[inline]
fn sketch(name: &str) -> u64 {
    let byte = |byte: Option<&u8>| u64::from(byte.copied().unwrap_or_default());
    let bytes = name.as_bytes();
    bytes.len() as u64 | byte(bytes.first()) << 16 | byte(bytes.last()) << 24
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

/// Looks up the names of a request one by one. The request is within its bounds.
pub(crate) fn attribute_places(request: &Request<'_>, numbers: &AttributeNumbers) -> AttributePlaces {
    let mut places = AttributePlaces::new();
    for (one, descriptor) in request.descriptors.iter().zip(0..) {
        for ((name, _), entry) in one.entries.iter().zip(0..) {
            if let Some(attribute) = numbers.get(name)
                && !places.iter().any(|place| place.attribute == attribute)
            {
                places.push(AttributePlace { attribute, descriptor, entry });
            }
        }
    }
    places
}

impl<'p, 'a> Attributes<'p, 'a> {
    /// The attributes of a request that are at these places.
    #[inline]
    pub(crate) fn new(request: &Request<'a>, outline: &Outline, places: &'p [AttributePlace]) -> Attributes<'p, 'a> {
        Attributes { places, descriptors: request.descriptors, cost: outline.cost }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Attribute, &'a str)> {
        self.places.iter().filter_map(|place| Some((place.attribute, self.at(*place)?)))
    }

    #[inline]
    pub(crate) fn get(&self, attribute: Attribute) -> Option<&'a str> {
        self.at(*self.places.iter().find(|place| place.attribute == attribute)?)
    }

    #[inline]
    fn at(&self, place: AttributePlace) -> Option<&'a str> {
        let descriptor = self.descriptors.get(usize::from(place.descriptor))?;
        descriptor.entries.get(usize::from(place.entry)).map(|(_, value)| *value)
    }

    /// The descriptors with such attributes, as a bit set; all descriptors if there are none.
    #[inline]
    pub(crate) fn descriptors_with(&self, is_relevant: impl Fn(Attribute) -> bool) -> u64 {
        // A single descriptor matches every rule.
        if self.descriptors.len() == 1 {
            return 1;
        }
        let relevant = self.places.iter().filter(|place| is_relevant(place.attribute));
        match relevant.fold(0, |found, place| found | 1 << place.descriptor) {
            0 => u64::MAX,
            found => found,
        }
    }
}
