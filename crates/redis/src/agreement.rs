//! Values that all servers of a Redis share, because the first proposal is stored.
//!
//! A value lasts as long as the Redis that it is in: it never expires. If a primary fails before its replica has
//! received the value, it is lost, and the next proposal is stored.

use std::time::Duration;

use redis::{Cmd, Pipeline, Value, cmd};
use tokio::time::sleep;

use super::error_reply::{ErrorReply, Remedy};
use super::lane_task::Backoff;
use super::names::Names;
use super::{RedisStore, Shared};
use tollgate_redis_address::Node;
use tollgate_store::sharded::Failure;

/// Proposes a value and returns the stored one. `MGET` returns nil, instead of an error, for a key that is not a
/// string.
const AGREE_SCRIPT: &str = "\
redis.call('SET', KEYS[1], ARGV[1], 'NX')
return redis.call('MGET', KEYS[1])[1]";

/// Reads a value.
const READ_SCRIPT: &str = "return redis.call('MGET', KEYS[1])[1]";

/// Replaces a value, unless it has changed since it was read, and returns the stored one. An empty text is no value.
const REPLACE_SCRIPT: &str = "\
local stored = redis.call('MGET', KEYS[1])[1]
if (stored or '') == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2])
  return ARGV[2]
end
return stored";

impl Shared {
    /// Reads an agreed value.
    pub(super) async fn read_agreed(&self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        let key = self.names().agreed(name);
        let command = cmd("EVAL").arg(READ_SCRIPT).arg(1).arg(&key).take();
        match AgreementCall::new(self).call_until_answered(&command).await? {
            Value::Nil => Ok(None),
            Value::BulkString(value) => Ok(Some(value)),
            _ => Err(not_agreed(&key)),
        }
    }

    /// Replaces an agreed value, if it is still this one. Returns the stored one.
    pub(super) async fn replace_agreed(&self, name: &str, old: &[u8], new: &[u8]) -> Result<Vec<u8>, Failure> {
        let key = self.names().agreed(name);
        let command = cmd("EVAL").arg(REPLACE_SCRIPT).arg(1).arg(&key).arg(old).arg(new).take();
        match AgreementCall::new(self).call_until_answered(&command).await? {
            Value::BulkString(stored) => Ok(stored),
            _ => Err(not_agreed(&key)),
        }
    }
}

fn not_agreed(key: &str) -> Failure {
    Failure::Refused(format!("{key} in Redis is not an agreed value: delete it there"))
}

impl RedisStore {
    /// The maximum length of an agreed value, in bytes.
    pub const MAX_AGREED_BYTES: usize = 4_096;

    /// The value that all servers with this Redis and this prefix have under a name: the proposal, unless another
    /// server proposed a value before. The call is idempotent, so it is repeated until the timeout; an error that a
    /// retry cannot help is returned immediately.
    pub async fn agree_on(&self, name: &str, proposal: &[u8], timeout: Duration) -> Result<Vec<u8>, Failure> {
        if proposal.len() > Self::MAX_AGREED_BYTES {
            let max = Self::MAX_AGREED_BYTES;
            return Err(Failure::Refused(format!("{name}: an agreed value has at most {max} bytes")));
        }
        let key = self.shared.names().agreed(name);
        let mut call = AgreementCall::new(&self.shared);
        let command = cmd("EVAL").arg(AGREE_SCRIPT).arg(1).arg(&key).arg(proposal).take();
        match tokio::time::timeout(timeout, call.call_until_answered(&command)).await {
            Ok(answer) => match answer? {
                Value::BulkString(agreed) if agreed.len() <= Self::MAX_AGREED_BYTES => Ok(agreed),
                _ => Err(not_agreed(&key)),
            },
            Err(_) => Err(call.last.unwrap_or(Failure::Timeout)),
        }
    }
}

/// A command for the node that has the agreed values.
struct AgreementCall<'s> {
    shared: &'s Shared,
    /// The slot is being migrated there: only this command is sent to that node.
    redirect: Option<Node>,
    /// Why there is no answer yet.
    last: Option<Failure>,
}

impl<'s> AgreementCall<'s> {
    fn new(shared: &'s Shared) -> AgreementCall<'s> {
        AgreementCall { shared, redirect: None, last: None }
    }

    /// Repeats the command until there is an answer or a final error.
    async fn call_until_answered(&mut self, command: &Cmd) -> Result<Value, Failure> {
        let mut backoff = Backoff::default();
        loop {
            match self.call(command).await {
                Ok((Value::ServerError(error), node)) => self.apply_error(ErrorReply::new(&error, &node))?,
                Ok((answer, _)) => return Ok(answer),
                Err(failure) => {
                    self.last = Some(failure);
                    self.shared.topology.refresh();
                }
            }
            sleep(backoff.next()).await;
        }
    }

    /// The answer, and the node that sent it.
    async fn call(&mut self, command: &Cmd) -> Result<(Value, Node), Failure> {
        let topology = &self.shared.topology;
        let redirect = self.redirect.take();
        let peer = match &redirect {
            Some(node) => topology.peer_at(node)?,
            None => topology.route(Names::slot_of(Names::AGREED)).await?,
        };
        let lane = peer.lane(0).ok_or(Failure::Timeout)?;
        let mut link = lane.reconnect().await?;
        let answer = if redirect.is_some() {
            let mut both = Pipeline::new();
            both.add_command(cmd("ASKING")).add_command(command.clone());
            link.send_all(&both).await?.pop().unwrap_or(Value::Nil)
        } else {
            link.send(command).await?
        };
        Ok((answer, link.node().clone()))
    }

    /// Applies an error reply. Fails if it is final.
    fn apply_error(&mut self, error: ErrorReply) -> Result<(), Failure> {
        let topology = &self.shared.topology;
        let failure = Failure::Refused(error.text);
        match error.remedy {
            Remedy::Moved { slot, node } if topology.is_cluster() => {
                topology.learn(slot, &node);
                topology.refresh();
            }
            Remedy::Ask(node) if topology.is_cluster() => self.redirect = Some(node),
            Remedy::Wait(_) => topology.refresh(),
            Remedy::Moved { .. } | Remedy::Ask(_) | Remedy::Load | Remedy::None => return Err(failure),
        }
        self.last = Some(failure);
        Ok(())
    }
}
