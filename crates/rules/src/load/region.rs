//! `region`: what a limit means in several regions.

use tollgate_core::{Algorithm, Apart, GlobalTerms, Limit, RegionId, RegionShare};

use crate::limit_text;
use crate::load::keys;
use crate::load::reader::FileReader;
use crate::load::terms::WithLine;
use crate::model::Policy;
use crate::problem::{choose, quoted};
use crate::regions::{HomeOf, KnownRegions, MovingOrigin, RegionMode, Shares, Split};
use crate::shares::{MovingShares, counting_time, equal_share};
use crate::yaml::{Yaml, YamlKind};

/// The value of `region`, before it is known which regions there are.
#[derive(Clone, Debug)]
pub(super) enum RegionText {
    Each,
    SplitEqually,
    SplitMoving,
    /// Regions with their shares in basis points.
    Split(Vec<WithLine<(String, u16)>>),
    Home,
    HomeIs(String),
    Global(GlobalTerms),
}

const MODES: [&str; 4] = ["each", "split", "home", "global"];
const APART: &[(&str, Apart)] = &[("alone", Apart::Alone), ("share", Apart::Share)];
const EXAMPLES: &str = "write `region: each`, `split`, `home` or `global`, or for instance `region: {home: us-east}`";

/// The maximum number of shares in a rule.
const MAX_SHARES: usize = tollgate_core::RegionNames::MAX;
/// Basis points in a whole.
const BPS: u32 = 10_000;

/// The value of `region`. `None` if it is invalid, which has been reported.
pub(super) fn read(value: &Yaml, reader: &mut FileReader<'_>) -> Option<WithLine<RegionText>> {
    let text = match &value.kind {
        YamlKind::Map(entries) => {
            let [entry] = entries.as_slice() else {
                let message = format!("`region` has {} modes", entries.len());
                reader.error(value.line, message, EXAMPLES);
                return None;
            };
            match entry.key.text.as_str() {
                "split" => read_split(&entry.value, reader)?,
                "home" => RegionText::HomeIs(reader.text(&entry.value, "home")?.to_owned()),
                "global" => read_global(&entry.value, reader)?,
                other => {
                    let remedy = if other == "each" { "write `region: each`".to_owned() } else { choose(other, MODES) };
                    reader.error(entry.line, format!("`region`: {} can't have a value", quoted(other)), remedy);
                    return None;
                }
            }
        }
        YamlKind::List(_) => return reader.wrong(value, "region", "a word or a map", EXAMPLES),
        YamlKind::Scalar(_) => {
            let words = [
                ("each", RegionText::Each),
                ("split", RegionText::SplitEqually),
                ("home", RegionText::Home),
                ("global", RegionText::Global(GlobalTerms::default())),
            ];
            let text = reader.text(value, "region")?;
            let Some((_, mode)) = words.into_iter().find(|(word, _)| *word == text) else {
                reader.error(value.line, format!("`region` can't be {}", value.described()), choose(text, MODES));
                return None;
            };
            mode
        }
    };
    Some(WithLine { value: text, line: value.line })
}

fn read_split(value: &Yaml, reader: &mut FileReader<'_>) -> Option<RegionText> {
    const EXAMPLE: &str = "write for instance `split: {us-east: 50%, eu-west: 50%}`, `split: moving`, or `region: split` for equal shares";
    let YamlKind::Map(entries) = &value.kind else {
        if matches!(&value.kind, YamlKind::Scalar(word) if word.text == "moving") {
            return Some(RegionText::SplitMoving);
        }
        return reader.wrong(value, "split", "a map of regions and their shares", EXAMPLE);
    };
    if entries.is_empty() || entries.len() > MAX_SHARES {
        let message = format!("`split` names {} regions", entries.len());
        reader.error(value.line, message, format!("write the shares of 1 to {MAX_SHARES} regions"));
        return None;
    }
    let mut shares = Vec::new();
    for entry in entries {
        let text = reader.text(&entry.value, "split");
        let share = text.and_then(|text| reader.sound(entry.value.line, "split", limit_text::percent(text)));
        shares.extend(share.map(|share| WithLine { value: (entry.key.text.clone(), share), line: entry.line }));
    }
    if shares.len() < entries.len() {
        return None;
    }
    let sum: u32 = shares.iter().map(|share| u32::from(share.value.1)).sum();
    if sum > BPS {
        let message = format!("the shares are {}.{:02}% together", sum / 100, sum % 100);
        reader.error(value.line, message, "write shares of at most 100% together: no region may give out another's");
        return None;
    }
    Some(RegionText::Split(shares))
}

fn read_global(value: &Yaml, reader: &mut FileReader<'_>) -> Option<RegionText> {
    if matches!(&value.kind, YamlKind::Scalar(_)) {
        return reader.wrong(value, "global", "a map", "write `region: global`, or `region: {global: {apart: share}}`");
    }
    let fields = reader.fields(value, &keys::GLOBAL)?;
    let apart = match fields.get("apart") {
        Some(value) => reader.word(value, "apart", APART)?,
        None => Apart::default(),
    };
    let debit_threshold = match fields.get("debit_threshold") {
        Some(value) => {
            let text = reader.text(value, "debit_threshold")?;
            reader.sound(value.line, "debit_threshold", limit_text::percent(text))?
        }
        None => GlobalTerms::DEBIT_THRESHOLD,
    };
    Some(RegionText::Global(GlobalTerms { apart, debit_threshold }))
}

/// The mode of a rule with these limits. `None` if it is not possible, which has been reported.
pub(super) fn mode<'l>(
    given: Option<&WithLine<RegionText>>,
    policy: Policy,
    limits: impl Iterator<Item = &'l Limit> + Clone,
    known: &KnownRegions,
    reader: &mut FileReader<'_>,
) -> Option<RegionMode> {
    let Some(WithLine { value: text, line }) = given else { return Some(RegionMode::Each) };
    let line = *line;
    if !matches!(text, RegionText::Each) && *known == KnownRegions::None {
        let message = "this rule depends on regions, and no `region` is set here";
        reader.error(line, message, "set `region` and `regions`, or write `region: each`");
        return None;
    }
    match text {
        RegionText::Each => Some(RegionMode::Each),
        RegionText::SplitEqually => {
            let here = match known {
                KnownRegions::All(names) => {
                    Some(RegionShare { parts: 1, whole: u16::try_from(names.len()).unwrap_or(u16::MAX) })
                }
                KnownRegions::Here(_) => return needs_all(line, reader),
                KnownRegions::None | KnownRegions::Unchecked => None,
            };
            are_divisible(line, here.iter().copied(), limits, reader)?;
            Some(RegionMode::Split(Split { shares: Shares::Equal, here }))
        }
        RegionText::SplitMoving => {
            can_move(line, policy, limits.clone(), reader)?;
            let here = match known {
                KnownRegions::All(names) => Some(RegionShare::of_bps(equal_share(names.len()))),
                KnownRegions::Here(_) => return needs_all(line, reader),
                KnownRegions::None | KnownRegions::Unchecked => None,
            };
            are_divisible(line, std::iter::once(RegionShare::of_bps(MovingShares::LEAST)), limits, reader)?;
            Some(RegionMode::Split(Split { shares: Shares::Moving { origin: MovingOrigin::Equal, equal: here }, here }))
        }
        RegionText::Split(given) => {
            let mut is_known = true;
            // Without `regions`, the other names can't be checked, and the share of here is all that matters.
            for share in given.iter().filter(|_| matches!(known, KnownRegions::All(_))) {
                is_known &= region(&share.value.0, share.line, known, reader).is_some();
            }
            let shares: Vec<(String, u16)> = given.iter().map(|share| share.value.clone()).collect();
            are_divisible(line, shares.iter().map(|(_, bps)| RegionShare::of_bps(*bps)), limits, reader)?;
            let here = share_of_here(line, &shares, known, reader)?;
            is_known.then_some(RegionMode::Split(Split { shares: Shares::Of(shares), here }))
        }
        RegionText::Home => match known {
            KnownRegions::All(names) => Some(RegionMode::Home(HomeOf::Caller(Some(names.clone())))),
            KnownRegions::Here(_) => needs_all(line, reader),
            KnownRegions::None | KnownRegions::Unchecked => Some(RegionMode::Home(HomeOf::Caller(None))),
        },
        RegionText::HomeIs(name) => {
            let region = region(name, line, known, reader)?;
            Some(RegionMode::Home(HomeOf::Fixed(name.clone(), region)))
        }
        RegionText::Global(terms) => {
            is_possible_globally(line, policy, limits, reader)?;
            match known {
                KnownRegions::Here(_) => needs_all(line, reader),
                _ => Some(RegionMode::Global(*terms)),
            }
        }
    }
}

/// Why a rule of a policy can't be `global`. `None` if it can.
fn why_not_global(policy: Policy) -> Option<&'static str> {
    match policy {
        Policy::Comfort => None,
        Policy::Security => Some("who attacks from several regions at once would get the limit in each of them"),
        Policy::Cost => Some("each region could give out the whole limit, at your cost, before it hears of the others"),
        Policy::Quota => Some("what regions give out too much of a budget is not taken back"),
    }
}

/// The region of this name.
fn region(name: &str, line: usize, known: &KnownRegions, reader: &mut FileReader<'_>) -> Option<RegionId> {
    match known {
        KnownRegions::None | KnownRegions::Unchecked => Some(RegionId::HERE),
        KnownRegions::Here(here) if here == name => Some(RegionId::HERE),
        KnownRegions::Here(_) => {
            let message =
                format!("`region`: {} is not the region of this server, and `regions` is not set", quoted(name));
            reader.error(line, message, "set `regions` to the stores of the other regions");
            None
        }
        KnownRegions::All(names) => {
            let found = names.id(name);
            if found.is_none() {
                let remedy = choose(name, names.iter().map(|(_, name)| name).collect::<Vec<_>>());
                reader.error(line, format!("`region`: there is no region {}", quoted(name)), remedy);
            }
            found
        }
    }
}

/// The share of this process's region; `Some(None)` if it is not known which one that is.
fn share_of_here(
    line: usize,
    shares: &[(String, u16)],
    known: &KnownRegions,
    reader: &mut FileReader<'_>,
) -> Option<Option<RegionShare>> {
    let here = match known {
        KnownRegions::None | KnownRegions::Unchecked => return Some(None),
        KnownRegions::Here(here) => here,
        KnownRegions::All(names) => names.here(),
    };
    let share = shares.iter().find(|(name, _)| name == here);
    if share.is_none() {
        let message = format!("`split` has no share for {}, the region of this server", quoted(here));
        reader.error(line, message, format!("add `{here}: 0%` to admit nothing there, or another share"));
    }
    share.map(|(_, bps)| Some(RegionShare::of_bps(*bps)))
}

/// Whether every share that is not nothing has at least a unit of every limit that is not 0.
fn are_divisible<'l>(
    line: usize,
    shares: impl Iterator<Item = RegionShare> + Clone,
    mut limits: impl Iterator<Item = &'l Limit>,
    reader: &mut FileReader<'_>,
) -> Option<()> {
    let is_too_small = |limit: &&Limit| {
        limit.quota() > 0 && shares.clone().any(|share| share.parts > 0 && share.of(limit).quota() == 0)
    };
    let Some(limit) = limits.find(is_too_small) else { return Some(()) };
    let message = format!("a region's share of {} is less than a unit", limit.amount().min(limit.quota()));
    reader.error(line, message, "write `region: home`, or a larger limit: shares are rounded down");
    None
}

/// Whether shares of these limits may follow demand. While they move, regions together admit a quarter more than the limit.
fn can_move<'l>(
    line: usize,
    policy: Policy,
    mut limits: impl Iterator<Item = &'l Limit>,
    reader: &mut FileReader<'_>,
) -> Option<()> {
    const REMEDY: &str = "write `region: split` or fixed shares, which admit no more than the limit, or `region: home`";
    if policy != Policy::Comfort {
        let message = format!(
            "shares of a limit of policy {} can't move: meanwhile the regions together admit up to a quarter more",
            policy.name()
        );
        reader.error(line, message, REMEDY);
        return None;
    }
    let Some(_) = limits.find(|limit| counting_time(limit) > MovingShares::MAX_PERIOD) else { return Some(()) };
    let message = "shares can't move for periods, or times of a bucket to refill, of more than an hour: they move by a \
                   quarter in each";
    reader.error(line, message, REMEDY);
    None
}

fn is_possible_globally<'l>(
    line: usize,
    policy: Policy,
    mut limits: impl Iterator<Item = &'l Limit>,
    reader: &mut FileReader<'_>,
) -> Option<()> {
    if let Some(reason) = why_not_global(policy) {
        let message = format!("a limit of policy {} can't be `global`: {reason}", policy.name());
        reader.error(line, message, "write `region: home`, which holds everywhere");
        return None;
    }
    let is_not_exchanged =
        |limit: &&Limit| limit.period().as_calendar().is_some() || limit.algorithm() == Algorithm::Concurrency;
    let Some(limit) = limits.find(is_not_exchanged) else { return Some(()) };
    let what = match limit.algorithm() {
        Algorithm::Concurrency => "concurrent requests",
        _ => "a calendar period",
    };
    let message = format!("a limit on {what} can't be `global`: its errors would not heal within seconds");
    reader.error(line, message, "write `region: home`, which holds everywhere, or `region: split`");
    None
}

fn needs_all<T>(line: usize, reader: &mut FileReader<'_>) -> Option<T> {
    let message = "this rule depends on other regions, and `regions` is not set";
    reader.error(line, message, "set `regions` to the stores of the other regions, or write `region: each`");
    None
}
