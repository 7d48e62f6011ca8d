//! The subject of a client's certificate as text.

use std::fmt::Write as _;

use rustls::pki_types::CertificateDer;

use super::der::{self, Element};

/// The types of attributes that have a short name (RFC 4514 section 3), and two that are common.
const NAMES: [(&[u8], &str); 11] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "STREET"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], "emailAddress"),
];

/// The string types whose content is UTF-8, or ASCII.
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];

/// The distinguished name of the subject, as RFC 4514 writes it: `CN=ada,O=Example`. `None` if the certificate is malformed.
pub fn subject(certificate: &CertificateDer<'_>) -> Option<String> {
    let mut text = String::new();
    for (number, part) in der::subject(certificate)?.iter().rev().enumerate() {
        for (place, (kind, value)) in part.iter().enumerate() {
            match (number, place) {
                (0, 0) => {}
                (_, 0) => text.push(','),
                _ => text.push('+'),
            }
            write_attribute(kind, value, &mut text);
        }
    }
    Some(text)
}

fn write_attribute(kind: &[u8], value: &Element<'_>, text: &mut String) {
    let name = NAMES.iter().find(|(known, _)| *known == kind).map(|(_, name)| *name);
    match name {
        Some(name) => text.push_str(name),
        None => write_identifier(kind, text),
    }
    text.push('=');
    let content = std::str::from_utf8(value.content).ok().filter(|_| TEXTS.contains(&value.tag));
    match content.filter(|_| name.is_some()) {
        Some(content) => write_escaped(content, text),
        None => {
            // The whole element in hexadecimal digits.
            text.push('#');
            for byte in std::iter::once(value.tag).chain(length(value.content)).chain(value.content.iter().copied()) {
                // Writing to a String can't fail.
                let _ = write!(text, "{byte:02x}");
            }
        }
    }
}

/// The length of an element as DER has it.
fn length(content: &[u8]) -> impl Iterator<Item = u8> {
    let bytes = content.len().to_be_bytes();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count().min(bytes.len() - 1);
    let long = (content.len() > 0x7f).then(|| 0x80 | (bytes.len() - zeros) as u8);
    long.into_iter().chain(bytes.into_iter().skip(zeros))
}

/// An object identifier in its dotted form.
fn write_identifier(kind: &[u8], text: &mut String) {
    let mut number: u64 = 0;
    let mut is_first = true;
    for byte in kind {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        // Writing to a String can't fail.
        let _ = match std::mem::take(&mut is_first) {
            true => write!(text, "{}.{}", (number / 40).min(2), number - 40 * (number / 40).min(2)),
            false => write!(text, ".{number}"),
        };
        number = 0;
    }
}

/// A value with what has a meaning in the text escaped.
fn write_escaped(content: &str, text: &mut String) {
    let last = content.chars().count().saturating_sub(1);
    for (place, character) in content.chars().enumerate() {
        match character {
            '\0' => text.push_str("\\00"),
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => text.extend(['\\', character]),
            ' ' if place == 0 || place == last => text.push_str("\\ "),
            '#' if place == 0 => text.push_str("\\#"),
            _ => text.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    #[test]
    fn subjects_are_written_from_their_most_specific_part_on() {
        for (parts, expected) in [
            (&[][..], ""),
            (&[(DnType::CommonName, "ada")], "CN=ada"),
            (
                &[(DnType::CountryName, "DE"), (DnType::OrganizationName, "Example"), (DnType::CommonName, "ada")],
                "CN=ada,O=Example,C=DE",
            ),
            (&[(DnType::CommonName, "a,O=Evil")], "CN=a\\,O=Evil"),
            (&[(DnType::CommonName, " #a+b\"\\ ")], "CN=\\ #a\\+b\\\"\\\\\\ "),
            (&[(DnType::CommonName, "#a")], "CN=\\#a"),
            (&[(DnType::CommonName, "Zoë")], "CN=Zoë"),
            (&[(DnType::CustomDnType(vec![1, 2, 840, 3]), "x")], "1.2.840.3=#0c0178"),
        ] {
            let mut params = CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            for (kind, value) in parts {
                params.distinguished_name.push(kind.clone(), *value);
            }
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            assert_eq!(subject(certificate.der()).as_deref(), Some(expected));
        }
        assert_eq!(subject(&CertificateDer::from(vec![0x30, 0x01])), None);
    }
}
