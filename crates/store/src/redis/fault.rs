//! What Redis's errors mean: which prove that a script did not run, and what to do then.

use redis::{ErrorKind, RedisError, ServerError, ServerErrorKind};

use super::address::Node;
use crate::sharded::Failure;

/// An answer that is an error.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) remedy: Remedy,
    /// The server's words, cut to a bound.
    pub(super) text: String,
}

/// What helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// The slot lives there now.
    Moved { slot: u16, node: Node },
    /// The slot is on its way there: only this claim is asked of that node.
    Ask(Node),
    /// The same again, once the script is loaded.
    Load,
    /// The same again, a little later; it did not run.
    Wait(Reason),
    /// Nothing: it may have run, or never will.
    None,
}

/// Why a claim was sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Moved,
    Ask,
    NoScript,
    TryAgain,
    Loading,
    ReadOnly,
    ClusterDown,
    MasterDown,
}

/// The longest text of an error that is kept.
const LONGEST: usize = 300;

impl Reason {
    pub(super) const ALL: [Reason; 8] = [
        Reason::Moved,
        Reason::Ask,
        Reason::NoScript,
        Reason::TryAgain,
        Reason::Loading,
        Reason::ReadOnly,
        Reason::ClusterDown,
        Reason::MasterDown,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Reason::Moved => "moved",
            Reason::Ask => "ask",
            Reason::NoScript => "noscript",
            Reason::TryAgain => "tryagain",
            Reason::Loading => "loading",
            Reason::ReadOnly => "readonly",
            Reason::ClusterDown => "clusterdown",
            Reason::MasterDown => "masterdown",
        }
    }
}

impl Remedy {
    /// Under which reason it counts that a claim is sent again.
    pub(super) fn reason(&self) -> Option<Reason> {
        match self {
            Remedy::Moved { .. } => Some(Reason::Moved),
            Remedy::Ask(_) => Some(Reason::Ask),
            Remedy::Load => Some(Reason::NoScript),
            Remedy::Wait(reason) => Some(*reason),
            Remedy::None => None,
        }
    }
}

impl Fault {
    /// What this error, told by this node, means.
    pub(super) fn of(error: &ServerError, from: &Node) -> Fault {
        let details = error.details().unwrap_or_default();
        let remedy = match error.kind() {
            Some(ServerErrorKind::Moved) => {
                redirect(details, from).map_or(Remedy::None, |(slot, node)| Remedy::Moved { slot, node })
            }
            Some(ServerErrorKind::Ask) => redirect(details, from).map_or(Remedy::None, |(_, node)| Remedy::Ask(node)),
            Some(ServerErrorKind::NoScript) => Remedy::Load,
            Some(ServerErrorKind::TryAgain) => Remedy::Wait(Reason::TryAgain),
            Some(ServerErrorKind::BusyLoading) => Remedy::Wait(Reason::Loading),
            Some(ServerErrorKind::ReadOnly) => Remedy::Wait(Reason::ReadOnly),
            Some(ServerErrorKind::ClusterDown) => Remedy::Wait(Reason::ClusterDown),
            Some(ServerErrorKind::MasterDown) => Remedy::Wait(Reason::MasterDown),
            // Redis 6 wraps what a call within the script answered. A replica refuses every write, so nothing was written.
            Some(ServerErrorKind::ResponseError)
                if details.starts_with("Error running script") && details.contains(": -READONLY ") =>
            {
                Remedy::Wait(Reason::ReadOnly)
            }
            _ => Remedy::None,
        };
        Fault { remedy, text: cut(format!("{from}: {} {details}", error.code())) }
    }
}

/// Reads `3999 127.0.0.1:6381`. No host means the one that tells.
fn redirect(details: &str, from: &Node) -> Option<(u16, Node)> {
    let mut words = details.split_ascii_whitespace();
    let slot = words.next()?.parse().ok()?;
    let (host, port) = words.next()?.rsplit_once(':')?;
    let host = if host.is_empty() { from.host()? } else { host.trim_matches(['[', ']']) };
    Some((slot, Node::tcp(host, port.parse().ok()?)))
}

/// What a connection's error means for those who wait for it.
pub(super) fn failure(error: RedisError, from: &Node) -> Failure {
    if error.is_timeout() {
        return Failure::Unreachable(format!("{from}: no answer in time"));
    }
    let answered =
        matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::AuthenticationFailed);
    match ServerError::try_from(error) {
        Ok(error) => Failure::Refused(Fault::of(&error, from).text),
        Err(error) if answered => Failure::Refused(cut(format!("{from}: {error}"))),
        Err(error) => Failure::Unreachable(cut(format!("{from}: {error}"))),
    }
}

/// At most so many characters, on one line.
pub(super) fn cut(text: String) -> String {
    if text.len() <= LONGEST && !text.contains(char::is_control) {
        return text;
    }
    text.chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(line: &str) -> Fault {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        let redis::Value::ServerError(error) = value else { panic!("{line}") };
        Fault::of(&error, &Node::tcp("10.0.0.1", 6379))
    }

    #[test]
    fn only_what_did_not_run_is_sent_again() {
        let rows = [
            ("MOVED 3999 127.0.0.1:6381", Remedy::Moved { slot: 3999, node: Node::tcp("127.0.0.1", 6381) }),
            ("MOVED 3999 ::1:6381", Remedy::Moved { slot: 3999, node: Node::tcp("::1", 6381) }),
            ("MOVED 3999 :6381", Remedy::Moved { slot: 3999, node: Node::tcp("10.0.0.1", 6381) }),
            ("ASK 1 node-2:6381", Remedy::Ask(Node::tcp("node-2", 6381))),
            ("NOSCRIPT No matching script. Please use EVAL.", Remedy::Load),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Remedy::Wait(Reason::TryAgain)),
            ("LOADING Redis is loading the dataset in memory", Remedy::Wait(Reason::Loading)),
            ("READONLY You can't write against a read only replica.", Remedy::Wait(Reason::ReadOnly)),
            (
                "ERR Error running script (call to f_ab): @user_script:1: @user_script: 1: -READONLY You can't write.",
                Remedy::Wait(Reason::ReadOnly),
            ),
            ("CLUSTERDOWN Hash slot not served", Remedy::Wait(Reason::ClusterDown)),
            ("MASTERDOWN Link with MASTER is down", Remedy::Wait(Reason::MasterDown)),
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
            assert_eq!(fault(line).remedy, remedy, "{line}");
        }
    }

    #[test]
    fn texts_are_cut() {
        assert_eq!(fault("OOM no").text, "10.0.0.1:6379: OOM no");
        assert_eq!(fault(&format!("ERR {}", "é".repeat(1000))).text.chars().count(), LONGEST);
    }
}
