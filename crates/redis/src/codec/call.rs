//! Encodes one script call for several claims.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use smallvec::SmallVec;
use tollgate_core::Timestamp;

use super::{ChargeCode, MAX_UNITS, Packet, SEVERAL, SIMPLE, WITH_ID, seven};

/// The arguments after `EVALSHA sha`: the number of keys, the keys, and one argument.
#[derive(Debug)]
pub(crate) struct ScriptCall<'p> {
    /// `KEYS`.
    pub(crate) keys: Vec<&'p [u8]>,
    /// `ARGV[1]`.
    pub(crate) body: Vec<u8>,
}

/// The script first reads every claim as if it were simple, including the last and shortest one.
const PADDING: [u8; 12] = [0; 12];

/// Encodes a call. Data that packets share is written once and referred to by its index, from 1 on.
#[derive(Default)]
struct CallWriter<'p> {
    keys: Vec<&'p [u8]>,
    key_indices: HashMap<&'p [u8], u16, FixedState>,
    limits: Vec<u8>,
    limit_indices: HashMap<&'p [u8], u16, FixedState>,
    /// The keys of values that are read in parts.
    long_keys: Vec<[u8; 2]>,
    shapes: Vec<u8>,
    shape_indices: HashMap<SmallVec<[u8; 64]>, u16, FixedState>,
    claims: Vec<u8>,
}

impl<'p> ScriptCall<'p> {
    /// The call for these packets, which together have fewer than 2^16 charges. `now` is the script's clock, if it is
    /// set by hand.
    pub(crate) fn new(packets: impl Iterator<Item = &'p Packet>, now: Option<Timestamp>) -> ScriptCall<'p> {
        let (mut writer, mut count) = (CallWriter::default(), 0u16);
        for packet in packets {
            count += 1;
            match packet.flags {
                SIMPLE => writer.simple(packet),
                SEVERAL => writer.several(packet),
                _ => writer.any(packet),
            }
            for key in &packet.own_keys {
                writer.declare(key);
            }
        }
        let CallWriter { limits, long_keys, shapes, claims, .. } = &writer;
        let mut body = Vec::with_capacity(32 + limits.len() + 2 * long_keys.len() + shapes.len() + claims.len());
        body.extend_from_slice(&now.map_or(0, Timestamp::as_micros).to_le_bytes());
        let [limit_count, shape_count] = [writer.limit_indices.len() as u16, writer.shape_indices.len() as u16];
        for count in [limit_count, shape_count, count, long_keys.len() as u16] {
            body.extend_from_slice(&count.to_le_bytes());
        }
        for part in [&limits[..], long_keys.as_flattened(), shapes, claims, &PADDING] {
            body.extend_from_slice(part);
        }
        ScriptCall { keys: writer.keys, body }
    }
}

impl<'p> CallWriter<'p> {
    fn key(&mut self, packet: &'p Packet, at: u16) -> [u8; 2] {
        self.declare(&packet.keys[usize::from(at)])
    }

    fn declare(&mut self, key: &'p [u8]) -> [u8; 2] {
        let next = self.keys.len() as u16 + 1;
        let index = *self.key_indices.entry(key).or_insert(next);
        if index == next {
            self.keys.push(key);
        }
        index.to_le_bytes()
    }

    fn limit(&mut self, packet: &'p Packet, charge: &ChargeCode) -> [u8; 2] {
        let limit = packet.limits[usize::from(charge.limit)].as_slice();
        let next = self.limit_indices.len() as u16 + 1;
        let index = *self.limit_indices.entry(limit).or_insert(next);
        if index == next {
            self.limits.extend_from_slice(limit);
        }
        index.to_le_bytes()
    }

    fn simple(&mut self, packet: &'p Packet) {
        let (shape, key) = (self.shape(packet, &packet.charges), self.key(packet, 0));
        self.claims.push(SIMPLE);
        self.claims.extend_from_slice(&shape);
        self.claims.extend_from_slice(&key);
        self.units(packet);
        self.names(packet, &packet.charges);
    }

    /// The header of a simple claim with the number of values instead of the shape, then shape, key and names for
    /// each.
    fn several(&mut self, packet: &'p Packet) {
        self.claims.push(SEVERAL);
        self.claims.extend_from_slice(&(packet.keys.len() as u16).to_le_bytes());
        self.claims.extend_from_slice(&[0; 2]);
        self.units(packet);
        for charges in packet.charges.chunk_by(|one, next| one.key == next.key) {
            let (shape, key) = (self.shape(packet, charges), self.key(packet, charges[0].key));
            self.claims.extend_from_slice(&shape);
            self.claims.extend_from_slice(&key);
            self.names(packet, charges);
        }
    }

    fn shape(&mut self, packet: &'p Packet, charges: &[ChargeCode]) -> [u8; 2] {
        let varies = varies(charges);
        let mut shape = SmallVec::<[u8; 64]>::from_slice(&[charges.len() as u8, u8::from(varies)]);
        for charge in charges {
            shape.extend_from_slice(&self.limit(packet, charge));
            shape.push(charge.operation);
        }
        if !varies {
            write_names(packet, charges, |part| shape.extend_from_slice(part));
        }
        let next = self.shape_indices.len() as u16 + 1;
        let index = self.shape_indices.get(&shape).copied().unwrap_or_else(|| {
            self.shapes.extend_from_slice(&shape);
            self.shape_indices.insert(shape, next);
            next
        });
        index.to_le_bytes()
    }

    fn units(&mut self, packet: &Packet) {
        self.claims.extend_from_slice(&seven(packet.charges.first().map_or(0, |charge| charge.units)));
    }

    /// The names of counters, if they are not part of the shape.
    fn names(&mut self, packet: &Packet, charges: &[ChargeCode]) {
        if varies(charges) {
            write_names(packet, charges, |part| self.claims.extend_from_slice(part));
        }
    }

    fn any(&mut self, packet: &'p Packet) {
        self.claims.push(packet.flags);
        self.claims.extend_from_slice(&(packet.charges.len() as u16).to_le_bytes());
        if packet.flags & WITH_ID != 0 {
            self.claims.extend_from_slice(&packet.claim.to_le_bytes());
        }
        let skip = self.once(packet);
        for charge in &packet.charges {
            let (key, limit) = (self.key(packet, charge.key), self.limit(packet, charge));
            if charge.is_long && !self.long_keys.contains(&key) {
                self.long_keys.push(key);
            }
            self.claims.extend_from_slice(&key);
            self.claims.extend_from_slice(&limit);
            self.claims.push(charge.operation);
            self.claims.extend_from_slice(&seven(charge.units));
            self.claims.extend_from_slice(&charge.id);
            if let Some(taken_at) = charge.taken_at {
                self.claims.extend_from_slice(&seven(taken_at));
            }
        }
        if let Some(at) = skip {
            let length = (self.claims.len() - at - 4) as u32;
            self.claims[at..at + 4].copy_from_slice(&length.to_le_bytes());
        }
    }

    /// The record of an idempotent claim. Returns the position of the length of everything that follows, which is
    /// skipped if the claim was settled before.
    fn once(&mut self, packet: &'p Packet) -> Option<usize> {
        let once = packet.once.as_ref()?;
        let key = self.key(packet, once.key);
        self.claims.push(once.op);
        self.claims.extend_from_slice(&key);
        self.claims.extend_from_slice(&once.body.to_le_bytes());
        self.claims.extend_from_slice(&once.terms.to_le_bytes());
        self.claims.extend_from_slice(&once.keep.as_micros().min(MAX_UNITS).to_le_bytes());
        let at = self.claims.len();
        self.claims.extend_from_slice(&[0; 4]);
        if let Some(verdict) = &once.verdict {
            self.claims.extend_from_slice(&(verdict.readings.len() as u32).to_le_bytes());
            self.claims.push(u8::from(verdict.passed));
            self.claims.extend_from_slice(&seven(verdict.settled_at.as_micros()));
            self.claims.extend_from_slice(&verdict.readings);
        }
        Some(at)
    }
}

/// Whether the names of these counters depend on the request.
fn varies(charges: &[ChargeCode]) -> bool {
    charges.iter().any(|charge| charge.varies)
}

/// Ids and kinds, as in the packed value.
fn write_names(packet: &Packet, charges: &[ChargeCode], mut write: impl FnMut(&[u8])) {
    for charge in charges {
        write(&charge.id);
        // An encoded limit begins with its kind.
        write(packet.limits[usize::from(charge.limit)].get(..1).unwrap_or_default());
    }
}
