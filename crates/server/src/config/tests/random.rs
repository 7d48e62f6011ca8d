//! No text makes the program panic.

use proptest::prelude::*;

use super::Start;
use crate::config::envoy::{COMPOSED_VARIABLES, DIRECT_VARIABLES};
use crate::config::table::{SettingScope, table};

/// Texts that are almost valid, and others.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[0-9a-zA-Z:/=,.%\\[\\]@*_ -]{0,24}",
        "[0-9]{0,22}(ms|s|m|h|d|KiB|MiB|GiB|%|)([0-9]{0,22}(s|m|ms))?",
        "(unix:|http://|redis://|)[^\u{0}]{0,16}",
        "[^\u{0}]{0,12}",
    ]
}

/// Lines that are almost settings, and others.
const FILE: &str = "([a-z_]{1,12}: ?[^\u{0}]{0,12}\n|[^\u{0}]{0,20}\n|grpc: .{0,20}\n|rules: \\[.{0,10}\\]\n){0,5}";

proptest! {
    #[test]
    fn as_any_setting(at in any::<prop::sample::Index>(), text in text()) {
        let settings: Vec<_> = table().iter().filter(|setting| setting.scope == SettingScope::Everywhere).collect();
        let setting = settings[at.index(settings.len())];
        let start = Start { variables: vec![(setting.variable(), text)], ..Start::default() };
        match start.load() {
            Ok(loaded) => prop_assert!(loaded.print().contains(&*setting.name)),
            Err(problems) => prop_assert!(problems.iter().all(|problem| problem.contains("; ")), "{problems:?}"),
        }
    }

    #[test]
    fn as_envoys_variables(at in any::<prop::sample::Index>(), text in text()) {
        let composed = COMPOSED_VARIABLES.iter().map(|(name, ..)| *name);
        let names: Vec<&str> = DIRECT_VARIABLES.iter().map(|direct| direct.variable).chain(composed).collect();
        let name = names[at.index(names.len())].to_owned();
        let variables = vec![(name, text), ("TOLLGATE_ENVOY_ENV".to_owned(), "1".to_owned())];
        let _ = Start { variables, ..Start::default() }.load();
    }

    #[test]
    fn as_a_file(file in FILE) {
        let start = Start { file: Some(file), ..Start::default() };
        let _ = start.load();
    }

    #[test]
    fn as_the_name_of_a_variable(name in "TOLLGATE_.{0,30}|[A-Z_]{1,20}", value in text()) {
        prop_assume!(name != "TOLLGATE_CONFIG");
        let _ = Start { variables: vec![(name, value)], ..Start::default() }.load();
    }
}
