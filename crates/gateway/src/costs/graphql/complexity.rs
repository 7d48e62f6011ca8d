//! How much a GraphQL document costs, and how deep it is.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::super::CostRefusal;
use super::super::pointer::units;
use super::parser::{Document, Field, ListLength, MAX_NESTING, Operation, Selection};
use crate::model::GraphQlBounds;

/// The cost and the depth of some selections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Weight {
    cost: u64,
    depth: u32,
}

/// Weighs one operation. Fragments are weighed once each, so that spreads that double each time do not matter.
struct Scale<'d, 'q> {
    document: &'d Document<'q>,
    fragments: &'d HashMap<&'q str, usize>,
    defaults: &'d HashMap<&'q str, u64>,
    variables: &'d Map<String, Value>,
    list: u64,
    /// By fragment, and by whether it is in a list. `None` while it is being weighed: then it contains itself.
    weights: HashMap<(usize, bool), Option<Weight>>,
}

/// The cost of the operation that is executed: the only one, or the one with this name.
pub(super) fn cost(
    document: &Document<'_>,
    operation: Option<&str>,
    variables: &Map<String, Value>,
    bounds: &GraphQlBounds,
) -> Result<u64, CostRefusal> {
    if document.aliases > bounds.aliases {
        return Err(CostRefusal::new(format!("A GraphQL query has at most {} aliases.", bounds.aliases)));
    }
    let operation = executed(&document.operations, operation)?;
    let fragments = fragments(document)?;
    let mut scale = Scale {
        document,
        fragments: &fragments,
        defaults: &operation.defaults,
        variables,
        list: bounds.list,
        weights: HashMap::new(),
    };
    let weight = scale.selections(&operation.selections, false, 0)?;
    if weight.depth > bounds.depth {
        return Err(CostRefusal::new(format!("A GraphQL query is at most {} fields deep.", bounds.depth)));
    }
    match weight.cost.saturating_add(1) {
        cost if cost <= bounds.most => Ok(cost),
        cost => {
            Err(CostRefusal::new(format!("The GraphQL query costs {cost}, and at most {} is allowed.", bounds.most)))
        }
    }
}

fn executed<'o, 'q>(operations: &'o [Operation<'q>], name: Option<&str>) -> Result<&'o Operation<'q>, CostRefusal> {
    if let [only] = operations {
        return Ok(only);
    }
    let mut named = operations.iter().filter(|operation| name.is_some() && operation.name == name);
    match (named.next(), named.next()) {
        (Some(operation), None) => Ok(operation),
        _ => Err(CostRefusal::new("A GraphQL request has one operation, or names one of several.")),
    }
}

fn fragments<'q>(document: &Document<'q>) -> Result<HashMap<&'q str, usize>, CostRefusal> {
    let mut fragments = HashMap::with_capacity(document.fragments.len());
    for (index, fragment) in document.fragments.iter().enumerate() {
        if fragments.insert(fragment.name, index).is_some() {
            return Err(CostRefusal::new("A fragment is defined twice."));
        }
    }
    Ok(fragments)
}

impl<'q> Scale<'_, 'q> {
    /// `nesting` counts fields, inline fragments and spreads: it bounds the recursion.
    fn selections(
        &mut self,
        selections: &[Selection<'q>],
        is_in_list: bool,
        nesting: u32,
    ) -> Result<Weight, CostRefusal> {
        if nesting > MAX_NESTING {
            return Err(CostRefusal::new(format!("A GraphQL query is nested at most {MAX_NESTING} levels deep.")));
        }
        let mut total = Weight::default();
        for selection in selections {
            let weight = match selection {
                Selection::Field(field) => self.field(field, is_in_list, nesting)?,
                Selection::Inline(selections) => self.selections(selections, is_in_list, nesting + 1)?,
                Selection::Spread(name) => self.fragment(name, is_in_list, nesting)?,
            };
            total.cost = total.cost.saturating_add(weight.cost);
            total.depth = total.depth.max(weight.depth);
        }
        Ok(total)
    }

    fn field(&mut self, field: &Field<'q>, is_in_list: bool, nesting: u32) -> Result<Weight, CostRefusal> {
        if field.selections.is_empty() {
            return Ok(Weight { cost: 1, depth: 1 });
        }
        let length = self.length(field, is_in_list);
        let fields = self.selections(&field.selections, length.is_some(), nesting + 1)?;
        let cost = fields.cost.saturating_mul(length.unwrap_or(1)).saturating_add(1);
        Ok(Weight { cost, depth: fields.depth.saturating_add(1) })
    }

    fn fragment(&mut self, name: &str, is_in_list: bool, nesting: u32) -> Result<Weight, CostRefusal> {
        let undefined = || CostRefusal::new("A fragment is not defined.");
        let index = *self.fragments.get(name).ok_or_else(undefined)?;
        match self.weights.insert((index, is_in_list), None) {
            None => {}
            Some(None) => return Err(CostRefusal::new("A fragment contains itself.")),
            Some(Some(weight)) => {
                self.weights.insert((index, is_in_list), Some(weight));
                return Ok(weight);
            }
        }
        let fragment = self.document.fragments.get(index).ok_or_else(undefined)?;
        let weight = self.selections(&fragment.selections, is_in_list, nesting + 1)?;
        self.weights.insert((index, is_in_list), Some(weight));
        Ok(weight)
    }

    /// The length of a list: the largest that its arguments say. `None` for what is not known to be a list.
    ///
    /// `edges` and `nodes` are the list of the field around them, unless that one has been counted as the list already.
    fn length(&self, field: &Field<'_>, is_in_list: bool) -> Option<u64> {
        let known = field.lengths.iter().filter_map(|length| match length {
            ListLength::Number(number) => Some(*number),
            ListLength::Variable(name) => self.variable(name),
            ListLength::Unknown => None,
        });
        let is_list =
            !field.lengths.is_empty() || field.is_paged || (!is_in_list && matches!(field.name, "edges" | "nodes"));
        known.max().or_else(|| is_list.then_some(self.list))
    }

    fn variable(&self, name: &str) -> Option<u64> {
        match self.variables.get(name) {
            Some(value) => units(value).or_else(|| value.is_u64().then_some(u64::MAX)),
            None => self.defaults.get(name).copied(),
        }
    }
}
