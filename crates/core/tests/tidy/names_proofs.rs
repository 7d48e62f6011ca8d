//! Proof that the checks of modules, names and words can fail, and that they let pass what they should.

use crate::modules;
use crate::names;

fn cycle(files: &[(&str, &str)]) -> Option<String> {
    modules::cycle(&modules::uses(files.iter().copied())).map(|path| path.join(" "))
}

#[test]
fn module_cycles() {
    let one_way = [("lib.rs", "mod a;\nmod b;\n"), ("a.rs", "use crate::b::B;\n"), ("b/mod.rs", "use self::c::C;\n")];
    assert_eq!(cycle(&one_way), None);
    assert_eq!(cycle(&[("a.rs", "use crate::b;\n"), ("b.rs", "use crate::a;\n")]).unwrap(), "a b");
    let longer = [("a.rs", "use crate::b;"), ("b/x.rs", "let c = crate::c::new();"), ("c.rs", "use super::a::A;")];
    assert_eq!(cycle(&longer).unwrap(), "a b c");
    let group = [("a.rs", "use crate::{b::{X, Y}, c};"), ("b.rs", ""), ("c/d.rs", "use super::super::a::A;")];
    assert_eq!(cycle(&group).unwrap(), "a c");
    let exported = [
        ("lib.rs", "mod a;\npub use a::{A, More as Other};"),
        ("a.rs", "use crate::b;"),
        ("b.rs", "use crate::Other;"),
    ];
    assert_eq!(cycle(&exported).unwrap(), "a b");
    let all_of_itself = [
        ("lib.rs", "mod a;\nmod b;\npub use a::{\n    A,\n};"),
        ("a.rs", "use crate::b;"),
        ("b.rs", "mod tests {\n    use super::*;\n}"),
    ];
    assert_eq!(cycle(&all_of_itself), None);
    let harmless =
        [("a.rs", "use crate::b;"), ("b.rs", "// crate::a\npub(in crate::a) fn f() {}\nlet x = \"crate::a\";")];
    assert_eq!(cycle(&harmless), None);
    assert_eq!(cycle(&[("a/mod.rs", "use super::b;"), ("b.rs", "use crate::a;")]).unwrap(), "a b");
    assert_eq!(cycle(&[("a/x.rs", "use super::b;"), ("b.rs", "use crate::a;")]), None, "`super` is the module's own");
}

#[test]
fn type_names() {
    let text = "pub struct A;\npub(crate) enum B {}\ntrait A {}\n// struct A;\nfn struct_a() {}\nstruct A<T>(T);\n";
    let found = names::repeated_types([("x.rs", text)].into_iter());
    assert_eq!(found, ["3 types are called A: x.rs:1, x.rs:3, x.rs:6"]);
    assert!(names::repeated_types([("x.rs", "struct A;\n"), ("y.rs", "struct A;\n")].into_iter()).is_empty());
}

#[test]
fn replaced_words() {
    let rows = [
        ("the basket was bespoken", 0),
        ("fn tasked() {}", 0),
        ("It was to\u{6c}d so.", 1),
        ("struct Ask\u{65}dReader;", 1),
        ("let is_kep\u{74} = Sough\u{74}::new();", 2),
        ("BESID\u{45} it", 1),
        ("wante\u{64}", 1),
    ];
    for (text, findings) in rows {
        let found = names::uses_the_glossary("x.rs", text);
        assert_eq!(found.len(), findings, "{text:?}: {found:?}");
    }
}
