//! The two forms of a rule in a body: the short one, and the one that files have.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use tollgate::control::Fault;
use tollgate::control::documents::{Faults, RuleState};

use super::super::{Problem, body, until};

/// What a body says.
#[derive(Debug)]
pub(super) struct Form {
    /// The rule as files have it, in JSON.
    pub(super) rule: Box<RawValue>,
    pub(super) state: RuleState,
    pub(super) reason: String,
}

/// The members of an object in their order, whichever they are.
struct Members(Vec<(String, Box<RawValue>)>);

/// The most members of a body.
const MOST_MEMBERS: usize = 100;

/// What may stand beside a rule.
const BESIDE: [&str; 3] = ["rule", "state", "reason"];

/// Reads a body, and tells all that is wrong with its shape.
pub(super) fn read(sent: &[u8]) -> Result<Form, Problem> {
    let Members(mut members) = body::parsed(sent)?;
    let mut faults = Faults::default();
    let state = take::<RuleState>(&mut members, "state", &mut faults).unwrap_or(RuleState::Active);
    let reason = take::<String>(&mut members, "reason", &mut faults).unwrap_or_default();
    until::reason_fits(&reason, &mut faults);
    let rule = match members.iter().position(|(name, _)| name == "rule") {
        Some(at) => {
            let (_, rule) = members.swap_remove(at);
            for (name, _) in members {
                let what = if BESIDE.contains(&name.as_str()) {
                    "it is there twice; write it once".to_owned()
                } else {
                    format!("there is no such member beside `rule`; there are {}", BESIDE.join(", "))
                };
                faults.add(name, what);
            }
            Some(rule)
        }
        None => short(&members, &mut faults),
    };
    match (faults.unless(()), rule) {
        (Ok(()), Some(rule)) => Ok(Form { rule, state, reason }),
        (Err(faults), _) => Err(Problem::invalid(faults)),
        (Ok(()), None) => {
            Err(Problem::invalid(vec![Fault { at: "rule".to_owned(), what: "it is missing".to_owned() }]))
        }
    }
}

/// The rule of the short form.
fn short(members: &[(String, Box<RawValue>)], faults: &mut Faults) -> Option<Box<RawValue>> {
    let members: Vec<String> = members
        .iter()
        .map(|(name, value)| format!("{}: {}", serde_json::Value::from(name.as_str()), value.get()))
        .collect();
    match tollgate_rules::short_form(&format!("{{{}}}", members.join(",\n"))) {
        Ok(rule) => RawValue::from_string(rule).ok(),
        Err(told) => {
            told.into_iter().for_each(|what| faults.add("", what));
            None
        }
    }
}

/// Takes a member out, if it is there.
fn take<T: for<'de> Deserialize<'de>>(
    members: &mut Vec<(String, Box<RawValue>)>,
    name: &str,
    faults: &mut Faults,
) -> Option<T> {
    let at = members.iter().position(|(known, _)| known == name)?;
    let (_, value) = members.swap_remove(at);
    match serde_json::from_str(value.get()) {
        Ok(value) => Some(value),
        Err(error) => {
            // Where in the member says nothing: it is a word.
            let what = error.to_string();
            faults.add(name, what.split(" at line").next().unwrap_or(&what));
            None
        }
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members, D::Error> {
        struct OfMap;

        impl<'de> Visitor<'de> for OfMap {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a rule")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    if members.len() == MOST_MEMBERS {
                        return Err(serde::de::Error::custom(format!("there are more than {MOST_MEMBERS} members")));
                    }
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(OfMap)
    }
}
