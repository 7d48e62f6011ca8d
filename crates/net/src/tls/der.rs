//! Reads names from the DER of a certificate that has been verified.

/// An element: its tag, and its content.
pub(super) struct Element<'d> {
    pub(super) tag: u8,
    pub(super) content: &'d [u8],
}

/// A part of a distinguished name: the types and the values of its attributes, mostly one.
pub(super) type NamePart<'d> = Vec<(&'d [u8], Element<'d>)>;

/// The elements of some content, until the first malformed one.
struct Elements<'d> {
    rest: &'d [u8],
    is_malformed: bool,
}

const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
/// The version of a certificate: `[0] EXPLICIT`.
const VERSION: u8 = 0xa0;
/// The extensions of a certificate: `[3] EXPLICIT`.
const EXTENSIONS: u8 = 0xa3;
/// `id-ce-subjectAltName`, 2.5.29.17.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// The names, each with the tag of its kind (RFC 5280, `GeneralName`); `None` if the certificate is malformed.
pub(super) fn subject_alt_names(certificate: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let (certificate, rest) = read(certificate).filter(|(element, _)| element.tag == SEQUENCE)?;
    let (signed, _) = read(certificate.content).filter(|(element, _)| element.tag == SEQUENCE && rest.is_empty())?;
    let Some(extensions) = all(signed.content)?.into_iter().find(|element| element.tag == EXTENSIONS) else {
        return Some(Vec::new());
    };
    let (extensions, _) = read(extensions.content).filter(|(element, _)| element.tag == SEQUENCE)?;
    let mut names = None;
    for extension in all(extensions.content)? {
        let parts = all(extension.content)?;
        let (Some(id), Some(value)) = (parts.first(), parts.last()) else { return None };
        if id.tag == OBJECT_IDENTIFIER && id.content == SUBJECT_ALT_NAME {
            let (list, _) =
                read(value.content).filter(|(list, _)| value.tag == OCTET_STRING && list.tag == SEQUENCE)?;
            // A second one would be ambiguous.
            if names.replace(all(list.content)?).is_some() {
                return None;
            }
        }
    }
    Some(names.into_iter().flatten().map(|name| (name.tag, name.content)).collect())
}

/// The subject: its parts from the most general one on. `None` if the certificate is malformed.
pub(super) fn subject(certificate: &[u8]) -> Option<Vec<NamePart<'_>>> {
    let (certificate, _) = read(certificate).filter(|(element, _)| element.tag == SEQUENCE)?;
    let (signed, _) = read(certificate.content).filter(|(element, _)| element.tag == SEQUENCE)?;
    // After the version, which the first one lacks: number, algorithm, issuer, validity, subject.
    let fields = all(signed.content)?.into_iter().filter(|element| element.tag != VERSION);
    let subject = fields.skip(4).find(|_| true).filter(|element| element.tag == SEQUENCE)?;
    let parts = all(subject.content)?.into_iter().map(|part| {
        let attributes = all(part.content)?.into_iter().map(|attribute| {
            let mut both = all(attribute.content)?.into_iter();
            let (kind, value) = (both.next()?, both.next()?);
            (kind.tag == OBJECT_IDENTIFIER && both.next().is_none()).then_some((kind.content, value))
        });
        attributes.collect::<Option<Vec<_>>>()
    });
    parts.collect()
}

/// All elements; `None` if one is malformed.
fn all(content: &[u8]) -> Option<Vec<Element<'_>>> {
    let mut elements = Elements { rest: content, is_malformed: false };
    let all = elements.by_ref().collect();
    (!elements.is_malformed).then_some(all)
}

/// The first element, and what follows it.
fn read(bytes: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let [tag, length, rest @ ..] = bytes else { return None };
    let (length, rest) = match length {
        // Up to 127, the length itself; above, the number of bytes that it has.
        0..=0x7f => (usize::from(*length), rest),
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(*length - 0x80))?;
            (length.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((Element { tag: *tag, content }, rest))
}

impl<'d> Iterator for Elements<'d> {
    type Item = Element<'d>;

    fn next(&mut self) -> Option<Element<'d>> {
        if self.rest.is_empty() || self.is_malformed {
            return None;
        }
        match read(self.rest) {
            Some((element, rest)) => {
                self.rest = rest;
                Some(element)
            }
            None => {
                self.is_malformed = true;
                None
            }
        }
    }
}
