//! For every setting the strongest value that was given.

use super::origin::{Given, Layer, Origin};
use super::table::{Setting, table};

/// The value of every setting, in the order of the table.
#[derive(Clone, Debug)]
pub(crate) struct Values(Vec<(&'static Setting, Given)>);

impl Values {
    /// Takes each value from the first layer that has it, else its default.
    pub(super) fn strongest(layers: &[&Layer]) -> Values {
        let given = |setting: &Setting| {
            let strongest = layers.iter().find_map(|layer| layer.get(&*setting.name)).cloned();
            strongest.unwrap_or_else(|| Given { text: Ok(setting.default.to_owned()), origin: Origin::Default })
        };
        Values(table().iter().map(|setting| (setting, given(setting))).collect())
    }

    /// A setting and its value.
    pub(super) fn find(&self, name: &str) -> Option<&(&'static Setting, Given)> {
        self.0.iter().find(|(setting, _)| setting.name == name)
    }

    /// The value of a setting.
    pub(super) fn given(&self, name: &str) -> Option<&Given> {
        self.find(name).map(|(_, given)| given)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static Setting, &Given)> {
        self.0.iter().map(|(setting, given)| (*setting, given))
    }
}
