//! The two forms of a rule in a request body: the short form, and that of rule files.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use tollgate_records::FieldFault;
use tollgate_records::documents::{FieldFaults, RuleState};

use super::super::{ApiProblem, body, expiry};

/// A parsed body.
#[derive(Debug)]
pub(super) struct RuleForm {
    /// The rule in the form of rule files, as JSON.
    pub(super) rule: Box<RawValue>,
    pub(super) state: RuleState,
    pub(super) reason: String,
}

/// The members of an object, in order.
struct Members(Vec<(String, Box<RawValue>)>);

/// Members of a body.
const MAX_MEMBERS: usize = 100;

/// The members of the long form.
const RULE_MEMBERS: [&str; 3] = ["rule", "state", "reason"];

/// Parses a body and reports all faults of its form.
pub(super) fn parse(text: &[u8]) -> Result<RuleForm, ApiProblem> {
    let Members(mut members) = body::parse(text)?;
    let mut faults = FieldFaults::default();
    let state = take_member::<RuleState>(&mut members, "state", &mut faults).unwrap_or(RuleState::Active);
    let reason = take_member::<String>(&mut members, "reason", &mut faults).unwrap_or_default();
    expiry::check_reason(&reason, &mut faults);
    let rule = match members.iter().position(|(name, _)| name == "rule") {
        Some(at) => {
            let (_, rule) = members.swap_remove(at);
            for (name, _) in members {
                let message = if RULE_MEMBERS.contains(&name.as_str()) {
                    "it is given twice".to_owned()
                } else {
                    format!("unknown member; with `rule` there are {}", RULE_MEMBERS.join(", "))
                };
                faults.add(name, message);
            }
            Some(rule)
        }
        None => parse_short_form(&members, &mut faults),
    };
    match (faults.into_result(()), rule) {
        (Ok(()), Some(rule)) => Ok(RuleForm { rule, state, reason }),
        (Err(faults), _) => Err(ApiProblem::invalid(faults)),
        (Ok(()), None) => {
            Err(ApiProblem::invalid(vec![FieldFault { at: "rule".to_owned(), what: "it is missing".to_owned() }]))
        }
    }
}

/// Parses the short form.
fn parse_short_form(members: &[(String, Box<RawValue>)], faults: &mut FieldFaults) -> Option<Box<RawValue>> {
    let members: Vec<String> = members
        .iter()
        .map(|(name, value)| format!("{}: {}", serde_json::Value::from(name.as_str()), value.get()))
        .collect();
    match tollgate_rules::short_form(&format!("{{{}}}", members.join(",\n"))) {
        Ok(rule) => RawValue::from_string(rule).ok(),
        Err(messages) => {
            messages.into_iter().for_each(|message| faults.add("", message));
            None
        }
    }
}

/// Removes a member, if present.
fn take_member<T: for<'de> Deserialize<'de>>(
    members: &mut Vec<(String, Box<RawValue>)>,
    name: &str,
    faults: &mut FieldFaults,
) -> Option<T> {
    let at = members.iter().position(|(other, _)| other == name)?;
    let (_, value) = members.swap_remove(at);
    match serde_json::from_str(value.get()) {
        Ok(value) => Some(value),
        Err(error) => {
            // The position within a single word is of no use.
            let message = error.to_string();
            faults.add(name, message.split(" at line").next().unwrap_or(&message));
            None
        }
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a rule")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    if members.len() == MAX_MEMBERS {
                        return Err(serde::de::Error::custom(format!("there are more than {MAX_MEMBERS} members")));
                    }
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}
