//! Which tokens are accepted, and what is read from them.

use proptest::prelude::*;
use ring::signature as s;

use super::*;
use signer::encode;

#[test]
fn every_algorithm_verifies() {
    let rows: [(&str, Signer); 9] = [
        ("RS256", Signer::rsa(&s::RSA_PKCS1_SHA256)),
        ("RS384", Signer::rsa(&s::RSA_PKCS1_SHA384)),
        ("RS512", Signer::rsa(&s::RSA_PKCS1_SHA512)),
        ("PS256", Signer::rsa(&s::RSA_PSS_SHA256)),
        ("PS384", Signer::rsa(&s::RSA_PSS_SHA384)),
        ("PS512", Signer::rsa(&s::RSA_PSS_SHA512)),
        ("ES256", Signer::es256()),
        ("ES384", Signer::es384()),
        ("EdDSA", Signer::ed25519()),
    ];
    for (algorithm, signer) in &rows {
        let verifier = verifier(&[signer.jwk("a")]);
        for header in [json!({"alg": algorithm, "kid": "a", "typ": "JWT"}), json!({"alg": algorithm})] {
            assert_eq!(subject(&verifier, &signer.sign(&header, &claims())), Ok("ada".into()), "{header}");
        }
        // Signed in one way, and said to be signed in another.
        for (other, _) in rows.iter().filter(|(other, _)| other != algorithm) {
            let token = signer.sign(&json!({"alg": other}), &claims());
            assert!(subject(&verifier, &token).is_err(), "{algorithm} as {other}");
        }
    }
}

#[test]
fn algorithms_that_no_key_has_are_refused() {
    let signer = Signer::rs256();
    let verifier = verifier(&[signer.jwk("a")]);
    let public = signer.jwk("a");
    let Signer::Rsa(pair, _) = &signer else { unreachable!() };
    let modulus = signer::components(pair).n;
    for secret in [public.to_string().into_bytes(), modulus, pair.public().as_ref().to_vec()] {
        let token = Signer::symmetric(&secret).sign(&json!({"alg": "HS256", "kid": "a"}), &claims());
        assert_eq!(subject(&verifier, &token), Err(TokenFault::Algorithm));
        let token = Signer::symmetric(&secret).sign(&json!({"alg": "RS256", "kid": "a"}), &claims());
        assert_eq!(subject(&verifier, &token), Err(TokenFault::Signature));
    }
    for name in ["none", "None", "nOnE", "", "HS512", "ES256K", "RSA1_5", "rs256"] {
        let header = json!({"alg": name, "kid": "a"});
        assert_eq!(subject(&verifier, &signer.sign(&header, &claims())), Err(TokenFault::Algorithm), "{name}");
        let unsigned = format!("{}.{}.", encode(header.to_string()), encode(claims().to_string()));
        assert_eq!(subject(&verifier, &unsigned), Err(TokenFault::Algorithm), "{name}");
    }
}

#[test]
fn the_key_id_selects() {
    let (first, second) = (Signer::es256(), Signer::es256());
    let verifier = verifier(&[first.jwk("first"), second.jwk("second")]);
    let sign = |id: Value| second.sign(&json!({"alg": "ES256", "kid": id}), &claims());
    assert_eq!(subject(&verifier, &sign(json!("second"))), Ok("ada".into()));
    assert_eq!(subject(&verifier, &sign(json!("first"))), Err(TokenFault::Signature));
    assert_eq!(subject(&verifier, &sign(json!("third"))), Err(TokenFault::UnknownKey));
    assert_eq!(subject(&verifier, &sign(json!(1))), Err(TokenFault::Malformed));
    assert_eq!(subject(&verifier, &second.sign(&json!({"alg": "ES256"}), &claims())), Ok("ada".into()));
}

#[test]
fn without_a_key_id_few_keys_are_tried() {
    let signers: Vec<_> = (0..9).map(|_| Signer::ed25519()).collect();
    let keys: Vec<_> = signers.iter().enumerate().map(|(n, signer)| signer.jwk(&n.to_string())).collect();
    let verifier = verifier(&keys);
    let token = |n: usize| signers[n].sign(&json!({"alg": "EdDSA"}), &claims());
    assert_eq!(subject(&verifier, &token(7)), Ok("ada".into()));
    assert_eq!(subject(&verifier, &token(8)), Err(TokenFault::Signature));
}

#[test]
fn a_key_with_an_algorithm_allows_no_other() {
    let signer = Signer::rsa(&s::RSA_PSS_SHA256);
    let mut key = signer.jwk("a");
    key["alg"] = json!("RS256");
    let token = signer.sign(&json!({"alg": "PS256", "kid": "a"}), &claims());
    assert_eq!(subject(&verifier(&[key]), &token), Err(TokenFault::UnknownKey));
}

#[test]
fn claims_are_checked() {
    let signer = Signer::ed25519();
    let verifier = verifier(&[signer.jwk("a")]);
    let rows = [
        (json!({}), Ok(())),
        (json!({"exp": null}), Err(TokenFault::Endless)),
        (json!({"exp": "soon"}), Err(TokenFault::Malformed)),
        (json!({"exp": -1}), Err(TokenFault::Malformed)),
        (json!({"exp": 1e300}), Err(TokenFault::Malformed)),
        (json!({"exp": NOW - 29}), Ok(())),
        (json!({"exp": NOW - 30}), Err(TokenFault::Expired)),
        (json!({"exp": (NOW + 60) as f64 + 0.5}), Ok(())),
        (json!({"exp": u64::MAX}), Ok(())),
        (json!({"nbf": NOW + 30}), Ok(())),
        (json!({"nbf": NOW + 31}), Err(TokenFault::NotYetValid)),
        (json!({"nbf": true}), Err(TokenFault::Malformed)),
        (json!({"nbf": null, "iat": null}), Ok(())),
        (json!({"iat": NOW + 300}), Ok(())),
        (json!({"iat": NOW + 331}), Err(TokenFault::NotYetValid)),
        (json!({"iss": "https://id.example/"}), Err(TokenFault::Issuer)),
        (json!({"iss": ["https://id.example"]}), Err(TokenFault::Issuer)),
        (json!({"iss": null}), Err(TokenFault::Issuer)),
        (json!({"aud": "api"}), Ok(())),
        (json!({"aud": "apis"}), Err(TokenFault::Audience)),
        (json!({"aud": ["x", "y"]}), Err(TokenFault::Audience)),
        (json!({"aud": {"api": 1}}), Err(TokenFault::Audience)),
        (json!({"aud": null}), Err(TokenFault::Audience)),
    ];
    for (changes, expected) in rows {
        let token = signer.sign(&json!({"alg": "EdDSA"}), &claims_with(changes.clone()));
        assert_eq!(subject(&verifier, &token).map(|_| ()), expected, "{changes}");
    }
}

#[test]
fn an_issuer_without_demands_accepts_any() {
    let signer = Signer::ed25519();
    let config = IssuerConfig { issuer: None, audience: None, ..config() };
    let verifier = Verifier::new(Arc::new(config), vec![ClaimPath::new("sub")]);
    let token = signer.sign(&json!({"alg": "EdDSA"}), &claims_with(json!({"iss": null, "aud": "x"})));
    assert_eq!(subject(&verifier, &token), Err(TokenFault::UnknownKey));
    assert!(!verifier.has_keys());
    verifier.set_keys(key_set(&[signer.jwk("a")]));
    assert_eq!(subject(&verifier, &token), Ok("ada".into()));
}

#[test]
fn claims_are_read_by_name_or_path() {
    let signer = Signer::ed25519();
    let rows = [
        ("sub", Some("ada")),
        ("level", Some("3")),
        ("beta", Some("true")),
        ("realm.roles.main", Some("admin")),
        ("https://example.com/plan", Some("gold")),
        ("realm", None),
        ("list", None),
        ("empty", None),
        ("nothing", None),
        ("sub.x", None),
        ("", None),
    ];
    let verifier = verifier_of(&[signer.jwk("a")], &rows.map(|(path, _)| path));
    let token = signer.sign(&json!({"alg": "EdDSA"}), &claims());
    let read = verifier.verify(&token, Timestamp::from_secs(NOW)).unwrap();
    for (index, (path, expected)) in rows.into_iter().enumerate() {
        assert_eq!(read.get(index), expected, "{path}");
    }
}

#[test]
fn forged_and_broken_tokens_are_refused() {
    let signer = Signer::es256();
    let verifier = verifier(&[signer.jwk("a")]);
    let header = json!({"alg": "ES256", "kid": "a"});
    let good = signer.sign(&header, &claims());
    assert_eq!(subject(&verifier, &good), Ok("ada".into()));
    let parts: Vec<&str> = good.split('.').collect();
    let eve = encode(claims_with(json!({"sub": "eve"})).to_string());
    let rows = [
        (format!("{}.{eve}.{}", parts[0], parts[2]), TokenFault::Signature),
        (format!("{}.{}.", parts[0], parts[1]), TokenFault::Signature),
        (format!("{good}A"), TokenFault::Signature),
        (format!("{good}="), TokenFault::Malformed),
        (format!("{good}.{}", parts[2]), TokenFault::Malformed),
        (good.replace('.', ".."), TokenFault::Malformed),
        (format!("{}.{}", parts[0], parts[1]), TokenFault::Malformed),
        (String::new(), TokenFault::Malformed),
        ("..".to_owned(), TokenFault::Malformed),
        (format!(" {good}"), TokenFault::Malformed),
        ("a".repeat(1 << 20), TokenFault::TooLong),
        (signer.sign(&json!({"alg": "ES256", "crit": ["exp"]}), &claims()), TokenFault::Critical),
        (signer.sign(&json!({"alg": "ES256", "crit": []}), &claims()), TokenFault::Critical),
        (signer.sign(&json!({"alg": ["ES256"]}), &claims()), TokenFault::Malformed),
        (signer.sign(&json!({"kid": "a"}), &claims()), TokenFault::Malformed),
        (signer.sign_text(r#"{"alg":"ES256","alg":"ES256"}"#, &claims().to_string()), TokenFault::Malformed),
        (signer.sign_text(&header.to_string(), r#"{"exp":9999999999,"sub":"a","sub":"b"}"#), TokenFault::Malformed),
        (
            signer.sign_text(&header.to_string(), r#"{"exp":9999999999,"x":[{"a":1,"\u0061":2}]}"#),
            TokenFault::Malformed,
        ),
        (signer.sign_text(&header.to_string(), &"[".repeat(4000)), TokenFault::Malformed),
        (signer.sign_text(&header.to_string(), "[]"), TokenFault::Malformed),
        (signer.sign_text(&header.to_string(), "{} {}"), TokenFault::Malformed),
    ];
    for (token, expected) in rows {
        assert_eq!(subject(&verifier, &token), Err(expected), "{:.200}", token);
    }
    for end in 0..good.len() {
        assert!(subject(&verifier, &good[..end]).is_err(), "{end}");
    }
}

#[test]
fn signatures_in_der_are_refused() {
    let signer = Signer::es256_der();
    let token = signer.sign(&json!({"alg": "ES256", "kid": "a"}), &claims());
    assert_eq!(subject(&verifier(&[signer.jwk("a")]), &token), Err(TokenFault::Signature));
}

#[test]
fn verified_tokens_are_remembered_until_they_expire() {
    let signer = Signer::ed25519();
    let verifier = verifier(&[signer.jwk("a")]);
    let token = signer.sign(&json!({"alg": "EdDSA"}), &claims_with(json!({"exp": NOW + 60})));
    let verify = |at: u64| verifier.verify(&token, Timestamp::from_secs(at)).map(|_| ());
    assert_eq!(verify(NOW), Ok(()));
    assert_eq!(verifier.cached(), 1);
    assert_eq!(verify(NOW + 89), Ok(()));
    assert_eq!(verify(NOW + 90), Err(TokenFault::Expired));
    // Refused tokens are not remembered.
    let _ = verifier.verify(&format!("{token}A"), Timestamp::from_secs(NOW));
    assert_eq!(verifier.cached(), 1);
}

#[test]
fn other_keys_empty_the_cache() {
    let (first, second) = (Signer::ed25519(), Signer::ed25519());
    let verifier = verifier(&[first.jwk("a")]);
    let token = first.sign(&json!({"alg": "EdDSA"}), &claims());
    assert_eq!(subject(&verifier, &token), Ok("ada".into()));
    verifier.set_keys(key_set(&[second.jwk("b")]));
    assert_eq!(verifier.cached(), 0);
    assert_eq!(subject(&verifier, &token), Err(TokenFault::Signature));
}

#[test]
fn the_cache_is_bounded() {
    let cache = cache::TokenCache::new();
    let signer = Signer::ed25519();
    let verifier = verifier(&[signer.jwk("a")]);
    let token = signer.sign(&json!({"alg": "EdDSA"}), &claims());
    let claims = verifier.verify(&token, Timestamp::from_secs(NOW)).unwrap();
    let used = cache::token_digest("used");
    cache.insert(used, claims.clone(), NOW + 100, NOW);
    for n in 0..3 * cache::MAX_TOKENS {
        cache.insert(cache::token_digest(&n.to_string()), claims.clone(), NOW + 100, NOW);
        assert!(cache.get(&used, NOW).is_some(), "{n}");
    }
    assert!((cache::MAX_TOKENS / 3..=cache::MAX_TOKENS).contains(&cache.len()), "{}", cache.len());
    cache.insert(used, claims, u64::MAX, NOW);
    assert!(cache.get(&used, NOW + 299).is_some());
    assert!(cache.get(&used, NOW + 300).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_token_makes_it_stumble(text in r"\PC{0,80}", header in r#"[{}a-z":,0-9\[\]]{0,40}"#) {
        let verifier = verifier(&[Signer::ed25519().jwk("a")]);
        prop_assert!(subject(&verifier, &text).is_err());
        let token = format!("{}.{}.{}", encode(&header), encode(&text), encode("x"));
        prop_assert!(subject(&verifier, &token).is_err());
    }

    /// Any change of a token's bytes makes it invalid.
    #[test]
    fn a_changed_token_is_refused(at in any::<proptest::sample::Index>(), byte in b'!'..=b'~') {
        let signer = Signer::ed25519();
        let mut token = signer.sign(&json!({"alg": "EdDSA"}), &claims()).into_bytes();
        let at = at.index(token.len());
        prop_assume!(token[at] != byte);
        token[at] = byte;
        prop_assert!(subject(&verifier(&[signer.jwk("a")]), std::str::from_utf8(&token).unwrap()).is_err());
    }
}
