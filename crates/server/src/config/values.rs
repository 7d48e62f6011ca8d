//! The value of every setting with the highest precedence.

use super::origin::{Origin, SettingLayer, SettingValue};
use super::table::{Setting, table};

/// The value of every setting, in the order of the table.
#[derive(Clone, Debug)]
pub(super) struct Values(Vec<(&'static Setting, SettingValue)>);

impl Values {
    /// Takes each value from the first layer that has it, else the default.
    pub(super) fn merge(layers: &[&SettingLayer]) -> Values {
        let value = |setting: &Setting| {
            let first = layers.iter().find_map(|layer| layer.get(&*setting.name)).cloned();
            first.unwrap_or_else(|| SettingValue { text: Ok(setting.default.to_owned()), origin: Origin::Default })
        };
        Values(table().iter().map(|setting| (setting, value(setting))).collect())
    }

    /// A setting and its value.
    pub(super) fn find(&self, name: &str) -> Option<&(&'static Setting, SettingValue)> {
        self.0.iter().find(|(setting, _)| setting.name == name)
    }

    /// The value of a setting.
    pub(super) fn get(&self, name: &str) -> Option<&SettingValue> {
        self.find(name).map(|(_, value)| value)
    }

    /// All settings and their values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static Setting, &SettingValue)> {
        self.0.iter().map(|(setting, value)| (*setting, value))
    }
}
