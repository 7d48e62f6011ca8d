//! The attributes of requests, and where their values come from.

use tollgate_core::Request;
use tollgate_rules::problem::{TextFault, quoted};
use tollgate_rules::yaml::fields::{Faults, Fields, text};
use tollgate_rules::yaml::{Yaml, YamlKind};

use super::issuers::Issuers;
use super::{Context, MAX_COSTS, OF_EVERY_REQUEST, values};
use crate::model::{AttributeConfig, AttributeSource, CertificateField, ListenerConfig, RouteConfig, Segment};

/// The most attributes: all of a request, with those that every request has and its costs, are in one descriptor.
const MAX_ATTRIBUTES: usize = Request::MAX_ENTRIES - OF_EVERY_REQUEST.len() - MAX_COSTS;

/// The most sources of an attribute.
const MAX_SOURCES: usize = 8;

const KINDS: [&str; 6] = ["header", "query", "cookie", "path", "jwt", "certificate"];

/// The names of the attributes in the file, right or not.
pub(super) fn names<'y>(map: &Fields<'y>) -> Vec<&'y str> {
    match map.entry("attributes").map(|entry| &entry.value.kind) {
        Some(YamlKind::Map(entries)) => entries.iter().map(|entry| entry.key.text.as_str()).collect(),
        _ => Vec::new(),
    }
}

pub(super) fn attributes(
    map: &Fields<'_>,
    context: &Context<'_>,
    issuers: &mut Issuers,
    routes: &[RouteConfig],
    listeners: &[ListenerConfig],
) -> Vec<AttributeConfig> {
    let Some(entries) = map.map("attributes").map(|map| map.entries()) else { return Vec::new() };
    if entries.len() > MAX_ATTRIBUTES {
        map.fault_at("attributes", "there are too many attributes", &format!("write at most {MAX_ATTRIBUTES}"));
    }
    let mut reader = SourceReader { faults: map.faults(), context, issuers, routes, listeners };
    let mut attributes = Vec::new();
    for entry in entries.iter().take(MAX_ATTRIBUTES) {
        let name = map.faults().sound(entry.line, name(&entry.key.text));
        let items = map.faults().sound(entry.line, values::one_or_more(&entry.value, MAX_SOURCES)).unwrap_or_default();
        if matches!(&entry.value.kind, YamlKind::List(items) if items.is_empty()) {
            let fault = TextFault::new("the attribute has no source", "write for instance {header: X-Api-Key}");
            map.faults().push(entry.line, fault);
        }
        let sources: Vec<_> = items.iter().filter_map(|item| reader.source(item)).collect();
        attributes.extend(name.map(|name| AttributeConfig { name, sources }));
    }
    attributes
}

fn name(given: &str) -> Result<String, TextFault> {
    match OF_EVERY_REQUEST.contains(&given) {
        true => Err(TextFault::new(format!("every request has {} already", quoted(given)), "write another name")),
        false => values::name("an attribute", given),
    }
}

/// Reads sources, and what they refer to.
struct SourceReader<'a> {
    faults: &'a Faults,
    context: &'a Context<'a>,
    issuers: &'a mut Issuers,
    routes: &'a [RouteConfig],
    listeners: &'a [ListenerConfig],
}

impl SourceReader<'_> {
    fn source(&mut self, value: &Yaml) -> Option<AttributeSource> {
        if let YamlKind::Scalar(scalar) = &value.kind {
            match &*scalar.text {
                "bearer" => return Some(AttributeSource::Bearer),
                "tls_fingerprint" => return Some(self.tls_fingerprint(value.line)),
                _ => {}
            }
            let message = format!("{} is not a source of an attribute", value.described());
            let remedy = "write bearer, tls_fingerprint, or for instance {header: X-Api-Key}";
            self.faults.push(value.line, TextFault::new(message, remedy));
            return None;
        }
        let map = Fields::of(value, "the source of an attribute", self.faults)?;
        let found: Vec<_> = KINDS.into_iter().filter(|kind| map.has(kind)).collect();
        let source = match found.as_slice() {
            ["header"] => map.read("header", |value| values::header(text(value)?)).map(AttributeSource::Header),
            ["query"] => map.read("query", values::words).map(AttributeSource::Query),
            ["cookie"] => map.read("cookie", values::words).map(AttributeSource::Cookie),
            ["path"] => map.read("path", |value| self.path_parameter(text(value)?)),
            ["certificate"] => self.certificate(&map),
            ["jwt"] => {
                let claim = map.read("jwt", values::words);
                let issuer = self.issuers.of_attribute(&map, self.context);
                claim.zip(issuer).map(|(claim, issuer)| AttributeSource::JwtClaim { claim, issuer })
            }
            // An unknown key has its own error.
            [] if !map.entries().is_empty() => None,
            _ => {
                map.fault("this is not one source of an attribute", &format!("write one of {}", KINDS.join(", ")));
                None
            }
        };
        map.finish();
        source
    }

    /// A parameter that some route has.
    fn path_parameter(&self, given: &str) -> Result<AttributeSource, TextFault> {
        let names = self.routes.iter().flat_map(|route| &route.path.segments).filter_map(|segment| match segment {
            Segment::Parameter(name) => Some(name.as_str()),
            Segment::Literal(_) => None,
        });
        match names.clone().any(|name| name == given) {
            true => Ok(AttributeSource::PathParameter(given.to_owned())),
            false => Err(values::unknown("path parameter", given, names)),
        }
    }

    fn tls_fingerprint(&self, line: usize) -> AttributeSource {
        if !self.listeners.iter().any(|listener| listener.tls.is_some()) {
            let message = "no client has a TLS fingerprint, since no listener has `tls`";
            let remedy = "write `tls: {cert: …, key: …}` for a listener";
            self.context.warnings.push(line, TextFault::new(message, remedy));
        }
        AttributeSource::TlsFingerprint
    }

    fn certificate(&self, map: &Fields<'_>) -> Option<AttributeSource> {
        let has_client_ca =
            |listener: &ListenerConfig| listener.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        if !self.listeners.iter().any(has_client_ca) {
            let message = "no client has a certificate, since no listener has `client_ca`";
            let remedy = "write `tls: {cert: …, key: …, client_ca: …}` for a listener";
            self.context.warnings.push(map.line, TextFault::new(message, remedy));
        }
        let fields = [
            ("san", CertificateField::San),
            ("subject", CertificateField::Subject),
            ("fingerprint", CertificateField::Fingerprint),
        ];
        let field = map.read("certificate", |value| values::word("a part of a certificate", value, &fields));
        field.map(AttributeSource::Certificate)
    }
}
