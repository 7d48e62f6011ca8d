//! `ban` in a rule, and `never_ban` in a domain: callers and addresses that are blocked because too many of their requests were refused.

use tollgate_core::Span;

use crate::address::{is_address, resembles_address};
use crate::limit_text;
use crate::load::domain::DomainSettings;
use crate::load::keys;
use crate::load::reader::{Fields, FileReader};
use crate::load::terms::WithLine;
use crate::model::{BanAction, BanSubject, BanTerms, KeyPart, Network, NeverBan, RuleMode, SignalBan};
use crate::pattern::Pattern;
use crate::problem::{TextFault, quoted};
use crate::yaml::Yaml;

/// The most refusals that a ban may need.
const MAX_REFUSALS: u64 = 10_000;

/// The time in which refusals count, at the least and the most.
const MIN_WITHIN: Span = Span::from_secs(1);
const MAX_WITHIN: Span = Span::from_secs(86_400);

/// How long a ban lasts, at the least and the most.
const MIN_BAN: Span = Span::from_secs(1);
const MAX_BAN: Span = Span::from_secs(30 * 86_400);
/// How long a repeated ban lasts at most, by default.
const MOST: Span = Span::from_secs(86_400);

/// The largest factor by which each further ban is longer.
const MAX_ESCALATION: u64 = 10;

/// The maximum number of networks and callers under `never_ban`.
const MAX_NEVER: usize = 1_000;

const EXAMPLE: &str = "`ban: {after: 20 refusals, within: 1m, for: 10m}`";

const ACTIONS: &[(&str, BanAction)] = &[("block", BanAction::Block), ("shadow", BanAction::Shadow)];

/// The ban of a rule in the file.
pub(super) struct BanKeys {
    line: usize,
    after: Option<u64>,
    within: Option<Span>,
    lasts: Option<Span>,
    escalate_percent: Option<u64>,
    most: Option<WithLine<Span>>,
    action: Option<BanAction>,
    /// `Some(None)`: it is invalid.
    who: Option<Option<WithLine<String>>>,
}

impl BanKeys {
    /// Everything is read before the rule is rejected, so that all errors are reported.
    pub(super) fn read(value: &Yaml, reader: &mut FileReader<'_>) -> Option<BanKeys> {
        let fields = reader.fields(value, &keys::BAN)?;
        Some(BanKeys {
            line: value.line,
            after: required(&fields, "after", reader).and_then(|value| read_after(value, reader)),
            within: required(&fields, "within", reader)
                .and_then(|value| read_span(value, "within", (MIN_WITHIN, MAX_WITHIN), "from 1s to 24h", reader)),
            lasts: required(&fields, "for", reader)
                .and_then(|value| read_span(value, "for", (MIN_BAN, MAX_BAN), "from 1s to 30d", reader)),
            escalate_percent: fields.get("escalate").map_or(Some(100), |value| read_factor(value, reader)),
            most: fields.get("most").and_then(|value| {
                let most = read_span(value, "most", (MIN_BAN, MAX_BAN), "from 1s to 30d", reader)?;
                Some(WithLine { value: most, line: value.line })
            }),
            action: fields.get("mode").map_or(Some(BanAction::Block), |value| reader.word(value, "mode", ACTIONS)),
            who: fields.get("who").map(|value| {
                let attribute = reader.attribute(value, "who")?;
                Some(WithLine { value: attribute, line: value.line })
            }),
        })
    }

    /// The terms of the ban of a rule with this key. `None` if they are invalid, which has been reported.
    pub(super) fn terms(
        self,
        key: &[KeyPart],
        mode: RuleMode,
        sheds: bool,
        settings: &DomainSettings,
        reader: &mut FileReader<'_>,
    ) -> Option<BanTerms> {
        if sheds {
            let message = "`ban` is not possible with `shed`: the refusals say nothing about the caller";
            reader.error(self.line, message, "remove one of the two");
            return None;
        }
        if matches!(mode, RuleMode::Shadow | RuleMode::Soft) {
            let message = "`ban` has no effect in this mode: the rule refuses nothing";
            reader.warning(self.line, message, "write `mode: enforce` when the limits are right");
        }
        let who = self.subject(key, settings, reader);
        let (lasts, most) = (self.lasts?, self.most);
        if let Some(most) = most.filter(|most| most.value < lasts) {
            reader.error(most.line, "`most` is shorter than `for`", "write the time of the longest ban, or remove it");
            return None;
        }
        Some(BanTerms {
            after: self.after?,
            within: self.within?,
            lasts,
            escalate_percent: self.escalate_percent?,
            most: most.map_or(MOST.max(lasts), |most| most.value),
            action: self.action?,
            who: who?,
        })
    }

    /// Whom it bans: what `who` names, else the caller if it is in the key, else the address in the key.
    fn subject(&self, key: &[KeyPart], settings: &DomainSettings, reader: &mut FileReader<'_>) -> Option<BanSubject> {
        let entity = settings.entity.as_deref();
        let subject = |attribute: &str| match attribute {
            _ if Some(attribute) == entity => Some(BanSubject::Caller),
            _ if is_address(attribute) => Some(BanSubject::Address(attribute.to_owned())),
            _ => None,
        };
        let (line, named) = match &self.who {
            Some(who) => {
                let WithLine { value, line } = who.as_ref()?;
                (*line, subject(value))
            }
            None => {
                let found: Vec<BanSubject> = key.iter().filter_map(|part| subject(&part.attribute)).collect();
                let caller = found.iter().find(|found| **found == BanSubject::Caller);
                (self.line, caller.or(found.first()).cloned())
            }
        };
        if named.is_some() {
            return named;
        }
        let message = match &self.who {
            Some(Some(who)) => format!("`who`: {} is neither the `entity` nor an address", quoted(&who.value)),
            _ => "`ban` names nobody: neither the `entity` nor an address is in `key`".to_owned(),
        };
        let remedy = match entity {
            Some(entity) => format!("write `who: {entity}` or `who: remote_address`"),
            None => "write `who: remote_address`".to_owned(),
        };
        reader.error(line, message, remedy);
        None
    }
}

/// `then: {ban: {for: 1h}}` of a signal that counts per these attributes.
pub(super) fn read_then(
    value: &Yaml,
    per: Option<&[String]>,
    settings: &DomainSettings,
    reader: &mut FileReader<'_>,
) -> Option<SignalBan> {
    let then = reader.fields(value, &keys::THEN)?;
    let Some(ban) = then.get("ban") else {
        if then.is_empty() {
            reader.error(
                value.line,
                "`then` says nothing",
                "write for instance `then: {ban: {for: 1h}}`, or remove it",
            );
        }
        return None;
    };
    let fields = reader.fields(ban, &keys::SIGNAL_BAN)?;
    let lasts = match fields.get("for") {
        Some(value) => read_span(value, "for", (MIN_BAN, MAX_BAN), "from 1s to 30d", reader),
        None => {
            reader.error(ban.line, "the ban of the signal has no `for`", "write for instance `then: {ban: {for: 1h}}`");
            None
        }
    };
    let action = fields.get("mode").map_or(Some(BanAction::Block), |value| reader.word(value, "mode", ACTIONS));
    let is_possible = |attribute: &String| Some(attribute) == settings.entity.as_ref() || is_address(attribute);
    if !matches!(per?, [attribute] if is_possible(attribute)) {
        let message = "`ban` is not possible: `per` is not the `entity` of the domain or an address alone";
        reader.error(ban.line, message, "write `per: [remote_address]`, or remove `then`");
        return None;
    }
    Some(SignalBan { lasts: lasts?, action: action? })
}

fn required<'y>(fields: &Fields<'y>, key: &str, reader: &mut FileReader<'_>) -> Option<&'y Yaml> {
    let value = fields.get(key);
    if value.is_none() {
        reader.error(fields.line, format!("`ban` has no `{key}`"), format!("write for instance {EXAMPLE}"));
    }
    value
}

/// `20 refusals`, or the number alone.
fn read_after(value: &Yaml, reader: &mut FileReader<'_>) -> Option<u64> {
    let text = reader.text(value, "after")?;
    let digits = ["refusals", "refusal"].into_iter().find_map(|word| text.strip_suffix(word)).unwrap_or(text);
    let number = limit_text::number(digits.trim()).ok().filter(|number| (1..=MAX_REFUSALS).contains(number));
    if number.is_none() {
        let remedy = format!("write for instance `20 refusals`, from 1 to {MAX_REFUSALS}");
        reader.error(value.line, format!("`after` can't be {}", quoted(text)), remedy);
    }
    number
}

fn read_span(
    value: &Yaml,
    what: &str,
    (least, most): (Span, Span),
    range: &str,
    reader: &mut FileReader<'_>,
) -> Option<Span> {
    let text = reader.text(value, what)?;
    let span = reader.sound(value.line, what, limit_text::duration(text))?;
    if (least..=most).contains(&span) {
        return Some(span);
    }
    reader.error(value.line, format!("`{what}` can't be {}", quoted(text)), format!("write a time {range}"));
    None
}

/// `2x` or `1.5x`, as a percentage.
fn read_factor(value: &Yaml, reader: &mut FileReader<'_>) -> Option<u64> {
    let text = reader.text(value, "escalate")?;
    let percent = factor(text).filter(|percent| (100..=100 * MAX_ESCALATION).contains(percent));
    if percent.is_none() {
        let remedy =
            format!("write how many times as long each further ban is, such as `2x`, from 1x to {MAX_ESCALATION}x");
        reader.error(value.line, format!("`escalate` can't be {}", quoted(text)), remedy);
    }
    percent
}

fn factor(text: &str) -> Option<u64> {
    let number = text.strip_suffix('x')?;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| !text.is_empty() && text.len() <= 4 && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || (number.contains('.') && !digits(part)) || part.len() > 2 {
        return None;
    }
    let hundredths: u64 = format!("{part:0<2}").parse().ok()?;
    Some(whole.parse::<u64>().ok()? * 100 + hundredths)
}

/// The networks and callers that are never banned.
pub(super) fn read_never(value: &Yaml, has_callers: bool, reader: &mut FileReader<'_>) -> Option<NeverBan> {
    let items = reader.list(value, "never_ban", "`never_ban: [10.0.0.0/8, \"internal-*\"]`")?;
    if items.len() > MAX_NEVER {
        let message = format!("`never_ban` has {} entries", items.len());
        reader.error(value.line, message, format!("write at most {MAX_NEVER}"));
        return None;
    }
    let mut never = NeverBan::default();
    for item in items {
        let Some(text) = reader.attribute(item, "never_ban") else { continue };
        match text.parse::<Network>() {
            Ok(network) => never.networks.push(network),
            Err(TextFault { message, remedy }) if resembles_address(&text) => {
                reader.error(item.line, format!("`never_ban`: {message}"), remedy);
            }
            Err(_) if !has_callers => {
                let message = format!("`never_ban`: {} is no network, and the domain has no callers", quoted(&text));
                reader.error(item.line, message, "write networks such as 10.0.0.0/8, or the `entity` of the domain");
            }
            Err(_) => never.callers.push(Pattern::new(&text)),
        }
    }
    Some(never)
}
