//! One JSON web key (RFC 7517, 7518, 8037).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::algorithm::{PublicKey, SignatureAlgorithm};

/// A key that signatures can be verified with.
#[derive(Clone, Debug)]
pub(super) struct WebKey {
    pub(super) id: Option<String>,
    /// The only algorithm that it may be used with. `None`: all of its type.
    pub(super) algorithm: Option<SignatureAlgorithm>,
    pub(super) key: PublicKey,
}

const MIN_RSA_BITS: usize = 2048;
const MAX_RSA_BITS: usize = 8192;
const ED25519_BYTES: usize = 32;
/// The longest name of a key. Names are compared with what tokens contain.
const MAX_KEY_ID_BYTES: usize = 512;

impl WebKey {
    /// Whether the key may verify signatures of this algorithm.
    pub(super) fn allows(&self, algorithm: SignatureAlgorithm) -> bool {
        self.key.allows(algorithm) && self.algorithm.is_none_or(|only| only == algorithm)
    }

    /// Reads a key.
    ///
    /// # Errors
    /// Says why it can't be used.
    pub(super) fn parse(members: &Map<String, Value>) -> Result<WebKey, String> {
        let id = key_id(members)?;
        if text(members, "use").is_some_and(|usage| usage != "sig") {
            return Err("its `use` is not `sig`".to_owned());
        }
        if let Some(operations) = members.get("key_ops")
            && !operations.as_array().is_some_and(|list| list.iter().any(|one| one == "verify"))
        {
            return Err("its `key_ops` do not contain `verify`".to_owned());
        }
        let key = match text(members, "kty") {
            Some("RSA") => rsa(members)?,
            Some("EC") => elliptic(members)?,
            Some("OKP") => ed25519(members)?,
            Some("oct") => return Err("it is symmetric: whoever verifies with it can sign".to_owned()),
            _ => return Err("its `kty` is not RSA, EC or OKP".to_owned()),
        };
        let algorithm = match members.get("alg") {
            None => None,
            Some(name) => Some(own_algorithm(name, &key)?),
        };
        Ok(WebKey { id, algorithm, key })
    }
}

fn key_id(members: &Map<String, Value>) -> Result<Option<String>, String> {
    match members.get("kid") {
        None => Ok(None),
        Some(Value::String(id)) if id.len() <= MAX_KEY_ID_BYTES => Ok(Some(id.clone())),
        Some(_) => Err(format!("its `kid` is not a text of at most {MAX_KEY_ID_BYTES} bytes")),
    }
}

fn own_algorithm(name: &Value, key: &PublicKey) -> Result<SignatureAlgorithm, String> {
    let algorithm = name.as_str().and_then(SignatureAlgorithm::parse).ok_or("its `alg` is not supported")?;
    match key.allows(algorithm) {
        true => Ok(algorithm),
        false => Err("its `alg` is not one of its `kty`".to_owned()),
    }
}

fn rsa(members: &Map<String, Value>) -> Result<PublicKey, String> {
    let modulus = without_zeros(bytes(members, "n")?);
    let exponent = without_zeros(bytes(members, "e")?);
    let bits = modulus.len() * 8 - modulus.first().map_or(0, |first| first.leading_zeros() as usize);
    match bits {
        MIN_RSA_BITS..=MAX_RSA_BITS => Ok(PublicKey::Rsa { modulus, exponent }),
        _ => Err(format!("it has {bits} bits, and not {MIN_RSA_BITS} to {MAX_RSA_BITS}")),
    }
}

fn elliptic(members: &Map<String, Value>) -> Result<PublicKey, String> {
    let (size, key): (usize, fn(Vec<u8>) -> PublicKey) = match text(members, "crv") {
        Some("P-256") => (32, PublicKey::P256),
        Some("P-384") => (48, PublicKey::P384),
        _ => return Err("its `crv` is not P-256 or P-384".to_owned()),
    };
    // The first byte marks an uncompressed point.
    let mut point = vec![4];
    for coordinate in ["x", "y"] {
        let number = bytes(members, coordinate)?;
        if number.len() != size {
            return Err(format!("its `{coordinate}` does not have {size} bytes"));
        }
        point.extend(number);
    }
    Ok(key(point))
}

fn ed25519(members: &Map<String, Value>) -> Result<PublicKey, String> {
    if text(members, "crv") != Some("Ed25519") {
        return Err("its `crv` is not Ed25519".to_owned());
    }
    let point = bytes(members, "x")?;
    match point.len() {
        ED25519_BYTES => Ok(PublicKey::Ed25519(point)),
        _ => Err(format!("its `x` does not have {ED25519_BYTES} bytes")),
    }
}

fn text<'m>(members: &'m Map<String, Value>, name: &str) -> Option<&'m str> {
    members.get(name).and_then(Value::as_str)
}

fn bytes(members: &Map<String, Value>, name: &str) -> Result<Vec<u8>, String> {
    let decoded = text(members, name).and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
    decoded.filter(|bytes| !bytes.is_empty()).ok_or_else(|| format!("its `{name}` is not base64url"))
}

/// Some issuers write a number with zeros in front, which the verification does not accept.
fn without_zeros(number: Vec<u8>) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number[zeros..].to_vec()
}
