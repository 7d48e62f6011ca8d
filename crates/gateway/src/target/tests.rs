use http::Request;
use proptest::prelude::*;

use super::*;

/// A request from its line and its hosts: `GET /a HTTP/1.1` and what `Host` fields say.
fn parts(line: &str, hosts: &[&str]) -> Parts {
    let [method, target, version] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
    let version = if version == "HTTP/2" { Version::HTTP_2 } else { Version::HTTP_11 };
    let mut request = Request::builder().method(method).uri(target).version(version);
    for host in hosts {
        request = request.header(HOST, *host);
    }
    request.body(()).unwrap().into_parts().0
}

fn shown(line: &str, hosts: &[&str]) -> String {
    match Target::read(&parts(line, hosts)) {
        Ok(Target { authority, path, forwarded, odd }) => {
            let odd = odd.map_or(String::new(), |odd| format!(" {odd:?}"));
            format!("{authority} {} {forwarded}{odd}", String::from_utf8_lossy(&path))
        }
        Err(fault) => format!("{} {fault:?}", fault.status().as_u16()),
    }
}

#[test]
fn the_authority_is_one() {
    for (line, hosts, expected) in [
        ("GET / HTTP/1.1", &["a.b"][..], "a.b / /"),
        ("GET / HTTP/1.1", &["A.b:80"], "A.b:80 / /"),
        ("GET / HTTP/1.1", &[], "400 NoHost"),
        ("GET / HTTP/1.1", &["a", "a"], "400 SeveralHosts"),
        ("GET / HTTP/1.1", &[""], "400 BadHost"),
        ("GET / HTTP/1.1", &["."], "400 BadHost"),
        ("GET / HTTP/1.1", &["a..b"], "400 BadHost"),
        ("GET / HTTP/1.1", &["a b"], "400 BadHost"),
        ("GET / HTTP/1.1", &["a@b"], "400 BadHost"),
        ("GET / HTTP/1.1", &["a/b"], "400 BadHost"),
        ("GET / HTTP/1.1", &["a%41"], "400 BadHost"),
        ("GET / HTTP/1.1", &["a,b"], "400 BadHost"),
        ("GET / HTTP/1.1", &["a:"], "400 BadHost"),
        ("GET / HTTP/1.1", &["a:+80"], "400 BadHost"),
        ("GET / HTTP/1.1", &["a:65536"], "400 BadHost"),
        ("GET / HTTP/1.1", &["a:80:80"], "400 BadHost"),
        ("GET / HTTP/1.1", &["[::1]:80"], "[::1]:80 / /"),
        ("GET / HTTP/1.1", &["[::1]"], "[::1] / /"),
        ("GET / HTTP/1.1", &["[::g]"], "400 BadHost"),
        ("GET / HTTP/1.1", &["[::1"], "400 BadHost"),
        ("GET / HTTP/1.1", &["[::1]x"], "400 BadHost"),
        ("GET / HTTP/1.1", &["::1"], "400 BadHost"),
        ("GET http://c.d:81/x?y HTTP/1.1", &["a.b"], "c.d:81 /x /x?y"),
        ("GET http://c.d HTTP/1.1", &["a.b"], "c.d / /"),
        ("GET http://c.d?y HTTP/1.1", &["a.b"], "c.d / /?y"),
        ("GET http://c.d/ HTTP/1.1", &[], "400 NoHost"),
        ("GET http://u:p@c.d/ HTTP/1.1", &["c.d"], "400 BadHost"),
        ("GET ftp://c.d/ HTTP/1.1", &["c.d"], "400 Scheme"),
        ("GET c.d:80 HTTP/1.1", &["c.d"], "400 NoPath"),
        ("GET https://c.d/x HTTP/2", &[], "c.d /x /x"),
        ("GET https://c.d/x HTTP/2", &["C.D"], "c.d /x /x"),
        ("GET https://c.d/x HTTP/2", &["a.b"], "400 HostsDisagree"),
        ("GET https://c.d/x HTTP/2", &["c.d:443"], "400 HostsDisagree"),
        ("GET https://c.d/x HTTP/2", &["c.d", "c.d"], "400 SeveralHosts"),
        ("GET /x HTTP/2", &["c.d"], "c.d /x /x"),
        ("GET /x HTTP/2", &[], "400 NoHost"),
    ] {
        assert_eq!(shown(line, hosts), expected, "{line} {hosts:?}");
    }
    let long = "a".repeat(MAX_HOST_BYTES + 1);
    assert_eq!(shown("GET / HTTP/1.1", &[&long]), "400 BadHost");
}

#[test]
fn methods_and_targets_that_are_not_forwarded() {
    for (line, expected) in [
        ("CONNECT a:80 HTTP/1.1", "405 Method"),
        ("TRACE / HTTP/1.1", "405 Method"),
        ("OPTIONS * HTTP/1.1", "a * *"),
        ("GET * HTTP/1.1", "400 NoPath"),
        ("OPTIONS /x HTTP/1.1", "a /x /x"),
    ] {
        assert_eq!(shown(line, &["a"]), expected, "{line}");
    }
}

#[test]
fn paths_have_one_spelling() {
    for (target, expected) in [
        ("/v1/orders?a=%2e%2e/#x", "/v1/orders /v1/orders?a=%2e%2e/"),
        ("/%6frders/%7E%2d", "/orders/~- /orders/~-"),
        ("/a%20b", "/a b /a%20b"),
        ("/a%c3%a4", "/aä /a%C3%A4"),
        ("/a%2bb%3f", "/a+b%3F /a%2Bb%3F"),
        ("/a/./b/../c", "/a/c /a/c"),
        ("/a/%2e%2E/c", "/c /c"),
        ("/a/b/..", "/a/ /a/"),
        ("/a/.", "/a/ /a/"),
        ("/a/", "/a/ /a/"),
        ("/.well-known/x", "/.well-known/x /.well-known/x"),
        ("/a;b=1/c", "/a;b=1/c /a;b=1/c"),
        ("//a", "/a //a EmptySegment"),
        ("/a//b", "/a/b /a//b EmptySegment"),
        ("/a//", "/a/ /a// EmptySegment"),
        ("/a//../b", "/b /b EmptySegment"),
        ("/../a", "/a /a AboveRoot"),
        ("/a/../../b", "/b /b AboveRoot"),
        ("//..//a", "/a //a EmptySegment"),
        ("/a%2fb", "/a%2Fb /a%2Fb EncodedSlash"),
        ("/..%2fb", "/..%2Fb /..%2Fb EncodedSlash"),
        ("/a%5cb", "/a\\b /a%5Cb EncodedBackslash"),
        ("/a\\b", "/a\\b /a\\b Backslash"),
        ("/a%00", "/a%00 /a%00 Control"),
        ("/a%7f", "/a%7F /a%7F Control"),
        ("/a%", "/a% /a% StrayPercent"),
        ("/a%g1", "/a%g1 /a%g1 StrayPercent"),
        ("/a%4%31", "/a%4%31 /a%4%31 StrayPercent"),
        ("/a%%341", "/a%%341 /a%%341 StrayPercent"),
    ] {
        assert_eq!(shown(&format!("GET {target} HTTP/1.1"), &["a"]), format!("a {expected}"), "{target}");
    }
}

#[test]
fn ordinary_paths_are_borrowed() {
    let parts = parts("GET /v1/orders/7?x=%2e HTTP/1.1", &["a"]);
    let target = Target::read(&parts).unwrap();
    assert!(matches!((target.path, target.forwarded), (Cow::Borrowed(_), Cow::Borrowed(_))));
    assert_eq!(allocation_counter::measure(|| drop(Target::read(&parts))).count_total, 0);
}

#[test]
fn a_prefix_is_removed_by_segments() {
    for (path, prefix, expected) in [
        ("/v1/orders?x=/v1", "/v1", "/orders?x=/v1"),
        ("/v1", "/v1", "/"),
        ("/v1?x", "/v1", "/?x"),
        ("/v1/", "/v1", "/"),
        ("/a/b/c", "/a/b", "/c"),
        ("/v%281/x", "/v(1/", "/x"),
        ("//v1//x", "/v1", "//x"),
    ] {
        assert_eq!(without_prefix(path, prefix), expected, "{path} {prefix}");
    }
}

/// Paths of the pieces that matter.
fn any_path() -> impl Strategy<Value = String> {
    let pieces = [
        "/", "/", ".", "..", "%2e", "%2E", "%2f", "%5c", "\\", "%", "%4", "%31", "%25", "%00", "a", "4", "%61", "%c3",
        "ä", ";", "%3f", "+", "%2b",
    ];
    prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..12)
        .prop_map(|pieces| format!("/{}", pieces.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rules_match_what_the_upstream_gets(path in any_path()) {
        let parts = parts(&format!("GET {path} HTTP/1.1"), &["a"]);
        let target = Target::read(&parts).unwrap();
        let normal = |path: &str| Cow::<[u8]>::Owned(PathNormalization::default().path(path.as_bytes()).into_owned());
        prop_assert_eq!(&normal(&target.forwarded), &target.path, "{}", &target.forwarded);
        prop_assert_eq!(&normal(&path), &target.path);
        prop_assert!(target.forwarded.len() <= path.len());

        let parts = self::parts(&format!("GET {} HTTP/1.1", target.forwarded), &["a"]);
        let again = Target::read(&parts).unwrap();
        prop_assert_eq!(&again.forwarded, &target.forwarded);
        // What climbed, or was an empty segment before `..`, is gone.
        prop_assert!(again.odd.is_none() || target.odd.is_some());
        // A path that is not odd is the only spelling that upstreams can read it in: nothing is left to resolve.
        if target.odd.is_none() {
            let segments: Vec<_> = target.forwarded.split('/').skip(1).collect();
            let (last, others) = segments.split_last().unwrap();
            prop_assert!(others.iter().all(|segment| !segment.is_empty()));
            prop_assert!(others.iter().chain([last]).all(|segment| *segment != "." && *segment != ".."));
        }
    }
}
