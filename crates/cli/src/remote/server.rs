//! The options of the server and its token.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use http::HeaderValue;

use super::CommandError;

/// The server and the token.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArgs {
    /// The address of the admin API: http://HOST:PORT, https://HOST:PORT or unix:PATH [or TOLLGATE_SERVER; default: http://127.0.0.1:8070]
    #[arg(long, value_name = "URL", global = true)]
    pub(super) server: Option<String>,
    /// The token; other users of this machine can see it here [better: TOLLGATE_TOKEN]
    #[arg(long, value_name = "TOKEN", global = true)]
    token: Option<TokenArg>,
    /// A file with the token [or TOLLGATE_TOKEN_FILE]
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
    /// The CA certificates of an https server [or TOLLGATE_CA]
    #[arg(long, value_name = "FILE", global = true)]
    ca: Option<PathBuf>,
    /// A client certificate, with --key
    #[arg(long, value_name = "FILE", global = true)]
    pub(super) cert: Option<PathBuf>,
    /// The key of the client certificate
    #[arg(long, value_name = "FILE", global = true)]
    pub(super) key: Option<PathBuf>,
    /// Confirm a change that was held as the plan with this id
    #[arg(long, value_name = "ID", global = true)]
    pub(super) confirm: Option<String>,
    /// Write the API's JSON unchanged; lists with one item per line
    #[arg(long, global = true)]
    pub(super) json: bool,
}

/// A token; `Debug` hides it.
#[derive(Clone)]
struct TokenArg(String);

/// Environment variables of these commands, which are not settings of a server.
pub const ENVIRONMENT_VARIABLES: [&str; 4] = [SERVER, TOKEN, TOKEN_FILE, CA];

const SERVER: &str = "TOLLGATE_SERVER";
const TOKEN: &str = "TOLLGATE_TOKEN";
const TOKEN_FILE: &str = "TOLLGATE_TOKEN_FILE";
const CA: &str = "TOLLGATE_CA";

/// The default address.
const DEFAULT_SERVER: &str = "http://127.0.0.1:8070";
/// The longest token file, in bytes.
const MAX_TOKEN_FILE_BYTES: u64 = 4096;

impl ServerArgs {
    /// The address of the server.
    pub(super) fn url(&self) -> Result<String, CommandError> {
        let url = match &self.server {
            Some(url) => Some(url.clone()),
            None => env_text(SERVER)?,
        };
        Ok(url.unwrap_or_else(|| DEFAULT_SERVER.to_owned()))
    }

    pub(super) fn ca(&self) -> Option<PathBuf> {
        self.ca.clone().or_else(|| env_os(CA).map(PathBuf::from))
    }

    /// The header `Authorization`. Flags override variables.
    pub(super) fn authorization(&self) -> Result<Option<HeaderValue>, CommandError> {
        let token = match (&self.token, &self.token_file) {
            (Some(_), Some(_)) => return Err(CommandError::Usage("write either --token or --token-file".to_owned())),
            (Some(TokenArg(token)), None) => Some(token.clone()),
            (None, Some(file)) => Some(read_token(file)?),
            (None, None) => match (env_text(TOKEN)?, env_os(TOKEN_FILE)) {
                (Some(token), _) => Some(token),
                (None, Some(file)) => Some(read_token(Path::new(&file))?),
                (None, None) => None,
            },
        };
        let Some(token) = token else { return Ok(None) };
        let token = token.trim();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(CommandError::Usage("the token is empty or contains invalid characters".to_owned()));
        }
        let value = HeaderValue::try_from(format!("Bearer {token}"));
        let mut value = value.map_err(|_| CommandError::Usage("the token can't be sent".to_owned()))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// A variable that is not empty.
fn env_os(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn env_text(name: &str) -> Result<Option<String>, CommandError> {
    let text = env_os(name).map(OsString::into_string).transpose();
    text.map_err(|_| CommandError::Usage(format!("the value of {name} is not UTF-8")))
}

fn read_token(file: &Path) -> Result<String, CommandError> {
    let mut text = String::new();
    let opened = File::open(file).and_then(|opened| opened.take(MAX_TOKEN_FILE_BYTES).read_to_string(&mut text));
    opened.map_err(|error| CommandError::Usage(format!("{} can't be read: {error}", file.display())))?;
    Ok(text)
}

impl FromStr for TokenArg {
    // An error message would contain the token.
    type Err = Infallible;

    fn from_str(text: &str) -> Result<TokenArg, Infallible> {
        Ok(TokenArg(text.to_owned()))
    }
}

impl fmt::Debug for TokenArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}
