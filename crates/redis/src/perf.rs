//! The codec without a Redis, for measurements.

use tollgate_core::{Claim, Settlement, Timestamp};
use tollgate_store::sharded::OnceRecord;

use crate::codec::{Packet, ScriptCall, ScriptReply, read};
use crate::names::Names;

/// Encodes claims and decodes the answer that the script gives for counters without a state.
#[derive(Debug)]
pub struct Codec {
    names: Names,
    now: Timestamp,
    reply: Vec<u8>,
}

impl Codec {
    /// A codec for names with this prefix, at this time.
    pub fn new(prefix: &str, now: Timestamp) -> Codec {
        /// The status of an answer that has the previous value, which is empty.
        const BEFORE: u8 = 4;
        let mut reply = now.as_micros().to_le_bytes().to_vec();
        reply.extend_from_slice(&[0; 2]);
        reply.extend_from_slice(&0u32.to_le_bytes());
        reply.push(BEFORE);
        Codec { names: Names::new(prefix), now, reply }
    }

    /// Encodes a claim and decodes an answer to it: its settlement, and the size of the call.
    pub fn round(&self, claim: &Claim<'_>) -> Option<(Settlement, usize)> {
        let packet = Packet::new(claim, OnceRecord::Whole, &self.names, self.now);
        let call = ScriptCall::new(std::iter::once(&packet), None);
        let reply = ScriptReply::parse(&self.reply, 1)?;
        let answer = self.reply.get(reply.answers.first()?.clone())?;
        let mut settlement = Settlement::default();
        read(reply.at, answer, claim, &mut settlement).ok()?;
        Some((settlement, call.body.len() + call.keys.len()))
    }
}
