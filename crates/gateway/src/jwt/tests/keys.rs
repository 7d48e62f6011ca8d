//! Key sets.

use proptest::prelude::*;

use super::*;
use signer::encode;

#[test]
fn keys_that_can_not_be_used_are_skipped_with_a_reason() {
    let good = Signer::es256().jwk("good");
    let with = |changes: Value| {
        let mut key = good.clone();
        key.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        key
    };
    let rows = [
        (json!("key"), "is not an object"),
        (json!({"kty": "oct", "k": "AAAA"}), "symmetric"),
        (json!({"kty": "XYZ"}), "`kty` is not"),
        (with(json!({"use": "enc"})), "`use` is not `sig`"),
        (with(json!({"key_ops": ["sign"]})), "`key_ops` do not contain"),
        (with(json!({"alg": "ES384"})), "not one of its `kty`"),
        (with(json!({"alg": "RS256"})), "not one of its `kty`"),
        (with(json!({"alg": "HS256"})), "not supported"),
        (with(json!({"crv": "secp256k1"})), "not P-256 or P-384"),
        (with(json!({"x": encode([1; 31])})), "does not have 32 bytes"),
        (with(json!({"y": "=="})), "not base64url"),
        (with(json!({"kid": 7})), "`kid` is not a text"),
        (json!({"kty": "OKP", "crv": "X25519", "x": encode([1; 32])}), "not Ed25519"),
        (json!({"kty": "OKP", "crv": "Ed25519", "x": encode([1; 31])}), "32 bytes"),
        (json!({"kty": "RSA", "n": encode([0xff; 128]), "e": "AQAB"}), "it has 1024 bits"),
        (json!({"kty": "RSA", "n": encode([[0x7f; 1], [0xff; 1]].concat().repeat(128)), "e": "AQAB"}), "2047 bits"),
        (json!({"kty": "RSA", "n": encode([0xff; 1025]), "e": "AQAB"}), "8200 bits"),
        (json!({"kty": "RSA", "n": encode([0; 300]), "e": "AQAB"}), "0 bits"),
    ];
    for (key, expected) in rows {
        let set = json!({"keys": [good, key]}).to_string();
        let (keys, skipped) = KeySet::parse(set.as_bytes()).unwrap();
        assert_eq!((keys.len(), skipped.len()), (1, 1), "{key}");
        assert!(skipped[0].to_string().contains(expected), "{}", skipped[0]);
    }
}

#[test]
fn zeros_in_front_of_a_modulus_are_accepted() {
    let signer = Signer::rs256();
    let Signer::Rsa(pair, _) = &signer else { unreachable!() };
    let mut padded = vec![0];
    padded.extend(signer::components(pair).n);
    let mut key = signer.jwk("a");
    key["n"] = json!(encode(padded));
    let token = signer.sign(&json!({"alg": "RS256", "kid": "a"}), &claims());
    assert_eq!(subject(&verifier(&[key]), &token), Ok("ada".into()));
}

#[test]
fn sets_without_a_usable_key_are_refused() {
    let rows = [
        ("", "not a JSON object"),
        ("[]", "not a JSON object"),
        ("{}", "no list `keys`"),
        (r#"{"keys": {}}"#, "no list `keys`"),
        (r#"{"keys": []}"#, "has no key"),
        (r#"{"keys": [], "keys": []}"#, "repeated members"),
        (r#"{"keys": [{"kty": "oct"}]}"#, "no key that can be used: key 0: it is symmetric"),
    ];
    for (text, expected) in rows {
        let error = KeySet::parse(text.as_bytes()).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn sets_are_bounded() {
    let key = Signer::ed25519().jwk("a");
    let (set, skipped) = KeySet::parse(json!({"keys": vec![key; 103]}).to_string().as_bytes()).unwrap();
    assert_eq!((set.len(), skipped.len()), (key_set::MAX_KEYS, 3));
    let long = format!(r#"{{"keys": []{}}}"#, " ".repeat(key_set::MAX_KEY_SET_BYTES));
    assert!(KeySet::parse(long.as_bytes()).unwrap_err().contains("bytes"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_it_stumble(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = KeySet::parse(&bytes);
        let _ = KeySet::parse(&[br#"{"keys":["#, &*bytes, b"]}"].concat());
    }
}
