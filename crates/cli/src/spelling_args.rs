//! The spellings of paths and methods that are the same to rules, as the server's HTTP listener reads them.

use std::borrow::Cow;

use clap::{Args, ValueEnum};
use tollgate_http::request_target::PathNormalization;
use tollgate_rules::attribute_text::escaped;

#[derive(Debug, Args)]
pub(super) struct SpellingArgs {
    /// Which spellings of path, method and endpoint are the same, as in the server's setting of this name
    #[arg(long, value_enum, value_name = "WORDS", value_delimiter = ',', default_value = "standard")]
    http_normalize: Vec<Spelling>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Spelling {
    /// Percent-encoding, repeated slashes, dot segments, queries, methods in lower case
    Standard,
    /// /login;x=1 is /login
    MatrixParameters,
    /// /login/ is /login
    TrailingSlash,
    /// /LOGIN is /login
    LowerCase,
    /// All of these
    All,
    /// Everything stays as it was sent, as in descriptors over gRPC
    None,
}

impl SpellingArgs {
    pub(super) fn normalization(&self) -> PathNormalization {
        let has = |spelling| self.http_normalize.iter().any(|one| *one == spelling || *one == Spelling::All);
        PathNormalization {
            // The others build on it.
            standard: self.http_normalize.iter().any(|one| *one != Spelling::None),
            matrix_parameters: has(Spelling::MatrixParameters),
            trailing_slash: has(Spelling::TrailingSlash),
            lower_case: has(Spelling::LowerCase),
        }
    }
}

/// The value of an attribute as rules see it, if it is another one.
pub(super) fn normalized(normalization: PathNormalization, name: &str, value: &str) -> Option<String> {
    let bytes = normalization.attribute(name, value.as_bytes())?;
    Some(match escaped(&bytes) {
        Cow::Borrowed(text) => text.to_owned(),
        Cow::Owned(text) => text,
    })
}
