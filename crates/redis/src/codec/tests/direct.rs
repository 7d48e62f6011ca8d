//! Calls the script over a plain connection.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::{Mutex, MutexGuard};

use tollgate_core::{Claim, Key, Settlement, Timestamp};

use super::super::{Packet, ScriptCall, ScriptReply, read};
use crate::names::Names;
use crate::script::SCRIPT;
use tollgate_store::conformance::Subject;
use tollgate_store::sharded::{Failure, OnceRecord};
use tollgate_store::{Clock, ManualClock, Store, SystemClock};

/// A store that consists of the script alone.
pub(super) struct Direct {
    connection: Mutex<BufReader<TcpStream>>,
    names: Names,
    prefix: String,
    sha: Vec<u8>,
    clock: ManualClock,
    unsound: Mutex<Cell<u64>>,
}

/// Fails a script that touches a key that is not in KEYS.
const DECLARED_KEYS_ONLY: &str = "
local declared, real = {}, redis
for _, key in ipairs(KEYS) do declared[key] = true end
local redis, one_key = {}, { SET = 1, GETRANGE = 1, STRLEN = 1, TIME = 0 }
local function check(command, ...)
  local keys = { ... }
  for place = 1, one_key[command] or #keys do
    if not declared[keys[place]] then error('not declared: ' .. keys[place]) end
  end
end
function redis.call(...)
  check(...)
  return real.call(...)
end
function redis.pcall(...)
  check(...)
  return real.pcall(...)
end
";

/// An answer in RESP2.
#[derive(Debug)]
pub(super) enum Answer {
    Text(Vec<u8>),
    Number(i64),
    Other,
    List(Vec<Answer>),
}

impl Direct {
    pub(super) fn new(port: u16, prefix: &str) -> Direct {
        Direct::with_script(port, prefix, &format!("{DECLARED_KEYS_ONLY}{SCRIPT}"))
    }

    /// The script as it is, to measure it.
    pub(super) fn unchecked(port: u16, prefix: &str) -> Direct {
        Direct::with_script(port, prefix, SCRIPT)
    }

    fn with_script(port: u16, prefix: &str, script: &str) -> Direct {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut direct = Direct {
            connection: Mutex::new(BufReader::new(stream)),
            names: Names::new(prefix),
            prefix: prefix.to_owned(),
            sha: Vec::new(),
            clock: ManualClock::default(),
            unsound: Mutex::default(),
        };
        let Answer::Text(sha) = direct.command(&[b"SCRIPT", b"LOAD", script.as_bytes()]) else { panic!("no sha") };
        direct.sha = sha;
        direct
    }

    /// Settles claims in one call, by the clock that is set.
    pub(super) fn settle_all(&self, claims: &[Claim<'_>]) -> Vec<Result<Settlement, Failure>> {
        self.settle_at(claims, Some(self.clock.now()))
    }

    /// Settles claims in one call; without a time by Redis's own clock.
    pub(super) fn settle_at(
        &self,
        claims: &[Claim<'_>],
        moment: Option<Timestamp>,
    ) -> Vec<Result<Settlement, Failure>> {
        let now = moment.unwrap_or_else(|| SystemClock::default().now());
        let packet = |claim| {
            let mut packet = Packet::new(claim, OnceRecord::Whole, &self.names, now);
            packet.declare_own_keys();
            packet
        };
        let packets: Vec<Packet> = claims.iter().map(packet).collect();
        let call = ScriptCall::new(packets.iter(), moment);
        let count = call.keys.len().to_string();
        let mut command: Vec<&[u8]> = vec![b"EVALSHA", &self.sha, count.as_bytes()];
        command.extend(&call.keys);
        command.push(&call.body);
        let Answer::Text(reply) = self.command(&command) else { panic!("no text") };
        let parsed = ScriptReply::parse(&reply, claims.len()).unwrap();
        let unsound = self.unsound.lock().unwrap();
        unsound.set(unsound.get() + u64::from(parsed.unsound));
        let read = |(claim, answer): (&Claim<'_>, &std::ops::Range<usize>)| {
            let mut settlement = Settlement::default();
            read(parsed.at, &reply[answer.clone()], claim, &mut settlement).map(|()| settlement)
        };
        claims.iter().zip(&parsed.answers).map(read).collect()
    }

    /// The name of a counter's own value.
    pub(super) fn own_name(&self, key: &Key<'_>) -> String {
        self.names.own(key)
    }

    pub(super) fn unsound(&self) -> u64 {
        self.unsound.lock().unwrap().get()
    }

    /// All keys in the server.
    pub(super) fn keys(&self) -> Vec<Vec<u8>> {
        let pattern = format!("{}*", self.prefix);
        match self.command(&[b"KEYS", pattern.as_bytes()]) {
            Answer::List(keys) => keys.into_iter().filter_map(Answer::text).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// Corrupts a value.
    pub(super) fn damage(&self, key: &[u8], rng: &mut fastrand::Rng) {
        let mut raw = self.command(&[b"GET", key]).text().unwrap_or_default();
        match rng.u8(0..6) {
            0 => {
                self.command(&[b"DEL", key]);
                self.command(&[b"LPUSH", key, b"not", b"ours"]);
                return;
            }
            1 => raw.truncate(rng.usize(0..=raw.len())),
            2 => raw.extend(std::iter::repeat_with(|| rng.u8(..)).take(5)),
            3 => raw.fill_with(|| rng.u8(..)),
            4 => raw.clear(),
            _ => {
                for _ in 0..3 {
                    let at = rng.usize(0..raw.len().max(1));
                    if let Some(byte) = raw.get_mut(at) {
                        *byte = rng.u8(..);
                    }
                }
            }
        }
        self.command(&[b"SET", key, &raw]);
    }

    /// Sends a command. An error fails the test.
    pub(super) fn command(&self, arguments: &[&[u8]]) -> Answer {
        let mut connection = self.connection();
        let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
        connection.get_mut().write_all(&bytes).unwrap();
        answer(&mut connection)
    }

    fn connection(&self) -> MutexGuard<'_, BufReader<TcpStream>> {
        self.connection.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Answer {
    pub(super) fn text(self) -> Option<Vec<u8>> {
        match self {
            Answer::Text(text) => Some(text),
            _ => None,
        }
    }
}

fn answer(connection: &mut BufReader<TcpStream>) -> Answer {
    let mut line = String::new();
    connection.read_line(&mut line).unwrap();
    let (kind, rest) = line.trim_end().split_at(1);
    match kind {
        "$" => match rest.parse::<usize>() {
            Ok(length) => {
                let mut text = vec![0; length + 2];
                connection.read_exact(&mut text).unwrap();
                text.truncate(length);
                Answer::Text(text)
            }
            Err(_) => Answer::Other,
        },
        "*" => Answer::List((0..rest.parse::<usize>().unwrap()).map(|_| answer(connection)).collect()),
        ":" => Answer::Number(rest.parse().unwrap()),
        "-" => panic!("{rest}"),
        _ => Answer::Other,
    }
}

impl Store for Direct {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        *settlement = self.settle_all(std::slice::from_ref(claim)).remove(0).unwrap();
    }
}

impl Subject for Direct {
    type Store = Direct;

    fn store(&self) -> &Direct {
        self
    }

    fn set_now(&self, now: Timestamp) {
        self.clock.set(now);
    }
}
