//! Values that all servers with this Redis have in common, because the first one's proposal stays.
//!
//! A value is as lasting as the Redis that it is in: it never expires, but a primary that dies before its replica has heard of it
//! takes it along, and then the next proposal counts.

use std::time::Duration;

use redis::{Cmd, Pipeline, Value, cmd};
use tokio::time::{sleep, timeout};

use super::address::Node;
use super::drive::Backoff;
use super::fault::{Fault, Remedy};
use super::names::Names;
use super::{RedisStore, Shared};
use crate::sharded::Failure;

/// Proposes a value and tells which one counts. `MGET` says nothing, instead of failing, of a key that is no text.
const AGREE: &str = "\
redis.call('SET', KEYS[1], ARGV[1], 'NX')
return redis.call('MGET', KEYS[1])[1]";

impl RedisStore {
    /// The longest value that can be agreed on.
    pub const LONGEST_AGREED: usize = 4_096;

    /// The value that all servers with this Redis and this prefix have under this name: what is proposed here, unless somebody came
    /// first. It is tried for as long as it may take, since twice is once; a refusal that no patience helps is told at once.
    pub async fn agree_on(&self, name: &str, proposal: &[u8], within: Duration) -> Result<Vec<u8>, Failure> {
        if proposal.len() > Self::LONGEST_AGREED {
            let most = Self::LONGEST_AGREED;
            return Err(Failure::Refused(format!("{name}: a value that is agreed on has at most {most} bytes")));
        }
        let key = self.shared.names.agreed(name);
        let mut asking = Asking { shared: &self.shared, elsewhere: None, last: None };
        let command = cmd("EVAL").arg(AGREE).arg(1).arg(&key).arg(proposal).take();
        match timeout(within, asking.until_told(&command)).await {
            Ok(answer) => match answer? {
                Value::BulkString(agreed) if agreed.len() <= Self::LONGEST_AGREED => Ok(agreed),
                _ => Err(Failure::Refused(format!("{key} is something else in Redis: delete it there"))),
            },
            Err(_) => Err(asking.last.unwrap_or(Failure::Timeout)),
        }
    }
}

/// A command on its way to the node that has the agreed values.
struct Asking<'s> {
    shared: &'s Shared,
    /// The slot is on its way there: only this command is asked of that node.
    elsewhere: Option<Node>,
    /// Why there is no answer yet.
    last: Option<Failure>,
}

impl Asking<'_> {
    /// Asks until there is an answer, or a refusal that is final.
    async fn until_told(&mut self, command: &Cmd) -> Result<Value, Failure> {
        let mut backoff = Backoff::default();
        loop {
            match self.ask(command).await {
                Ok((Value::ServerError(error), node)) => self.heed(Fault::of(&error, &node))?,
                Ok((answer, _)) => return Ok(answer),
                Err(failure) => {
                    self.last = Some(failure);
                    self.shared.topology.refresh();
                }
            }
            sleep(backoff.next()).await;
        }
    }

    /// The answer, and who told it.
    async fn ask(&mut self, command: &Cmd) -> Result<(Value, Node), Failure> {
        let topology = &self.shared.topology;
        let elsewhere = self.elsewhere.take();
        let peer = match &elsewhere {
            Some(node) => topology.peer_at(node)?,
            None => topology.route(Names::slot_of(Names::AGREED)).await?,
        };
        let lane = peer.lane(0).ok_or(Failure::Timeout)?;
        let mut link = lane.linked_anew().await?;
        let answer = if elsewhere.is_some() {
            let mut both = Pipeline::new();
            both.add_command(cmd("ASKING")).add_command(command.clone());
            link.send_all(&both).await?.pop().unwrap_or(Value::Nil)
        } else {
            link.send(command).await?
        };
        Ok((answer, link.node().clone()))
    }

    /// Learns from an error; fails if it is final.
    fn heed(&mut self, fault: Fault) -> Result<(), Failure> {
        let topology = &self.shared.topology;
        let failure = Failure::Refused(fault.text);
        match fault.remedy {
            Remedy::Moved { slot, node } if topology.is_cluster() => {
                topology.learn(slot, &node);
                topology.refresh();
            }
            Remedy::Ask(node) if topology.is_cluster() => self.elsewhere = Some(node),
            Remedy::Wait(_) => topology.refresh(),
            Remedy::Moved { .. } | Remedy::Ask(_) | Remedy::Load | Remedy::None => return Err(failure),
        }
        self.last = Some(failure);
        Ok(())
    }
}
