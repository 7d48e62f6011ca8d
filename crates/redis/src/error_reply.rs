//! The meaning of Redis's error replies: which of them prove that a script did not run, and what to do then.

use redis::{ErrorKind, RedisError, ServerError, ServerErrorKind};

use tollgate_redis_address::Node;
use tollgate_store::sharded::Failure;

/// An error reply.
#[derive(Debug)]
pub(super) struct ErrorReply {
    pub(super) remedy: Remedy,
    /// The server's text, cut to a maximum length.
    pub(super) text: String,
}

/// What to do after an error reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// The slot is on that node now.
    Moved { slot: u16, node: Node },
    /// The slot is being migrated to that node: only this claim is sent there.
    Ask(Node),
    /// Load the script and send the claim again.
    Load,
    /// The claim did not run: send it again a little later.
    Wait(ResendReason),
    /// Nothing: the claim may have run, or never will.
    None,
}

/// Why a claim was sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResendReason {
    Moved,
    Ask,
    NoScript,
    TryAgain,
    Loading,
    ReadOnly,
    ClusterDown,
    MasterDown,
    Keys,
}

/// A node of a cluster to a script with a key that is on another node, or on its way there.
const NON_LOCAL_KEY: &str = "Script attempted to access a non local key";
/// The maximum length of an error text, in characters.
const MAX_ERROR_CHARS: usize = 300;

impl ResendReason {
    pub(super) const ALL: [ResendReason; 9] = [
        ResendReason::Moved,
        ResendReason::Ask,
        ResendReason::NoScript,
        ResendReason::TryAgain,
        ResendReason::Loading,
        ResendReason::ReadOnly,
        ResendReason::ClusterDown,
        ResendReason::MasterDown,
        ResendReason::Keys,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            ResendReason::Moved => "moved",
            ResendReason::Ask => "ask",
            ResendReason::NoScript => "noscript",
            ResendReason::TryAgain => "tryagain",
            ResendReason::Loading => "loading",
            ResendReason::ReadOnly => "readonly",
            ResendReason::ClusterDown => "clusterdown",
            ResendReason::MasterDown => "masterdown",
            ResendReason::Keys => "keys",
        }
    }
}

impl Remedy {
    /// The reason under which a resent claim is counted.
    pub(super) fn reason(&self) -> Option<ResendReason> {
        match self {
            Remedy::Moved { .. } => Some(ResendReason::Moved),
            Remedy::Ask(_) => Some(ResendReason::Ask),
            Remedy::Load => Some(ResendReason::NoScript),
            Remedy::Wait(reason) => Some(*reason),
            Remedy::None => None,
        }
    }
}

impl ErrorReply {
    /// Classifies an error reply of a node.
    pub(super) fn new(error: &ServerError, from: &Node) -> ErrorReply {
        let details = error.details().unwrap_or_default();
        let remedy = match error.kind() {
            Some(ServerErrorKind::Moved) => {
                redirect(details, from).map_or(Remedy::None, |(slot, node)| Remedy::Moved { slot, node })
            }
            Some(ServerErrorKind::Ask) => redirect(details, from).map_or(Remedy::None, |(_, node)| Remedy::Ask(node)),
            Some(ServerErrorKind::NoScript) => Remedy::Load,
            Some(ServerErrorKind::TryAgain) => Remedy::Wait(ResendReason::TryAgain),
            Some(ServerErrorKind::BusyLoading) => Remedy::Wait(ResendReason::Loading),
            Some(ServerErrorKind::ReadOnly) => Remedy::Wait(ResendReason::ReadOnly),
            Some(ServerErrorKind::ClusterDown) => Remedy::Wait(ResendReason::ClusterDown),
            Some(ServerErrorKind::MasterDown) => Remedy::Wait(ResendReason::MasterDown),
            // Redis 6 wraps the error of a call within the script. A replica refuses every write, so nothing was
            // written.
            Some(ServerErrorKind::ResponseError)
                if details.starts_with("Error running script") && details.contains(": -READONLY ") =>
            {
                Remedy::Wait(ResendReason::ReadOnly)
            }
            // Every key of a script is declared, so a node that says this has refused to read the first one.
            _ if details.contains(NON_LOCAL_KEY) => Remedy::Wait(ResendReason::TryAgain),
            _ => Remedy::None,
        };
        ErrorReply { remedy, text: cut(format!("{from}: {} {details}", error.code())) }
    }
}

/// Parses `3999 127.0.0.1:6381`. An empty host means the node that replied.
fn redirect(details: &str, from: &Node) -> Option<(u16, Node)> {
    let mut words = details.split_ascii_whitespace();
    let slot = words.next()?.parse().ok()?;
    let (host, port) = words.next()?.rsplit_once(':')?;
    let host = if host.is_empty() { from.host()? } else { host.trim_matches(['[', ']']) };
    Some((slot, Node::tcp(host, port.parse().ok()?)))
}

/// The failure for the callers that wait on a broken connection.
pub(super) fn failure(error: RedisError, from: &Node) -> Failure {
    if error.is_timeout() {
        return Failure::Unreachable(format!("{from}: no answer in time"));
    }
    let answered =
        matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::AuthenticationFailed);
    match ServerError::try_from(error) {
        Ok(error) => Failure::Refused(ErrorReply::new(&error, from).text),
        Err(error) if answered => Failure::Refused(cut(format!("{from}: {error}"))),
        Err(error) => Failure::Unreachable(cut(format!("{from}: {error}"))),
    }
}

/// Cuts a text to the maximum length, on one line.
pub(super) fn cut(text: String) -> String {
    if text.len() <= MAX_ERROR_CHARS && !text.contains(char::is_control) {
        return text;
    }
    text.chars().take(MAX_ERROR_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(line: &str) -> ErrorReply {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        let redis::Value::ServerError(error) = value else { panic!("{line}") };
        ErrorReply::new(&error, &Node::tcp("10.0.0.1", 6379))
    }

    #[test]
    fn only_what_did_not_run_is_sent_again() {
        let rows = [
            ("MOVED 3999 127.0.0.1:6381", Remedy::Moved { slot: 3999, node: Node::tcp("127.0.0.1", 6381) }),
            ("MOVED 3999 ::1:6381", Remedy::Moved { slot: 3999, node: Node::tcp("::1", 6381) }),
            ("MOVED 3999 :6381", Remedy::Moved { slot: 3999, node: Node::tcp("10.0.0.1", 6381) }),
            ("ASK 1 node-2:6381", Remedy::Ask(Node::tcp("node-2", 6381))),
            ("NOSCRIPT No matching script. Please use EVAL.", Remedy::Load),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Remedy::Wait(ResendReason::TryAgain)),
            (
                "ERR Script attempted to access a non local key in a cluster node script: ab, on @user_script:1.",
                Remedy::Wait(ResendReason::TryAgain),
            ),
            (
                "ERR Error running script (call to f_ab): @user_script:1: Script attempted to access a non local key.",
                Remedy::Wait(ResendReason::TryAgain),
            ),
            ("LOADING Redis is loading the dataset in memory", Remedy::Wait(ResendReason::Loading)),
            ("READONLY You can't write against a read only replica.", Remedy::Wait(ResendReason::ReadOnly)),
            (
                "ERR Error running script (call to f_ab): @user_script:1: @user_script: 1: -READONLY You can't write.",
                Remedy::Wait(ResendReason::ReadOnly),
            ),
            ("CLUSTERDOWN Hash slot not served", Remedy::Wait(ResendReason::ClusterDown)),
            ("MASTERDOWN Link with MASTER is down", Remedy::Wait(ResendReason::MasterDown)),
            ("OOM command not allowed when used memory > 'maxmemory'.", Remedy::None),
            ("BUSY Redis is busy running a script.", Remedy::None),
            ("NOPERM this user has no permissions", Remedy::None),
            ("ERR something -READONLY else", Remedy::None),
            ("MOVED", Remedy::None),
            ("MOVED x 127.0.0.1:1", Remedy::None),
            ("MOVED 3999 127.0.0.1:99999", Remedy::None),
            ("ASK 1", Remedy::None),
        ];
        for (line, remedy) in rows {
            assert_eq!(reply(line).remedy, remedy, "{line}");
        }
    }

    #[test]
    fn texts_are_cut() {
        assert_eq!(reply("OOM no").text, "10.0.0.1:6379: OOM no");
        assert_eq!(reply(&format!("ERR {}", "é".repeat(1000))).text.chars().count(), MAX_ERROR_CHARS);
    }
}
