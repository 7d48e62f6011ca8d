//! Makes keys and signs tokens. RSA keys can't be generated with ring: `tests/files/rsa-2048.p8` is one for these
//! tests.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    self, ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING,
    EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RsaEncoding, RsaKeyPair, RsaPublicKeyComponents,
};
use serde_json::{Value, json};

pub(super) enum Signer {
    Rsa(RsaKeyPair, &'static dyn RsaEncoding),
    Ecdsa(EcdsaKeyPair, &'static str),
    Ed25519(Ed25519KeyPair),
    /// Signs as somebody who takes a public key for a symmetric one.
    Symmetric(hmac::Key),
}

pub(super) fn components(key: &RsaKeyPair) -> RsaPublicKeyComponents<Vec<u8>> {
    key.public().into()
}

pub(super) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Signer {
    pub(super) fn rsa(encoding: &'static dyn RsaEncoding) -> Signer {
        let key = include_bytes!("../../../tests/files/rsa-2048.p8");
        Signer::Rsa(RsaKeyPair::from_pkcs8(key).unwrap(), encoding)
    }

    pub(super) fn rs256() -> Signer {
        Signer::rsa(&signature::RSA_PKCS1_SHA256)
    }

    pub(super) fn es256() -> Signer {
        Signer::ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256")
    }

    /// Signatures in the form that certificates have.
    pub(super) fn es256_der() -> Signer {
        Signer::ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING, "P-256")
    }

    pub(super) fn es384() -> Signer {
        Signer::ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING, "P-384")
    }

    fn ecdsa(algorithm: &'static EcdsaSigningAlgorithm, curve: &'static str) -> Signer {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Signer::Ecdsa(EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap(), curve)
    }

    pub(super) fn ed25519() -> Signer {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Signer::Ed25519(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap())
    }

    pub(super) fn symmetric(secret: &[u8]) -> Signer {
        Signer::Symmetric(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The public key as the issuer publishes it.
    pub(super) fn jwk(&self, id: &str) -> Value {
        match self {
            Signer::Rsa(key, _) => {
                let RsaPublicKeyComponents { n, e } = components(key);
                json!({"kty": "RSA", "kid": id, "n": encode(n), "e": encode(e)})
            }
            Signer::Ecdsa(key, curve) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at((key.public_key().as_ref().len() - 1) / 2);
                json!({"kty": "EC", "kid": id, "crv": curve, "x": encode(x), "y": encode(y)})
            }
            Signer::Ed25519(key) => json!({"kty": "OKP", "kid": id, "crv": "Ed25519", "x": encode(key.public_key())}),
            Signer::Symmetric(_) => json!({"kty": "oct", "kid": id, "k": encode("secret")}),
        }
    }

    pub(super) fn sign(&self, header: &Value, claims: &Value) -> String {
        self.sign_text(&header.to_string(), &claims.to_string())
    }

    pub(super) fn sign_text(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", encode(header), encode(claims));
        let random = SystemRandom::new();
        let signature = match self {
            Signer::Rsa(key, encoding) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(*encoding, &random, message.as_bytes(), &mut signature).unwrap();
                signature
            }
            Signer::Ecdsa(key, _) => key.sign(&random, message.as_bytes()).unwrap().as_ref().to_vec(),
            Signer::Ed25519(key) => key.sign(message.as_bytes()).as_ref().to_vec(),
            Signer::Symmetric(key) => hmac::sign(key, message.as_bytes()).as_ref().to_vec(),
        };
        format!("{message}.{}", encode(signature))
    }
}
