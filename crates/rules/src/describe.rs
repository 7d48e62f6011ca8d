//! The conditions and the cost of a rule as text, for display.

use crate::model::Test;
use crate::rule::{CompiledCost, Rule};
use crate::ruleset::Domain;

/// A condition of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The attribute that is tested.
    pub attribute: String,
    /// `is "POST /orders*"`, `is present`.
    pub test: String,
}

impl Rule {
    /// The conditions under which the rule applies; none if it applies to every request that has its key.
    pub fn conditions(&self, domain: &Domain) -> Vec<Condition> {
        let clauses = self.clauses.iter().map(|(attribute, test)| Condition {
            attribute: domain.attribute_name(*attribute).to_owned(),
            test: describe(test, false),
        });
        let path = self.path.iter().map(|(key, pattern)| Condition {
            attribute: key.clone(),
            test: pattern
                .as_ref()
                .map_or_else(|| "is present".to_owned(), |pattern| format!("is {:?}", pattern.to_string())),
        });
        clauses.chain(path).collect()
    }

    /// The units that a request takes.
    pub fn cost_text(&self, domain: &Domain) -> String {
        match &self.cost {
            CompiledCost::Request => "the cost of the request, 1 by default".to_owned(),
            CompiledCost::Fixed(1) => "1 unit".to_owned(),
            CompiledCost::Fixed(units) => format!("{units} units"),
            CompiledCost::Attribute(attribute) => format!("the number in {}", domain.attribute_name(*attribute)),
            CompiledCost::Table { attribute, cases, default } => {
                let cases = cases.iter().map(|(pattern, units)| format!("{units} for {:?}", pattern.to_string()));
                let default = default.map(|units| format!("otherwise {units}"));
                let texts: Vec<String> = cases.take(MAX_LISTED).chain(default).collect();
                format!("by {}: {}", domain.attribute_name(*attribute), texts.join(", "))
            }
        }
    }
}

/// Values that a condition lists.
const MAX_LISTED: usize = 20;

fn describe(test: &Test, negated: bool) -> String {
    let not = if negated { "not " } else { "" };
    match test {
        Test::Present => format!("is {}present", if negated { "not " } else { "" }),
        Test::Absent => format!("is {not}absent"),
        Test::AnyOf(patterns) => {
            format!("is {not}{}", listed(patterns.iter().map(|pattern| format!("{:?}", pattern.to_string()))))
        }
        Test::Within(networks) => format!("is {not}in {}", listed(networks.iter().map(ToString::to_string))),
        Test::Not(test) => describe(test, !negated),
    }
}

fn listed(items: impl ExactSizeIterator<Item = String>) -> String {
    let more = items.len().saturating_sub(MAX_LISTED);
    let mut text = items.take(MAX_LISTED).collect::<Vec<_>>().join(" or ");
    if more > 0 {
        text.push_str(&format!(" or {more} others"));
    }
    text
}

#[cfg(test)]
mod tests {
    use crate::Ruleset;

    #[test]
    fn conditions_and_costs_are_described() {
        let rules = r#"
domain: api
entity: user
rules:
  - name: a
    key: [user]
    match: {endpoint: ["POST /orders*", "GET /x"], plan: {not: free}, remote_address: {cidr: 10.0.0.0/8}, beta: present}
    limit: 5/minute
    cost: 3
  - {name: b, key: [], limit: 5/minute}
"#;
        let rules = Ruleset::from_text(rules, 1).unwrap_or_else(|error| panic!("{error:?}")).0;
        let domain = &rules.domains()[0];
        let mut shown: Vec<String> = domain.rules()[0]
            .conditions(domain)
            .into_iter()
            .map(|condition| format!("{} {}", condition.attribute, condition.test))
            .collect();
        shown.sort();
        assert_eq!(
            shown,
            [
                "beta is present",
                r#"endpoint is "POST /orders*" or "GET /x""#,
                r#"plan is not "free""#,
                "remote_address is in 10.0.0.0/8",
            ]
        );
        assert_eq!(domain.rules()[0].cost_text(domain), "3 units");
        assert_eq!(domain.rules()[1].conditions(domain), []);
        assert_eq!(domain.rules()[1].cost_text(domain), "the cost of the request, 1 by default");
    }
}
