//! The `signals` list: what to watch for.

use tollgate_core::Span;

use crate::address::IPV6_PREFIX;
use crate::limit_text;
use crate::load::ban;
use crate::load::clauses;
use crate::load::domain::DomainSettings;
use crate::load::keys;
use crate::load::reader::{Fields, FileReader};
use crate::model::Signal;
use crate::problem::quoted;
use crate::yaml::Yaml;

/// The maximum number of attributes under `per`.
const MAX_PER: usize = 4;

/// The range of `threshold`. Below two, every request would raise the signal.
const THRESHOLDS: std::ops::RangeInclusive<u64> = 2..=1_000_000_000;

/// The time in which distinct values are counted, by default and at the least and the most.
const WINDOW: Span = Span::from_secs(3_600);
const MIN_WINDOW: Span = Span::from_secs(10);
const MAX_WINDOW: Span = Span::from_secs(7 * 86_400);

const EXAMPLE: &str = "`- {name: accounts-per-address, distinct: account, per: [remote_address], threshold: 40}`";

/// Adds the valid signals of a list to those of the domain's other documents.
pub(super) fn read(list: &Yaml, settings: &DomainSettings, signals: &mut Vec<Signal>, reader: &mut FileReader<'_>) {
    for item in reader.list(list, "signals", EXAMPLE).unwrap_or(&[]) {
        let Some(signal) = read_signal(item, settings, reader) else { continue };
        if let Some(twin) = signals.iter().find(|twin| twin.name == signal.name) {
            let message =
                format!("the signal {} is already in {}:{}", quoted(&signal.name), twin.at.file, twin.at.line);
            reader.error(item.line, message, "give each signal a name of its own");
        } else {
            signals.push(signal);
        }
    }
}

fn read_signal(item: &Yaml, settings: &DomainSettings, reader: &mut FileReader<'_>) -> Option<Signal> {
    let fields = reader.fields(item, &keys::SIGNAL)?;
    // Everything is read before the signal is rejected, so that all errors are reported.
    let name = required(&fields, "name", "write a `name`, unique in the domain", reader)
        .and_then(|value| reader.name(value, "name"));
    let distinct = required(&fields, "distinct", "write the attribute whose values are counted", reader)
        .and_then(|value| reader.attribute(value, "distinct"));
    let per = required(&fields, "per", "write for instance `per: [remote_address]`", reader)
        .and_then(|value| read_per(value, reader));
    let threshold = required(&fields, "threshold", "write from how many distinct values on it is raised", reader)
        .and_then(|value| reader.number(value, "threshold", THRESHOLDS));
    let clauses = fields.get("match").map_or(Some(Vec::new()), |value| clauses::read(value, reader));
    let window = fields.get("window").map_or(Some(WINDOW), |value| read_window(value, reader));
    let ipv6_prefix = fields
        .get("ipv6_prefix")
        .map_or(Some(IPV6_PREFIX.into()), |value| reader.number(value, "ipv6_prefix", 1..=128));

    let ban = fields.get("then").map(|value| ban::read_then(value, per.as_deref(), settings, reader));

    let (distinct, per) = (distinct?, per?);
    if per.contains(&distinct) {
        let message = format!("each {} has one value of {}: itself", quoted(&distinct), quoted(&distinct));
        reader.error(fields.line, message, "count another attribute, or count it per another one");
        return None;
    }
    Some(Signal {
        name: name?,
        distinct,
        per,
        clauses: clauses?,
        threshold: threshold?,
        window: window?,
        ipv6_prefix: u8::try_from(ipv6_prefix?).unwrap_or(IPV6_PREFIX),
        ban: match ban {
            Some(ban) => Some(ban?),
            None => None,
        },
        at: reader.place(fields.line),
    })
}

fn required<'y>(fields: &Fields<'y>, key: &str, remedy: &str, reader: &mut FileReader<'_>) -> Option<&'y Yaml> {
    let value = fields.get(key);
    if value.is_none() {
        reader.error(fields.line, format!("the signal has no `{key}`"), remedy);
    }
    value
}

fn read_per(value: &Yaml, reader: &mut FileReader<'_>) -> Option<Vec<String>> {
    let items = reader.list(value, "per", "`per: [remote_address]`")?;
    if !(1..=MAX_PER).contains(&items.len()) {
        reader.error(value.line, format!("`per` has {} attributes", items.len()), format!("write 1 to {MAX_PER}"));
        return None;
    }
    let mut per: Vec<String> = Vec::new();
    for item in items {
        let attribute = reader.attribute(item, "per")?;
        if per.contains(&attribute) {
            reader.error(item.line, format!("`per` names {} twice", quoted(&attribute)), "name each attribute once");
            return None;
        }
        per.push(attribute);
    }
    Some(per)
}

fn read_window(value: &Yaml, reader: &mut FileReader<'_>) -> Option<Span> {
    let text = reader.text(value, "window")?;
    let window = reader.sound(value.line, "window", limit_text::duration(text))?;
    if (MIN_WINDOW..=MAX_WINDOW).contains(&window) {
        return Some(window);
    }
    reader.error(value.line, format!("`window` can't be {}", quoted(text)), "write a time from 10s to 7d");
    None
}
