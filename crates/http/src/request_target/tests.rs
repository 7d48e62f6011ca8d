//! Spellings of paths and methods.

use proptest::prelude::*;

use super::*;

const STANDARD: PathNormalization =
    PathNormalization { standard: true, matrix_parameters: false, trailing_slash: false, lower_case: false };
const ALL: PathNormalization =
    PathNormalization { standard: true, matrix_parameters: true, trailing_slash: true, lower_case: true };

#[track_caller]
fn check(normalization: PathNormalization, rows: &[(&str, &str)]) {
    for (target, expected) in rows {
        let path = normalization.path(target.as_bytes());
        assert_eq!(String::from_utf8_lossy(&path), *expected, "{target}");
        if target == expected && !target.contains(['%', '.']) {
            assert!(matches!(path, Cow::Borrowed(_)), "{target} was copied");
        }
    }
}

#[test]
fn spellings_of_one_path_are_one_path() {
    check(
        STANDARD,
        &[
            ("/login", "/login"),
            ("/", "/"),
            ("/orders/", "/orders/"),
            ("/%6cogin", "/login"),
            ("/%6Cogin", "/login"),
            ("//login", "/login"),
            ("///login//x", "/login/x"),
            ("/./login", "/login"),
            ("/%2e/login", "/login"),
            ("/x/../login", "/login"),
            ("/x/%2E%2e/login", "/login"),
            ("/x/..", "/"),
            ("/x/y/..", "/x/"),
            ("/x/.", "/x/"),
            ("/../../login", "/login"),
            ("/a//../login", "/login"),
            ("/...", "/..."),
            ("/.well-known/x", "/.well-known/x"),
            ("http://host/login", "/login"),
            ("HTTPS://u@h:1/%6cogin?x", "/login"),
            ("http://host", "/"),
            ("http://host?x=/login", "/"),
            ("/login?next=//x", "/login"),
            ("/login#x", "/login"),
            ("/caf%C3%A9", "/café"),
            ("/a%20b%21", "/a b!"),
            // These mean something else when they are decoded.
            ("/a%2fb", "/a%2Fb"),
            ("/a%3fb%23%25%0a", "/a%3Fb%23%25%0A"),
            ("/%256cogin", "/%256cogin"),
            // Not encoded bytes.
            ("/a%", "/a%"),
            ("/a%g1%4", "/a%g1%4"),
            ("/%%36c%6%63", "/%%36c%6%63"),
            // Not paths.
            ("*", "*"),
            ("", ""),
            ("login", "login"),
            ("://x", "://x"),
            // Off by default.
            ("/login/", "/login/"),
            ("/LOGIN", "/LOGIN"),
            ("/login;x=1", "/login;x=1"),
        ],
    );
    assert_eq!(*STANDARD.path(b"/%ff"), *b"/\xff");
}

#[test]
fn more_spellings_can_be_one() {
    check(
        ALL,
        &[
            ("/LOGIN/", "/login"),
            ("/login;x=1", "/login"),
            ("/a;x/..;y/Login;z/", "/login"),
            ("/;x/login", "/login"),
            ("/a%2fB", "/a%2fb"),
            ("/", "/"),
            ("/;x", "/"),
        ],
    );
}

#[test]
fn off_is_off() {
    for target in ["/%6c", "//x", "http://h/x"] {
        assert_eq!(*PathNormalization::NONE.path(target.as_bytes()), *target.as_bytes());
    }
    assert_eq!(*PathNormalization::NONE.method(b"post"), *b"post");
}

#[test]
fn methods_and_endpoints() {
    let rows = [
        ("POST /orders", "POST /orders"),
        ("post //orders?x", "POST /orders"),
        ("/v1//charges", "/v1/charges"),
        ("/a b//c", "/a b/c"),
        ("GET http://h/%6frders", "GET /orders"),
        ("orders.create", "orders.create"),
        ("POST", "POST"),
        ("OPTIONS *", "OPTIONS *"),
    ];
    for (endpoint, expected) in rows {
        assert_eq!(String::from_utf8_lossy(&STANDARD.endpoint(endpoint.as_bytes())), expected, "{endpoint}");
    }
    assert_eq!(*STANDARD.method(b"Post"), *b"POST");
    assert!(matches!(STANDARD.endpoint(b"POST /orders"), Cow::Borrowed(_)));
}

/// Targets of the pieces that matter.
fn target() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: [&str; 27] = [
        "%%36", "6", "/", "/", "//", ".", "..", "%2e", "%2E", "%2f", "%2F", "%25", "%3b", ";", "a", "A", "%61", "%41",
        "%", "%6", "?", "#", "%ff", "é", " ", "http://h", "x:",
    ];
    proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..12).prop_map(|pieces| pieces.concat().into())
}

fn normalization() -> impl Strategy<Value = PathNormalization> {
    any::<[bool; 4]>().prop_map(|[standard, matrix_parameters, trailing_slash, lower_case]| PathNormalization {
        standard,
        matrix_parameters,
        trailing_slash,
        lower_case,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_is_idempotent_and_never_longer(target in target(), by in normalization()) {
        let once = by.path(&target);
        prop_assert!(once.len() <= target.len().max(1), "{:?}", String::from_utf8_lossy(&target));
        let twice = by.path(&once);
        prop_assert_eq!(&twice, &once, "{:?}", String::from_utf8_lossy(&target));
    }

    #[test]
    fn a_path_has_no_other_spelling_left(target in target()) {
        let path = ALL.path(&target);
        if path.starts_with(b"/") {
            let has = |part: &[u8]| path.windows(part.len()).any(|window| window == part);
            prop_assert!(!has(b"//") && !has(b"/./") && !has(b"/../") && !has(b";") && !has(b"?"), "{:?}", path);
        }
    }
}
