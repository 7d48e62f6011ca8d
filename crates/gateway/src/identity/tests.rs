//! Attributes of requests.

use std::time::Duration;

use http::Request;
use proptest::prelude::*;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};

use super::*;
use crate::jwt::KeySet;
use crate::model::{KeySource, TokenSource};

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

fn parts(uri: &str, headers: &[(&str, &[u8])]) -> Parts {
    let mut request = Request::builder().uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn identity(sources: Vec<AttributeSource>) -> Identity {
    Identity::new(&[AttributeConfig { name: "caller".into(), sources }], &[])
}

/// The value of an attribute with these sources.
#[track_caller]
fn check(sources: &[AttributeSource], uri: &str, headers: &[(&str, &[u8])], expected: Option<&str>) {
    let (parts, connection) = (parts(uri, headers), ConnectionFacts::default());
    let identity = identity(sources.to_vec());
    let values = identity.read(&parts, &[], &connection, NOW).unwrap();
    assert_eq!(values.get("caller"), expected, "{uri} {headers:?}");
}

fn header(name: &'static str) -> AttributeSource {
    AttributeSource::Header(HeaderName::from_static(name))
}

#[test]
fn headers_are_read() {
    let sources = [header("x-api-key")];
    check(&sources, "/", &[("x-api-key", b"ada")], Some("ada"));
    check(&sources, "/", &[("x-api-key", b"ada"), ("x-api-key", b"ada")], Some("ada"));
    check(&sources, "/", &[("x-api-key", b"")], None);
    check(&sources, "/", &[], None);
    check(&sources, "/", &[("x-api-key", b"a\xff")], Some(r"a\xff"));
}

#[test]
fn long_values_are_shortened_as_on_every_wire() {
    let long = "x".repeat(9_000);
    let expected = attribute_text::text(long.as_bytes());
    assert!(expected.len() <= 4096 && expected.contains("…sha256:"));
    check(&[header("x-api-key")], "/", &[("x-api-key", long.as_bytes())], Some(&expected));
    check(&[AttributeSource::Query("k".into())], &format!("/?k={long}"), &[], Some(&expected));
}

#[test]
fn the_first_source_with_a_value_counts() {
    let sources = [header("x-api-key"), AttributeSource::Query("key".into()), AttributeSource::Cookie("key".into())];
    check(&sources, "/?key=b", &[("x-api-key", b"a"), ("cookie", b"key=c")], Some("a"));
    check(&sources, "/?key=b", &[("x-api-key", b""), ("cookie", b"key=c")], Some("b"));
    check(&sources, "/?key=", &[("cookie", b"key=c")], Some("c"));
    check(&sources, "/", &[], None);
}

#[test]
fn query_parameters_are_decoded() {
    let sources = [AttributeSource::Query("api key".into())];
    check(&sources, "/x?a=1&api+key=b%20c%2B", &[], Some("b c+"));
    check(&sources, "/x?api%20key=%ff", &[], Some(r"\xff"));
    check(&sources, "/x", &[], None);
}

#[test]
fn cookies_are_read_from_all_fields() {
    let sources = [AttributeSource::Cookie("sid".into())];
    check(&sources, "/", &[("cookie", b"a=1; sid=x; b=2")], Some("x"));
    check(&sources, "/", &[("cookie", b"a=1"), ("cookie", b"b=2"), ("cookie", b"sid=x")], Some("x"));
    check(&sources, "/", &[("cookie", b"sid=x; sid=x"), ("cookie", b"sid=x")], Some("x"));
    check(&sources, "/", &[("cookie", br#"sid="x""#)], Some("x"));
    check(&sources, "/", &[("cookie", br#"sid=""#)], Some("\""));
    check(&sources, "/", &[("cookie", b";;sid;=;sid = a=b ;")], Some("a=b"));
    check(&sources, "/", &[("cookie", b"SID=x; xsid=y")], None);
    check(&sources, "/", &[("cookie", b"sid=")], None);
}

#[test]
fn bearer_tokens_are_digests() {
    let sources = [AttributeSource::Bearer];
    let digest = Some("sha256:9f86d081884c7d659a2feaa0c55ad015");
    check(&sources, "/", &[("authorization", b"Bearer test")], digest);
    check(&sources, "/", &[("authorization", b"bEARER   test ")], digest);
    for bad in ["test", "Basic test", "Bearer", "Bearer ", "Bearertest"] {
        check(&sources, "/", &[("authorization", bad.as_bytes())], None);
    }
}

#[test]
fn a_source_with_two_values_is_ambiguous() {
    let two = [header("x-api-key"), AttributeSource::Query("key".into()), AttributeSource::Cookie("key".into())];
    let token = TestIssuer::new(TokenSource::Bearer).attributes().remove(0).sources;
    type Row<'r> = (&'r [AttributeSource], &'r str, &'r [(&'r str, &'r [u8])], &'r str);
    let rows: &[Row<'_>] = &[
        (&two, "/", &[("x-api-key", b"ada"), ("x-api-key", b"eve")], "header `x-api-key`"),
        (&two, "/", &[("x-api-key", b""), ("x-api-key", b"eve")], "header `x-api-key`"),
        (&two, "/?key=a&key=b", &[], "query parameter `key`"),
        (&two, "/?key=&%6bey=b", &[], "query parameter `key`"),
        (&two, "/", &[("cookie", b"key=a; key=b")], "cookie `key`"),
        (&two, "/", &[("cookie", b"key=a"), ("cookie", b"key=b")], "cookie `key`"),
        (
            &[AttributeSource::Bearer],
            "/",
            &[("authorization", b"Bearer a"), ("authorization", b"Bearer b")],
            "`authorization`",
        ),
        (
            &[AttributeSource::Bearer],
            "/",
            &[("authorization", b"Basic a"), ("authorization", b"Bearer b")],
            "`authorization`",
        ),
        (&token, "/", &[("authorization", b"Bearer a"), ("authorization", b"Bearer b")], "`authorization`"),
    ];
    for (sources, uri, headers, what) in rows {
        let (parts, connection, identity) =
            (parts(uri, headers), ConnectionFacts::default(), identity(sources.to_vec()));
        let source = identity.read(&parts, &[], &connection, NOW).unwrap_err();
        assert!(source.to_string().contains(what), "{uri} {headers:?}: {source}");
    }
    // What is not read does not matter.
    check(&two, "/?key=a&key=b", &[("x-api-key", b"c"), ("cookie", b"key=a; key=b")], Some("c"));
}

#[test]
fn fields_that_applications_mistake_for_credentials_are_removed() {
    let left = |sources: Vec<AttributeSource>, names: &[&'static str]| {
        let mut headers = HeaderMap::new();
        names.iter().for_each(|name| drop(headers.insert(*name, http::HeaderValue::from_static("v"))));
        let marks = FieldMarks::of(&headers);
        identity(sources).remove_lookalikes(&mut headers, marks);
        let mut left: Vec<_> = headers.keys().map(|name| name.as_str().to_owned()).collect();
        left.sort();
        left.join(" ")
    };
    let names = ["x-api-key", "x_api_key", "x-api_key", "x_other"];
    assert_eq!(left(vec![header("x-api-key")], &names), "x-api-key x_other");
    assert_eq!(left(vec![header("x_api_key")], &names), "x_api_key x_other");
    assert_eq!(left(vec![header("host")], &names), "x-api-key x-api_key x_api_key x_other");
    assert_eq!(left(vec![AttributeSource::Bearer], &names), "x-api-key x-api_key x_api_key x_other");
    let token = TestIssuer::new(TokenSource::Header(HeaderName::from_static("x-token")));
    let sources = token.attributes().remove(0).sources;
    assert_eq!(left(sources, &["x-token", "x_token"]), "x-token");
}

#[test]
fn path_parameters_and_certificates_are_read() {
    let attribute = |name: &str, source| AttributeConfig { name: name.into(), sources: vec![source] };
    let identity = Identity::new(
        &[
            attribute("tenant", AttributeSource::PathParameter("tenant".into())),
            attribute("san", AttributeSource::Certificate(CertificateField::San)),
            attribute("subject", AttributeSource::Certificate(CertificateField::Subject)),
            attribute("fingerprint", AttributeSource::Certificate(CertificateField::Fingerprint)),
            attribute("program", AttributeSource::TlsFingerprint),
        ],
        &[],
    );
    let parts = parts("/t/acme", &[]);
    let certified = ConnectionFacts {
        certificate_san: Some("client.example".into()),
        certificate_subject: Some("CN=ada,O=Example".into()),
        certificate_fingerprint: Some("ab12".into()),
        tls_fingerprint: Some("t13d1516h2_8daaf6152771_e5627efa2ab1".into()),
        ..ConnectionFacts::default()
    };
    let values = identity.read(&parts, &[("id", "7"), ("tenant", "acme")], &certified, NOW).unwrap();
    let all: Vec<_> = values.iter().collect();
    let program = ("program", "t13d1516h2_8daaf6152771_e5627efa2ab1");
    assert_eq!(
        all,
        [
            ("tenant", "acme"),
            ("san", "client.example"),
            ("subject", "CN=ada,O=Example"),
            ("fingerprint", "ab12"),
            program
        ]
    );
    let plain = ConnectionFacts::default();
    assert_eq!(identity.read(&parts, &[], &plain, NOW).unwrap(), IdentityValues::default());
}

#[test]
fn the_first_missing_attribute_is_named() {
    let identity = identity(vec![header("x-api-key")]);
    let (with, without) = (parts("/", &[("x-api-key", b"a")]), parts("/", &[]));
    let connection = ConnectionFacts::default();
    let require = ["caller".to_owned(), "tier".to_owned()];
    let values = identity.read(&with, &[], &connection, NOW).unwrap();
    assert_eq!(identity.missing(&require[..1], &values), None);
    assert_eq!(identity.missing(&require, &values), Some("tier"));
    let values = identity.read(&without, &[], &connection, NOW).unwrap();
    assert_eq!(identity.missing(&require, &values), Some("caller"));
    assert_eq!(identity.missing(&[], &values), None);
}

// === Tokens ===

struct TestIssuer {
    key: Ed25519KeyPair,
    config: Arc<IssuerConfig>,
}

impl TestIssuer {
    fn new(token: TokenSource) -> TestIssuer {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let config = IssuerConfig {
            keys: KeySource::File("jwks.json".into()),
            issuer: None,
            audience: None,
            token,
            leeway: Duration::ZERO,
        };
        TestIssuer { key: Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap(), config: Arc::new(config) }
    }

    fn keys(&self) -> KeySet {
        let x = encode(self.key.public_key().as_ref());
        let set = format!(r#"{{"keys": [{{"kty": "OKP", "crv": "Ed25519", "x": "{x}"}}]}}"#);
        KeySet::parse(set.as_bytes()).unwrap().0
    }

    fn token(&self, claims: &str) -> String {
        let message = format!("{}.{}", encode(br#"{"alg":"EdDSA"}"#), encode(claims.as_bytes()));
        let signature = encode(self.key.sign(message.as_bytes()).as_ref());
        format!("{message}.{signature}")
    }

    fn attributes(&self) -> Vec<AttributeConfig> {
        let claim = |name: &str, claim: &str| AttributeConfig {
            name: name.into(),
            sources: vec![AttributeSource::JwtClaim { claim: claim.into(), issuer: Arc::clone(&self.config) }],
        };
        vec![claim("customer", "sub"), claim("tier", "plan")]
    }
}

fn encode(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

const GOOD: &str = r#"{"exp": 1900000000, "sub": "ada", "plan": "pro"}"#;

#[test]
fn claims_of_verified_tokens_are_attributes() {
    let issuer = TestIssuer::new(TokenSource::Bearer);
    let identity = Identity::new(&issuer.attributes(), &[]);
    let [verifier] = identity.verifiers() else { panic!("one issuer has one verifier") };
    let value = format!("Bearer {}", issuer.token(GOOD));
    let parts = parts("/", &[("authorization", value.as_bytes())]);
    let connection = ConnectionFacts::default();
    assert_eq!(identity.read(&parts, &[], &connection, NOW).unwrap().iter().count(), 0);
    verifier.set_keys(issuer.keys());
    let values = identity.read(&parts, &[], &connection, NOW).unwrap();
    assert_eq!(values.iter().collect::<Vec<_>>(), [("customer", "ada"), ("tier", "pro")]);
    let later = Timestamp::from_secs(1_900_000_000);
    assert_eq!(identity.read(&parts, &[], &connection, later).unwrap().iter().count(), 0);
    verifier.set_keys(TestIssuer::new(TokenSource::Bearer).keys());
    assert_eq!(identity.read(&parts, &[], &connection, NOW).unwrap().iter().count(), 0);
}

#[test]
fn tokens_are_found_in_headers_and_cookies() {
    for source in [TokenSource::Header(HeaderName::from_static("x-token")), TokenSource::Cookie("token".into())] {
        let issuer = TestIssuer::new(source.clone());
        let identity = Identity::new(&issuer.attributes(), &[]);
        identity.verifiers()[0].set_keys(issuer.keys());
        let token = issuer.token(GOOD);
        let cookie = format!("a=b; token={token}");
        let found: &[(&str, &[u8])] = match source {
            TokenSource::Cookie(_) => &[("cookie", cookie.as_bytes())],
            _ => &[("x-token", token.as_bytes())],
        };
        let connection = ConnectionFacts::default();
        let found = parts("/", found);
        assert_eq!(identity.read(&found, &[], &connection, NOW).unwrap().get("customer"), Some("ada"));
        let elsewhere = parts("/", &[("authorization", format!("Bearer {token}").as_bytes())]);
        assert_eq!(identity.read(&elsewhere, &[], &connection, NOW).unwrap().get("customer"), None);
    }
}

#[test]
fn verifiers_of_an_earlier_configuration_are_used_again() {
    let issuer = TestIssuer::new(TokenSource::Bearer);
    let first = Identity::new(&issuer.attributes(), &[]);
    first.verifiers()[0].set_keys(issuer.keys());
    let same = Identity::new(&issuer.attributes(), first.verifiers());
    assert!(same.verifiers()[0].has_keys());
    let fewer = Identity::new(&issuer.attributes()[..1], first.verifiers());
    assert!(fewer.verifiers()[0].has_keys(), "it reads other claims of the same issuer's tokens");
    fewer.verifiers()[0].set_keys(KeySet::default());
    assert!(!first.verifiers()[0].has_keys(), "the keys are those of the source");
    let elsewhere = IssuerConfig { keys: KeySource::File("other.json".into()), ..(*issuer.config).clone() };
    let other = TestIssuer { config: Arc::new(elsewhere), key: issuer.key };
    assert!(!Identity::new(&other.attributes(), same.verifiers()).verifiers()[0].has_keys());
}

// === Headers to upstreams ===

#[test]
fn header_values_are_visible_ascii() {
    let rows = [
        ("", ""),
        ("ada-7_x@example.com", "ada-7_x@example.com"),
        ("a b", "a%20b"),
        ("100%", "100%25"),
        ("a\r\nX-Admin: 1", "a%0D%0AX-Admin:%201"),
        ("\0\x7f", "%00%7F"),
        ("é", "%C3%A9"),
    ];
    for (text, expected) in rows {
        assert_eq!(header_value(text).to_str().unwrap(), expected, "{text:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// No value ends a header field or begins another one, and different values stay different.
    #[test]
    fn no_value_leaves_its_header(text in any::<String>(), repeat in 1_usize..60) {
        let text = text.repeat(repeat);
        let value = header_value(&text);
        prop_assert!(value.as_bytes().iter().all(u8::is_ascii_graphic));
        prop_assert!(value.len() <= header_value::MAX_HEADER_BYTES);
        if text.len() <= 400 {
            let encoded = value.to_str().unwrap().replace('&', "%26").replace('+', "%2B");
            let decoded = query::parameter(format!("v={encoded}").as_bytes(), "v").unwrap().map(Cow::into_owned);
            prop_assert_eq!(decoded.as_deref(), Some(text.as_bytes()));
        }
    }

    #[test]
    fn no_request_makes_it_stumble(
        value in proptest::collection::vec(prop_oneof![b' '..=b'~', 0x80..=u8::MAX], 0..60),
        query in "[a-z%+=&0-9]{0,40}",
    ) {
        let issuer = TestIssuer::new(TokenSource::Bearer);
        let mut attributes = issuer.attributes();
        let sources = vec![AttributeSource::Cookie("a".into()), AttributeSource::Query("a".into()), AttributeSource::Bearer];
        attributes.push(AttributeConfig { name: "caller".into(), sources });
        let identity = Identity::new(&attributes, &[]);
        identity.verifiers()[0].set_keys(issuer.keys());
        let bearer = [b"Bearer ", &*value].concat();
        let parts = parts(&format!("/?{query}"), &[("cookie", &value), ("authorization", &bearer)]);
        let connection = ConnectionFacts::default();
        // Two parameters or cookies `a` are ambiguous.
        if let Ok(values) = identity.read(&parts, &[], &connection, NOW) {
            prop_assert_eq!(values.get("customer"), None);
        }
    }
}
