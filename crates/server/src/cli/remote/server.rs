//! Which server is asked, and as whom.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use http::HeaderValue;

use super::Failure;

/// Where, and with what.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(in crate::cli) struct ServerArgs {
    /// Where the admin API answers: http://HOST:PORT, https://HOST:PORT or unix:PATH [or TOLLGATE_SERVER; else http://127.0.0.1:8070]
    #[arg(long, value_name = "URL", global = true)]
    pub(super) server: Option<String>,
    /// Who asks; others on this machine can see it here [rather TOLLGATE_TOKEN]
    #[arg(long, value_name = "TOKEN", global = true)]
    token: Option<Secret>,
    /// A file with the token [or TOLLGATE_TOKEN_FILE]
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
    /// Certificates that an https server is known by [or TOLLGATE_CA]
    #[arg(long, value_name = "FILE", global = true)]
    ca: Option<PathBuf>,
    /// A certificate to show to the server, with --key
    #[arg(long, value_name = "FILE", global = true)]
    pub(super) cert: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", global = true)]
    pub(super) key: Option<PathBuf>,
    /// Write the API's JSON as it is; of lists, one item a line
    #[arg(long, global = true)]
    pub(super) json: bool,
}

/// A text that is never shown.
#[derive(Clone)]
struct Secret(String);

/// Variables that are these commands' own, and no settings of a server.
pub(crate) const VARIABLES: [&str; 4] = [SERVER, TOKEN, TOKEN_FILE, CA];

const SERVER: &str = "TOLLGATE_SERVER";
const TOKEN: &str = "TOLLGATE_TOKEN";
const TOKEN_FILE: &str = "TOLLGATE_TOKEN_FILE";
const CA: &str = "TOLLGATE_CA";

/// Where a server answers that was told nothing else.
const USUAL: &str = "http://127.0.0.1:8070";
/// The longest file with a token.
const LONGEST_TOKEN: u64 = 4096;

impl ServerArgs {
    /// Where the server is.
    pub(super) fn url(&self) -> Result<String, Failure> {
        let told = match &self.server {
            Some(url) => Some(url.clone()),
            None => variable(SERVER)?,
        };
        Ok(told.unwrap_or_else(|| USUAL.to_owned()))
    }

    pub(super) fn ca(&self) -> Option<PathBuf> {
        self.ca.clone().or_else(|| set(CA).map(PathBuf::from))
    }

    /// Who asks. What a flag says is stronger than what a variable says.
    pub(super) fn authorization(&self) -> Result<Option<HeaderValue>, Failure> {
        let token = match (&self.token, &self.token_file) {
            (Some(_), Some(_)) => return Err(Failure::Usage("write either --token or --token-file".to_owned())),
            (Some(Secret(token)), None) => Some(token.clone()),
            (None, Some(file)) => Some(read(file)?),
            (None, None) => match (variable(TOKEN)?, set(TOKEN_FILE)) {
                (Some(token), _) => Some(token),
                (None, Some(file)) => Some(read(Path::new(&file))?),
                (None, None) => None,
            },
        };
        let Some(token) = token else { return Ok(None) };
        let token = token.trim();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Failure::Usage("the token is empty or has characters that no token has".to_owned()));
        }
        let value = HeaderValue::try_from(format!("Bearer {token}"));
        let mut value = value.map_err(|_| Failure::Usage("the token can't be sent".to_owned()))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// A variable that says something.
fn set(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn variable(name: &str) -> Result<Option<String>, Failure> {
    let text = set(name).map(OsString::into_string).transpose();
    text.map_err(|_| Failure::Usage(format!("the value of {name} is not UTF-8")))
}

fn read(file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let opened = File::open(file).and_then(|opened| opened.take(LONGEST_TOKEN).read_to_string(&mut text));
    opened.map_err(|error| Failure::Usage(format!("{} can't be read: {error}", file.display())))?;
    Ok(text)
}

impl FromStr for Secret {
    // Whatever is wrong with it must not be told with it in the sentence.
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Secret, Infallible> {
        Ok(Secret(text.to_owned()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}
