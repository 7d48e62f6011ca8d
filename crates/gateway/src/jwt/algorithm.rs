//! Algorithms of signatures, and the public keys that they are verified with.

use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};

/// The algorithm that a token names. There is no `none`, and nothing symmetric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignatureAlgorithm {
    Rsa(RsaAlgorithm),
    Es256,
    Es384,
    EdDsa,
}

/// The algorithms of RSA keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RsaAlgorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
}

/// A public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PublicKey {
    /// The modulus and the exponent, big-endian, without zeros in front.
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// The uncompressed points of the curves.
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl SignatureAlgorithm {
    /// From the `alg` of a token or a key.
    pub(super) fn parse(name: &str) -> Option<SignatureAlgorithm> {
        Some(match name {
            "RS256" => SignatureAlgorithm::Rsa(RsaAlgorithm::Rs256),
            "RS384" => SignatureAlgorithm::Rsa(RsaAlgorithm::Rs384),
            "RS512" => SignatureAlgorithm::Rsa(RsaAlgorithm::Rs512),
            "PS256" => SignatureAlgorithm::Rsa(RsaAlgorithm::Ps256),
            "PS384" => SignatureAlgorithm::Rsa(RsaAlgorithm::Ps384),
            "PS512" => SignatureAlgorithm::Rsa(RsaAlgorithm::Ps512),
            "ES256" => SignatureAlgorithm::Es256,
            "ES384" => SignatureAlgorithm::Es384,
            // RFC 9864 gives it the name of its curve.
            "EdDSA" | "Ed25519" => SignatureAlgorithm::EdDsa,
            _ => return None,
        })
    }
}

impl RsaAlgorithm {
    fn parameters(self) -> &'static RsaParameters {
        match self {
            RsaAlgorithm::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
            RsaAlgorithm::Rs384 => &RSA_PKCS1_2048_8192_SHA384,
            RsaAlgorithm::Rs512 => &RSA_PKCS1_2048_8192_SHA512,
            RsaAlgorithm::Ps256 => &RSA_PSS_2048_8192_SHA256,
            RsaAlgorithm::Ps384 => &RSA_PSS_2048_8192_SHA384,
            RsaAlgorithm::Ps512 => &RSA_PSS_2048_8192_SHA512,
        }
    }
}

impl PublicKey {
    /// Whether signatures of this algorithm can be verified with the key.
    pub(super) fn allows(&self, algorithm: SignatureAlgorithm) -> bool {
        matches!(
            (self, algorithm),
            (PublicKey::Rsa { .. }, SignatureAlgorithm::Rsa(_))
                | (PublicKey::P256(_), SignatureAlgorithm::Es256)
                | (PublicKey::P384(_), SignatureAlgorithm::Es384)
                | (PublicKey::Ed25519(_), SignatureAlgorithm::EdDsa)
        )
    }

    /// Whether the signature of a message is that of the key's owner.
    pub(super) fn verify(&self, algorithm: SignatureAlgorithm, message: &[u8], signature: &[u8]) -> bool {
        let plain = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key).verify(message, signature).is_ok()
        };
        match (self, algorithm) {
            (PublicKey::Rsa { modulus, exponent }, SignatureAlgorithm::Rsa(algorithm)) => {
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                key.verify(algorithm.parameters(), message, signature).is_ok()
            }
            (PublicKey::P256(point), SignatureAlgorithm::Es256) => plain(&ECDSA_P256_SHA256_FIXED, point),
            (PublicKey::P384(point), SignatureAlgorithm::Es384) => plain(&ECDSA_P384_SHA384_FIXED, point),
            (PublicKey::Ed25519(point), SignatureAlgorithm::EdDsa) => plain(&ED25519, point),
            _ => false,
        }
    }
}
