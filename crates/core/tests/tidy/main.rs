//! What the house promises and the compiler does not check. [`checks`] says what is wrong with a text, [`proofs`] that each
//! check can fail; here they are held to the repository.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test says what it expects by failing.

mod bounds;
mod checks;
mod docs_proofs;
mod house;
mod modules;
mod names;
mod names_proofs;
mod paths;
mod proofs;
mod source;

use std::collections::BTreeSet;

use checks::Findings;
use house::File;

#[test]
fn every_module_says_what_it_is() {
    hold(|file| file.is_module(), checks::begins_with_module_docs);
}

#[test]
fn core_depends_on_an_allow_list() {
    hold(|file| file.path == "crates/core/Cargo.toml", checks::core_dependencies);
}

#[test]
fn dependencies_point_one_way() {
    hold(|file| file.is_manifest(), checks::dependencies_point_one_way);
}

#[test]
fn only_the_clock_reads_a_clock() {
    for clock in [checks::CLOCK, checks::TEST_TIME] {
        assert!(house::files().iter().any(|file| file.path == clock), "{clock} has moved");
    }
    hold(|file| file.is_rust() && !file.path.contains("/benches/"), checks::reads_no_clock);
}

#[test]
fn nothing_sleeps() {
    hold(|file| file.is_rust(), checks::does_not_sleep);
}

#[test]
fn core_has_no_floats() {
    hold(|file| file.is_in_core(), checks::has_no_floats);
}

#[test]
fn core_does_no_io_and_knows_no_async_serde_or_logging() {
    hold(|file| file.is_in_core(), checks::is_pure);
}

#[test]
fn files_are_short() {
    hold(|file| file.is_rust(), checks::is_short);
}

#[test]
fn nothing_names_a_machine() {
    // These tests name what they look for.
    hold(|file| !file.path.starts_with("crates/core/tests/tidy/"), checks::names_no_machine);
}

#[test]
fn packages_come_from_the_public_registry() {
    hold(|file| file.path.ends_with("Cargo.lock"), checks::is_locked_to_the_public_registry);
}

#[test]
fn bounds_are_those_of_the_sources() {
    let files = house::files();
    let sources = bounds::Sources::new(&files);
    hold(|file| file.path == bounds::PAGE, |_, text| bounds::are_in_the_sources(text, &sources));
}

#[test]
fn paths_in_the_documentation_exist() {
    let tree = house::Tree::new();
    hold(|file| paths::is_page(&file.path), |path, text| paths::exist(path, text, &tree));
}

#[test]
fn pages_are_listed_for_the_site() {
    let files = house::files();
    let summary = files.iter().find(|file| file.path == paths::SUMMARY).expect("the summary");
    let findings = paths::unlisted(files.iter().map(|file| &*file.path), &summary.text);
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

#[test]
fn modules_of_a_crate_depend_one_way() {
    let files = house::files();
    let sources: Vec<_> = files.iter().filter(|file| file.is_production()).collect();
    let crates: BTreeSet<_> = sources.iter().filter_map(|file| file.path.split("/src/").next()).collect();
    assert!(crates.len() > 10, "{crates:?}");
    let cycle = |name: &&str| {
        let prefix = format!("{name}/src/");
        let own = sources.iter().filter_map(|file| Some((file.path.strip_prefix(&prefix)?, &*file.text)));
        let path = modules::cycle(&modules::uses(own))?;
        Some(format!("modules of {name} use each other in a circle: {}", path.join(" → ")))
    };
    let findings: Vec<_> = crates.iter().filter_map(cycle).collect();
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

#[test]
fn a_name_is_that_of_one_or_two_types() {
    let files = house::files();
    let sources = files.iter().filter(|file| file.is_production());
    let findings = names::repeated_types(sources.map(|file| (&*file.path, &*file.text)));
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

#[test]
fn words_are_those_of_the_glossary() {
    hold(File::is_prose_or_code, names::uses_the_glossary);
}

/// Runs a check on all files that it is for, of which there must be some, and shows all that it finds.
fn hold(is_for: impl Fn(&File) -> bool, check: impl Fn(&str, &str) -> Findings) {
    let files = house::files();
    let mut looked_at = 0;
    let mut findings = Findings::new();
    for file in files.iter().filter(|file| is_for(file)) {
        looked_at += 1;
        findings.extend(check(&file.path, &file.text).into_iter().map(|finding| format!("{}{finding}", file.path)));
    }
    assert!(looked_at > 0, "the check has nothing to look at");
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}
