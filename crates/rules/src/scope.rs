//! The identity of a counter in the terms of the request, for display.

use smallvec::SmallVec;
use tollgate_core::Request;

use crate::rule::Rule;

impl Rule {
    /// The attributes of a request that identify this rule's counter, with their values; an optional one may have
    /// none. `touches` is the set of matching descriptors.
    pub fn scope_of<'a>(&'a self, request: &Request<'a>, touches: u64) -> SmallVec<[(&'a str, Option<&'a str>); 4]> {
        if self.path.is_empty() {
            let value = |name: &str| {
                let entries = request.descriptors.iter().flat_map(|descriptor| descriptor.entries);
                entries.into_iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
            };
            return self.key_names.iter().map(|name| (&**name, value(name))).collect();
        }
        let descriptor = request.descriptors.get(touches.trailing_zeros() as usize);
        let entries = descriptor.map_or(&[][..], |descriptor| descriptor.entries);
        entries.iter().take(self.path.len()).map(|(name, value)| (*name, Some(*value))).collect()
    }
}
