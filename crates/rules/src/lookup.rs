//! Which rules of the list may apply to a request: a lookup, not a walk.
//!
//! A rule stands behind one of its conditions: the one that the fewest share. Where many stand behind the same one, an index of
//! their own tells them apart by the next.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::attributes::Attributes;
use crate::compiled::{Attribute, Rule, Ruleset};
use crate::index::{Id, Patterns};
use crate::model::{Place, RuleMode, Test};
use crate::pattern::Pattern;
use crate::problem::Problem;

/// Finds the rules of the list that may apply.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Rules that no attribute points to.
    always: Vec<Id>,
    /// In the order of the attributes' numbers; each at its own number where none is left out.
    by_attribute: Vec<(Attribute, Pointers)>,
    /// Behind ids that are [`NESTED`].
    nested: Vec<Index>,
}

/// The rules that an attribute points to.
#[derive(Debug, Default)]
struct Pointers {
    /// By being there.
    present: Vec<Id>,
    /// By its value.
    value: Patterns,
}

/// How many rules behind one condition are tried one by one.
const CROWD: usize = 8;
/// How many times at most a rule stands in a crowd, and in those within it: once for each value of a list, and lists of
/// several conditions multiply.
const MOST_COPIES: usize = 8;
/// How many conditions one after the other a rule is found by at most.
const DEEPEST: usize = 6;
/// The mark of an id that is a nested index. Rules have far smaller ones.
const NESTED: Id = 1 << 31;
const _: () = assert!(Ruleset::MOST_RULES < NESTED as usize);

impl Index {
    /// Finds a place for each rule, and tells it which of its clauses holds whenever it is found.
    pub(crate) fn new(rules: &mut [Rule], place: &Place, errors: &mut Vec<Problem>) -> Index {
        let in_force = (0..).zip(&*rules).filter(|(_, rule)| rule.mode != RuleMode::Off);
        let waiting = in_force
            .map(|(id, rule)| Waiting { id, rule, left: (0..rule.clauses.len()).collect(), copies: usize::MAX })
            .collect();
        let mut builder = Builder { scanned: 0, depth: 0, pivots: Vec::new() };
        let mut index = builder.index(waiting);
        index.leave_none_out();
        check_scanned(builder.scanned, place, errors);
        for (id, clause) in builder.pivots {
            rules[id as usize].pivot = Some(clause);
        }
        index
    }

    /// Adds the rules that may apply, perhaps one of them twice.
    pub(crate) fn find(&self, attributes: &Attributes<'_>, found: &mut SmallVec<[Id; 8]>) {
        self.always.iter().for_each(|id| found.push(*id));
        for (attribute, value) in attributes.iter() {
            if let Some(pointers) = self.pointers(attribute) {
                pointers.present.iter().for_each(|id| found.push(*id));
                pointers.value.exact(value).iter().for_each(|id| self.follow(*id, attributes, found));
                pointers.value.wild(value, |id| self.follow(id, attributes, found));
            }
        }
    }

    fn follow(&self, id: Id, attributes: &Attributes<'_>, found: &mut SmallVec<[Id; 8]>) {
        if id & NESTED == 0 {
            found.push(id);
        } else {
            self.nested[(id & !NESTED) as usize].find(attributes, found);
        }
    }

    fn pointers(&self, attribute: Attribute) -> Option<&Pointers> {
        match self.by_attribute.get(attribute.0 as usize) {
            Some((at_its_number, pointers)) if *at_its_number == attribute => Some(pointers),
            _ => {
                let at = self.by_attribute.binary_search_by_key(&attribute, |(attribute, _)| *attribute).ok()?;
                Some(&self.by_attribute[at].1)
            }
        }
    }

    /// Every request comes through the outermost index, so there no attribute is searched for.
    fn leave_none_out(&mut self) {
        let end = self.by_attribute.last().map_or(0, |(attribute, _)| attribute.0 + 1);
        let mut sparse = std::mem::take(&mut self.by_attribute).into_iter().peekable();
        self.by_attribute = (0..end)
            .map(|number| match sparse.next_if(|(attribute, _)| attribute.0 == number) {
                Some(pointers) => pointers,
                None => (Attribute(number), Pointers::default()),
            })
            .collect();
    }
}

/// A rule that has no place yet.
#[derive(Clone)]
struct Waiting<'r> {
    id: Id,
    rule: &'r Rule,
    /// The clauses that it does not stand behind already.
    left: SmallVec<[usize; 4]>,
    /// How often it may still be copied; as often as it needs where it stands first.
    copies: usize,
}

struct Builder {
    /// The most rules that a request may have to look at one by one.
    scanned: usize,
    /// How many indexes the one at hand is in.
    depth: usize,
    /// The clauses that rules stand behind in the outermost index.
    pivots: Vec<(Id, usize)>,
}

impl Builder {
    fn index<'r>(&mut self, rules: Vec<Waiting<'r>>) -> Index {
        let mut sharing: HashMap<(Attribute, &Pattern), usize> = HashMap::new();
        let mut needing: HashMap<Attribute, usize> = HashMap::new();
        for waiting in &rules {
            for (_, attribute, patterns) in waiting.indexed() {
                patterns.iter().for_each(|pattern| *sharing.entry((attribute, pattern)).or_default() += 1);
            }
            waiting.rule.required().for_each(|attribute| *needing.entry(attribute).or_default() += 1);
        }
        let mut index = Index::default();
        let mut behind: HashMap<(Attribute, &Pattern), Vec<Waiting<'r>>> = HashMap::new();
        let mut present: HashMap<Attribute, Vec<Id>> = HashMap::new();
        let mut scanned = 0;
        for waiting in rules {
            let telling = |(_, attribute, patterns): &(usize, Attribute, &'r [Pattern])| {
                patterns.iter().map(|pattern| sharing[&(*attribute, pattern)]).max()
            };
            if let Some((clause, attribute, patterns)) = waiting.indexed().min_by_key(telling) {
                if self.depth == 0 {
                    self.pivots.push((waiting.id, clause));
                }
                let left: SmallVec<[usize; 4]> = waiting.left.iter().copied().filter(|it| *it != clause).collect();
                let copies = (waiting.copies / patterns.len().max(1)).min(MOST_COPIES);
                for pattern in patterns {
                    let all = behind.entry((attribute, pattern)).or_default();
                    all.push(Waiting { left: left.clone(), copies, ..waiting });
                }
                continue;
            }
            scanned += usize::from(waiting.rule.needs_a_look());
            match waiting.rule.required().min_by_key(|attribute| needing[attribute]) {
                Some(attribute) => present.entry(attribute).or_default().push(waiting.id),
                None => index.always.push(waiting.id),
            }
        }
        self.scanned = self.scanned.max(scanned);
        let mut values: HashMap<Attribute, Vec<(&Pattern, Id)>> = HashMap::new();
        for ((attribute, pattern), crowd) in behind {
            let all = values.entry(attribute).or_default();
            self.place(&mut index, crowd, |id| all.push((pattern, id)));
        }
        index.by_attribute = pointers(present, values);
        index
    }

    /// Gives the rules behind one condition ids to be found by: their own, or that of an index that tells them apart.
    fn place(&mut self, index: &mut Index, crowd: Vec<Waiting<'_>>, mut found: impl FnMut(Id)) {
        let by_value = |waiting: &Waiting<'_>| waiting.indexed().next().is_some();
        let by_presence = |waiting: &Waiting<'_>| !waiting.rule.required().eq(crowd[0].rule.required());
        let may_nest = crowd.len() > CROWD && self.depth < DEEPEST;
        if may_nest && crowd.iter().any(|waiting| by_value(waiting) || by_presence(waiting)) {
            self.depth += 1;
            let nested = self.index(crowd);
            self.depth -= 1;
            found(NESTED | index.nested.len() as Id);
            index.nested.push(nested);
        } else {
            self.scanned = self.scanned.max(crowd.iter().filter(|waiting| waiting.rule.needs_a_look()).count());
            crowd.iter().for_each(|waiting| found(waiting.id));
        }
    }
}

impl<'r> Waiting<'r> {
    /// The clauses by whose values it can be found.
    fn indexed(&self) -> impl Iterator<Item = (usize, Attribute, &'r [Pattern])> {
        let (rule, copies) = (self.rule, self.copies);
        self.left.iter().filter_map(move |clause| {
            let (attribute, test) = &rule.clauses[*clause];
            let patterns = indexed_values(test)?;
            (patterns.len() <= copies).then_some((*clause, *attribute, patterns))
        })
    }
}

impl Rule {
    /// Attributes without which it does not apply.
    fn required(&self) -> impl Iterator<Item = Attribute> {
        let keyed = self.key.iter().filter(|part| !part.optional).map(|part| part.attribute);
        let matched = self.clauses.iter().filter(|(_, test)| !matches!(test, Test::Absent | Test::Not(_)));
        keyed.chain(matched.map(|(attribute, _)| *attribute))
    }

    /// Whether it has a condition that no lookup can tell.
    fn needs_a_look(&self) -> bool {
        self.clauses.iter().any(|(_, test)| match test {
            Test::Present | Test::Absent => false,
            Test::AnyOf(_) => indexed_values(test).is_none(),
            Test::Within(_) | Test::Not(_) => true,
        })
    }
}

/// The values and prefixes that a test asks for one of, where it asks for nothing else.
fn indexed_values(test: &Test) -> Option<&[Pattern]> {
    match test {
        Test::AnyOf(patterns) if !patterns.iter().any(|pattern| matches!(pattern, Pattern::Glob(_))) => Some(patterns),
        _ => None,
    }
}

fn pointers(
    present: HashMap<Attribute, Vec<Id>>,
    values: HashMap<Attribute, Vec<(&Pattern, Id)>>,
) -> Vec<(Attribute, Pointers)> {
    let mut by_attribute: HashMap<Attribute, Pointers> = HashMap::new();
    for (attribute, ids) in present {
        by_attribute.entry(attribute).or_default().present = ids;
    }
    for (attribute, patterns) in values {
        by_attribute.entry(attribute).or_default().value = Patterns::new(patterns.into_iter());
    }
    let mut sorted: Vec<_> = by_attribute.into_iter().collect();
    sorted.sort_unstable_by_key(|(attribute, _)| *attribute);
    sorted
}

/// Refuses more rules, or nodes of a tree, than a request may have to look at one by one.
pub(crate) fn check_scanned(scanned: usize, place: &Place, errors: &mut Vec<Problem>) {
    if scanned > Ruleset::MOST_SCANNED {
        let message = format!(
            "{scanned} rules of this domain are told apart only by `not`, `cidr` or a `*` that is not at the end"
        );
        let remedy = format!(
            "give all but {} of them an exact value or a prefix of their own to match as well",
            Ruleset::MOST_SCANNED
        );
        errors.push(Problem::error(place, message, remedy));
    }
}
