//! Finds the rules of the list that may apply to a request, by lookup instead of iteration.
//!
//! A rule is indexed by one of its conditions: the one that the fewest other rules share. If many rules share it, a
//! nested index distinguishes them by the next condition.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::attributes::{Attribute, Attributes};
use crate::index::{Id, Patterns};
use crate::model::{RuleMode, SourceLocation, Test};
use crate::pattern::Pattern;
use crate::problem::RuleProblem;
use crate::rule::Rule;

/// Finds the rules of the list that may apply.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Rules that are indexed by no attribute.
    always: Vec<Id>,
    /// Sorted by the attributes' numbers; each at its own number if there is no gap.
    by_attribute: Vec<(Attribute, Pointers)>,
    /// For ids that are [`NESTED`].
    nested: Vec<Index>,
}

/// The rules that are indexed by an attribute.
#[derive(Debug, Default)]
struct Pointers {
    /// By its presence.
    present: Vec<Id>,
    /// By its value.
    value: Patterns,
}

/// The maximum number of rules behind one condition that are tried one by one.
const CROWD: usize = 8;
/// The maximum number of copies of a rule in a group and its nested groups: one for each value of a list, and lists
/// of several conditions multiply.
const MAX_COPIES: usize = 8;
/// The maximum nesting of indexes.
const MAX_NESTING: usize = 6;
/// The flag of an id that refers to a nested index. Ids of rules are far smaller.
const NESTED: Id = 1 << 31;
/// The number of rules that an index has ids for.
pub(crate) const MAX_INDEXED: usize = NESTED as usize;
/// The maximum number of rules, or tree nodes, of a domain that must be tried one by one.
pub(crate) const MAX_SCANNED: usize = 256;

impl Index {
    /// Indexes each rule, and sets the clause that holds whenever it is found.
    pub(crate) fn new(rules: &mut [Rule], place: &SourceLocation, errors: &mut Vec<RuleProblem>) -> Index {
        let in_force = (0..).zip(&*rules).filter(|(_, rule)| rule.mode != RuleMode::Off);
        let unplaced = in_force
            .map(|(id, rule)| UnplacedRule { id, rule, left: (0..rule.clauses.len()).collect(), copies: usize::MAX })
            .collect();
        let mut builder = IndexBuilder { scanned: 0, depth: 0, pivots: Vec::new() };
        let mut index = builder.index(unplaced);
        index.leave_none_out();
        check_scanned(builder.scanned, place, errors);
        for (id, clause) in builder.pivots {
            rules[id as usize].pivot = Some(clause);
        }
        index
    }

    /// Adds the rules that may apply, possibly with duplicates.
    pub(crate) fn find(&self, attributes: &Attributes<'_, '_>, found: &mut SmallVec<[Id; 8]>) {
        self.find_by_names(attributes.iter().map(|(attribute, _)| attribute), found);
        for (attribute, value) in attributes.iter() {
            self.find_by_value(attribute, value, attributes, found);
        }
    }

    /// Adds the rules that may apply to every request with these attributes, whatever the values are.
    pub(crate) fn find_by_names(&self, names: impl Iterator<Item = Attribute>, found: &mut SmallVec<[Id; 8]>) {
        self.always.iter().for_each(|id| found.push(*id));
        for pointers in names.filter_map(|attribute| self.pointers(attribute)) {
            pointers.present.iter().for_each(|id| found.push(*id));
        }
    }

    /// Whether the value of an attribute leads to rules.
    pub(crate) fn reads_value(&self, attribute: Attribute) -> bool {
        self.pointers(attribute).is_some_and(|pointers| !pointers.value.is_empty())
    }

    /// Adds the rules that may apply because of the value of one attribute.
    pub(crate) fn find_by_value(
        &self,
        attribute: Attribute,
        value: &str,
        attributes: &Attributes<'_, '_>,
        found: &mut SmallVec<[Id; 8]>,
    ) {
        if let Some(pointers) = self.pointers(attribute) {
            pointers.value.exact(value).iter().for_each(|id| self.follow(*id, attributes, found));
            pointers.value.wild(value, |id| self.follow(id, attributes, found));
        }
    }

    fn follow(&self, id: Id, attributes: &Attributes<'_, '_>, found: &mut SmallVec<[Id; 8]>) {
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

    /// Fills gaps in the outermost index, so that attributes are found there without a search.
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

/// A rule that is not indexed yet.
#[derive(Clone)]
struct UnplacedRule<'r> {
    id: Id,
    rule: &'r Rule,
    /// The clauses by which it is not indexed yet.
    left: SmallVec<[usize; 4]>,
    /// The number of copies that are still allowed; unlimited in the outermost index.
    copies: usize,
}

struct IndexBuilder {
    /// The maximum number of rules that a request must try one by one.
    scanned: usize,
    /// The nesting of the current index.
    depth: usize,
    /// The clauses by which rules are indexed in the outermost index.
    pivots: Vec<(Id, usize)>,
}

impl IndexBuilder {
    fn index<'r>(&mut self, rules: Vec<UnplacedRule<'r>>) -> Index {
        let mut sharing: HashMap<(Attribute, &Pattern), usize> = HashMap::new();
        let mut needing: HashMap<Attribute, usize> = HashMap::new();
        for unplaced in &rules {
            for (_, attribute, patterns) in unplaced.indexed() {
                patterns.iter().for_each(|pattern| *sharing.entry((attribute, pattern)).or_default() += 1);
            }
            unplaced.rule.required().for_each(|attribute| *needing.entry(attribute).or_default() += 1);
        }
        let mut index = Index::default();
        let mut behind: HashMap<(Attribute, &Pattern), Vec<UnplacedRule<'r>>> = HashMap::new();
        let mut present: HashMap<Attribute, Vec<Id>> = HashMap::new();
        let mut scanned = 0;
        for unplaced in rules {
            let telling = |(_, attribute, patterns): &(usize, Attribute, &'r [Pattern])| {
                patterns.iter().map(|pattern| sharing[&(*attribute, pattern)]).max()
            };
            if let Some((clause, attribute, patterns)) = unplaced.indexed().min_by_key(telling) {
                if self.depth == 0 {
                    self.pivots.push((unplaced.id, clause));
                }
                let left: SmallVec<[usize; 4]> = unplaced.left.iter().copied().filter(|it| *it != clause).collect();
                let copies = (unplaced.copies / patterns.len().max(1)).min(MAX_COPIES);
                for pattern in patterns {
                    let all = behind.entry((attribute, pattern)).or_default();
                    all.push(UnplacedRule { left: left.clone(), copies, ..unplaced });
                }
                continue;
            }
            scanned += usize::from(unplaced.rule.needs_a_look());
            match unplaced.rule.required().min_by_key(|attribute| needing[attribute]) {
                Some(attribute) => present.entry(attribute).or_default().push(unplaced.id),
                None => index.always.push(unplaced.id),
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

    /// Assigns ids to the rules behind one condition: their own, or that of a nested index.
    fn place(&mut self, index: &mut Index, crowd: Vec<UnplacedRule<'_>>, mut found: impl FnMut(Id)) {
        let by_value = |unplaced: &UnplacedRule<'_>| unplaced.indexed().next().is_some();
        let by_presence = |unplaced: &UnplacedRule<'_>| !unplaced.rule.required().eq(crowd[0].rule.required());
        let may_nest = crowd.len() > CROWD && self.depth < MAX_NESTING;
        if may_nest && crowd.iter().any(|unplaced| by_value(unplaced) || by_presence(unplaced)) {
            self.depth += 1;
            let nested = self.index(crowd);
            self.depth -= 1;
            found(NESTED | index.nested.len() as Id);
            index.nested.push(nested);
        } else {
            self.scanned = self.scanned.max(crowd.iter().filter(|unplaced| unplaced.rule.needs_a_look()).count());
            crowd.iter().for_each(|unplaced| found(unplaced.id));
        }
    }
}

impl<'r> UnplacedRule<'r> {
    /// The clauses by whose values it can be indexed.
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
    /// Attributes that it requires.
    fn required(&self) -> impl Iterator<Item = Attribute> {
        let keyed = self.key.iter().filter(|part| !part.optional).map(|part| part.attribute);
        let matched = self.clauses.iter().filter(|(_, test)| !matches!(test, Test::Absent | Test::Not(_)));
        keyed.chain(matched.map(|(attribute, _)| *attribute))
    }

    /// Whether it has a condition that cannot be indexed.
    fn needs_a_look(&self) -> bool {
        self.clauses.iter().any(|(_, test)| match test {
            Test::Present | Test::Absent => false,
            Test::AnyOf(_) => indexed_values(test).is_none(),
            Test::Within(_) | Test::Not(_) => true,
        })
    }
}

/// The values and prefixes of a condition that consists of nothing else.
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

/// Rejects more rules, or tree nodes, than a request may try one by one.
pub(crate) fn check_scanned(scanned: usize, place: &SourceLocation, errors: &mut Vec<RuleProblem>) {
    if scanned > MAX_SCANNED {
        let message = format!(
            "{scanned} rules of this domain are distinguished only by `not`, `cidr` or a `*` that is not at the end"
        );
        let remedy =
            format!("give all but {} of them an exact value or a prefix of their own to match as well", MAX_SCANNED);
        errors.push(RuleProblem::error(place, message, remedy));
    }
}
