//! Formats of recorded requests: Tollgate's own lines, access logs, and other JSON.
//!
//! A line of a foreign format has named fields. A [`Mapping`] turns them into attributes.

mod access_log;
mod json;

use std::borrow::Cow;

use clap::ValueEnum;
use smallvec::SmallVec;
use tollgate::Timestamp;
use tollgate_rules::quoted;

use super::recorded_request::{RecordedDescriptor, RecordedRequest};

/// The format of the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum InputFormat {
    /// One JSON object per line, with `at` and `attributes`
    #[default]
    Tollgate,
    /// nginx's `combined` access log
    Nginx,
    /// Envoy's default access log
    Envoy,
    /// The access log of an AWS Application Load Balancer
    Alb,
    /// Other JSON lines, with --map
    Json,
}

/// An attribute and the field that has its value: `api_key=headers.x-api-key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MappedField {
    attribute: String,
    field: String,
}

/// How lines become requests.
#[derive(Debug)]
pub(crate) struct Mapping {
    format: InputFormat,
    fields: Vec<MappedField>,
}

/// The name of the request's time in a mapping, and of its cost.
const TIME: &str = "at";
const COST: &str = "cost";

/// The fields of access logs that are attributes of the same name, without a mapping.
const USUAL: [&str; 5] = ["remote_address", "method", "path", "endpoint", "host"];

/// Attributes of a request, at most; requests of the server have fewer.
const MAX_MAPPED: usize = 32;

/// The fields of a line.
trait LineFields {
    /// The value of a field, unless it is absent or `-`.
    fn get(&self, name: &str) -> Option<Cow<'_, str>>;

    /// The time of the request.
    fn time(&self, field: Option<&str>) -> Result<Timestamp, String>;
}

impl InputFormat {
    /// Whether invalid lines are a part of everyday input, and not errors.
    pub(crate) fn tolerates_invalid_lines(self) -> bool {
        matches!(self, InputFormat::Nginx | InputFormat::Envoy | InputFormat::Alb)
    }
}

impl MappedField {
    /// Parses `attribute=field`.
    pub(crate) fn parse(text: &str) -> Result<MappedField, String> {
        match text.split_once('=') {
            Some((attribute, field)) if !attribute.is_empty() && !field.is_empty() => {
                Ok(MappedField { attribute: attribute.to_owned(), field: field.to_owned() })
            }
            _ => Err("write attribute=field, for instance api_key=headers.x-api-key".to_owned()),
        }
    }
}

impl Mapping {
    /// The mapping of a format. `fields` add to the usual attributes of access logs, or replace them.
    pub(crate) fn new(format: InputFormat, fields: &[MappedField]) -> Result<Mapping, String> {
        match (format, fields) {
            (InputFormat::Tollgate, [_, ..]) => {
                return Err("--map needs --format; Tollgate's own lines have attributes already".to_owned());
            }
            (InputFormat::Json, []) => {
                return Err("--format json needs --map, for instance --map at=time --map api_key=user.key".to_owned());
            }
            (_, fields) if fields.len() > MAX_MAPPED => return Err(format!("write --map at most {MAX_MAPPED} times")),
            _ => {}
        }
        let is_log = format.tolerates_invalid_lines();
        let usual = USUAL.iter().filter(|_| is_log).filter(|name| fields.iter().all(|field| field.attribute != **name));
        let usual = usual.map(|name| MappedField { attribute: (*name).to_owned(), field: (*name).to_owned() });
        let fields: Vec<MappedField> = usual.chain(fields.iter().cloned()).collect();
        if is_log {
            let unknown = fields.iter().find(|field| !access_log::is_field(&field.field));
            if let Some(MappedField { field, .. }) = unknown {
                let names = access_log::FIELDS.join(", ");
                return Err(format!("--map: there is no field {}; write one of {names}, query.NAME", quoted(field)));
            }
        }
        Ok(Mapping { format, fields })
    }

    /// Parses a line.
    pub(crate) fn parse<'a>(&self, line: &'a [u8]) -> Result<RecordedRequest<'a>, String> {
        if self.format == InputFormat::Tollgate {
            return RecordedRequest::parse(line);
        }
        let text = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
        match self.format {
            InputFormat::Json => self.request(&json::JsonLine::parse(text)?),
            InputFormat::Nginx => self.request(&access_log::nginx(text)?),
            InputFormat::Envoy => self.request(&access_log::envoy(text)?),
            InputFormat::Alb | InputFormat::Tollgate => self.request(&access_log::alb(text)?),
        }
    }

    fn request<'r>(&self, line: &impl LineFields) -> Result<RecordedRequest<'r>, String> {
        let field_of = |name: &str| self.fields.iter().find(|field| field.attribute == name).map(|field| &*field.field);
        let at = line.time(field_of(TIME))?;
        let cost = match field_of(COST).and_then(|field| line.get(field)) {
            Some(text) => {
                text.parse().map_err(|_| format!("its cost is {}, which is not a whole number", quoted(&text)))?
            }
            None => 1,
        };
        let attributes = self.fields.iter().filter(|field| ![TIME, COST].contains(&&*field.attribute));
        let entries = attributes.filter_map(|field| {
            let value = line.get(&field.field)?;
            Some((Cow::Owned(field.attribute.clone()), Cow::Owned(value.into_owned())))
        });
        let descriptor = RecordedDescriptor { entries: entries.collect(), hits: None };
        Ok(RecordedRequest { at, domain: None, descriptors: SmallVec::from_iter([descriptor]), cost, is_of_http: true })
    }
}
