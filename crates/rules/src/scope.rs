//! The identity of a counter in the terms of the request, for display.

use smallvec::SmallVec;
use tollgate_core::Request;
use tollgate_core::key::{HashSecret, Value};

use crate::address::counted;
use crate::rule::{ENDPOINT, Rule};

/// Not a secret: it only has to be the same everywhere.
const PARTITION: HashSecret = HashSecret(0x746f_6c6c_6761_7465, 0x7061_7274_6974_6e31);

fn value_of<'a>(request: &Request<'a>, name: &str) -> Option<&'a str> {
    let entries = request.descriptors.iter().flat_map(|descriptor| descriptor.entries);
    entries.into_iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
}

impl Rule {
    /// The attributes of a request that say where this rule limited it, with their values: those that identify the
    /// counter, and the endpoint if the rule is for one.
    pub fn scope_of<'a>(&'a self, request: &Request<'a>, touches: u64) -> SmallVec<[(&'a str, Option<&'a str>); 4]> {
        let mut scope = self.key_of(request, touches);
        if self.is_for_endpoint && scope.iter().all(|(name, _)| *name != ENDPOINT) {
            scope.push((ENDPOINT, value_of(request, ENDPOINT)));
        }
        scope
    }

    /// A digest of the values that identify this rule's counter, the same on every server. `None` if the rule has one
    /// counter for everyone.
    pub fn partition_of(&self, request: &Request<'_>, touches: u64) -> Option<u64> {
        let values = self.key_of(request, touches);
        let is_address = |at: usize| self.key.get(at).is_some_and(|part| part.address);
        let digest = values.iter().enumerate().fold(0, |before, (at, (_, value))| {
            let value = match value {
                None => Value::Absent,
                Some(text) if is_address(at) => counted(text, self.ipv6_prefix),
                Some(text) => Value::Text(text),
            };
            value.digest(PARTITION, before)
        });
        (!values.is_empty()).then_some(digest as u64)
    }

    /// The attributes of a request that identify this rule's counter, with their values; an optional one may have
    /// none. `touches` is the set of matching descriptors.
    pub fn key_of<'a>(&'a self, request: &Request<'a>, touches: u64) -> SmallVec<[(&'a str, Option<&'a str>); 4]> {
        if self.path.is_empty() {
            return self.key_names.iter().map(|name| (&**name, value_of(request, name))).collect();
        }
        let descriptor = request.descriptors.get(touches.trailing_zeros() as usize);
        let entries = descriptor.map_or(&[][..], |descriptor| descriptor.entries);
        entries.iter().take(self.path.len()).map(|(name, value)| (*name, Some(*value))).collect()
    }
}
