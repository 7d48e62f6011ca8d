//! `limit_by`: limits by the value of an attribute, on one counter.

use crate::limit_text::LimitText;
use crate::load::domain::DomainSettings;
use crate::load::reader::FileReader;
use crate::load::rules_form::read_limit;
use crate::load::terms::{TierLimits, WithLine};
use crate::model::{Cap, CapsByValue};
use crate::problem::{choose, quoted};
use crate::rule::same_states;
use crate::yaml::{Yaml, YamlKind};

/// The limits of the values of an attribute: indexes of the rule's texts.
pub(super) struct ValueLimits {
    attribute: String,
    cases: Vec<(String, usize)>,
    line: usize,
}

/// The attribute whose values are the priority classes.
const PRIORITY: &str = "priority";
/// The priority classes, the least important first.
const CLASSES: [&str; 4] = ["test", "get", "post", "critical"];
/// The class of requests whose class is not known.
const UNKNOWN_CLASS: &str = "post";

/// The key of all other values.
const DEFAULT: &str = "default";
/// The maximum number of values with limits of their own: a request compares its value with each.
const MAX_LIMIT_VALUES: usize = 64;

/// The limits of a rule with `limit_by`. `None` if they are invalid, which has been reported.
pub(super) fn read(
    attribute: &str,
    limit: &Yaml,
    settings: &DomainSettings,
    reader: &mut FileReader<'_>,
) -> Option<TierLimits> {
    let YamlKind::Map(entries) = &limit.kind else {
        let remedy = format!("write a limit for each value, for instance {}, or remove `limit_by`", example(attribute));
        return reader.wrong(limit, "limit", "a map with `limit_by`", remedy);
    };
    if entries.len() > MAX_LIMIT_VALUES + 1 {
        let message = format!("`limit` has {} values", entries.len());
        reader.error(limit.line, message, format!("write at most {MAX_LIMIT_VALUES}, and `default`"));
        return None;
    }
    let (mut texts, mut cases, mut default, mut is_sound) = (Vec::new(), Vec::new(), None, true);
    for entry in entries {
        let value = entry.key.text.as_str();
        let is_known = attribute != PRIORITY || value == DEFAULT || CLASSES.contains(&value);
        if !is_known {
            let remedy = choose(value, CLASSES.into_iter().chain([DEFAULT]));
            reader.error(entry.line, format!("`limit`: there is no priority class {}", quoted(value)), remedy);
        }
        let value = reader.within_requests(entry.line, value, "limit");
        let (Some(value), Some(text), true) = (value, read_limit(&entry.value, reader), is_known) else {
            is_sound = false;
            continue;
        };
        match value == DEFAULT {
            true => default = Some(texts.len()),
            false => cases.push((value, texts.len())),
        }
        texts.push(text);
    }
    if !is_sound {
        return None;
    }
    if attribute == PRIORITY {
        warn_of_inversions(limit.line, &cases, default, &texts, reader);
    }
    let of_all_classes = || match attribute == PRIORITY && cases.len() == CLASSES.len() {
        true => cases.iter().find(|(class, _)| class == UNKNOWN_CLASS).map(|(_, text)| *text),
        false => None,
    };
    let Some(default) = default.or_else(of_all_classes) else {
        let message = "`limit` has no `default`, so requests with other values, or without one, would not be limited";
        reader.error(limit.line, message, format!("add one, for instance {}", example(attribute)));
        return None;
    };
    let by_value = Some(ValueLimits { attribute: attribute.to_owned(), cases, line: limit.line });
    Some(TierLimits { texts, by_tier: vec![Some(default); settings.tiers.len()], by_value })
}

/// Whether a text is a priority class.
pub(super) fn is_class(text: &str) -> bool {
    CLASSES.contains(&text)
}

fn example(attribute: &str) -> String {
    match attribute == PRIORITY {
        true => "`limit: {critical: 2000 concurrent, default: 1600 concurrent}`".to_owned(),
        false => "`limit: {batch: 100/minute, default: 500/minute}`".to_owned(),
    }
}

/// A class with less than a less important one is probably a mistake: it would be shed first.
fn warn_of_inversions(
    line: usize,
    cases: &[(String, usize)],
    default: Option<usize>,
    texts: &[WithLine<LimitText>],
    reader: &mut FileReader<'_>,
) {
    let amount = |class: &str| {
        let text = cases.iter().find(|(case, _)| case == class).map(|(_, text)| *text).or(default)?;
        Some(match &texts[text].value {
            LimitText::Unlimited => u64::MAX,
            LimitText::Concurrent(amount) | LimitText::Rate { amount, .. } => *amount,
        })
    };
    for pair in CLASSES.windows(2) {
        if let [low, high] = pair
            && let (Some(of_low), Some(of_high)) = (amount(low), amount(high))
            && of_low > of_high
        {
            let message = format!("`limit`: the class `{high}` has less than the less important `{low}`");
            reader.warning(line, message, "give the more important class more");
        }
    }
}

impl ValueLimits {
    /// The caps of the values, from those of the texts. `None` if they do not count on one counter, which is reported.
    pub(super) fn caps(&self, caps: &[Option<Cap>], reader: &mut FileReader<'_>) -> Option<CapsByValue> {
        let counted = || {
            caps.iter().flatten().filter_map(|cap| match cap {
                Cap::Limit(limit) => Some(limit),
                Cap::Unlimited => None,
            })
        };
        let first = counted().next();
        let is_same = first.is_none_or(|first| {
            counted().all(|other| other.period() == first.period() && same_states(other.algorithm(), first.algorithm()))
        });
        if !is_same {
            let message = "the limits of `limit_by` count on one counter, and these have different periods";
            reader.error(self.line, message, "write the same period for all, or rules with `match`");
            return None;
        }
        let case = |(value, text): &(String, usize)| Some((value.clone(), caps.get(*text)?.clone()?));
        Some(CapsByValue { attribute: self.attribute.clone(), cases: self.cases.iter().filter_map(case).collect() })
    }
}
