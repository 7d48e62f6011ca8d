//! One script call for several claims.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use smallvec::SmallVec;
use tollgate_core::Timestamp;

use super::{ChargeCode, MOST_UNITS, NAMED, Packet, SEVERAL, SIMPLE, seven};

/// What follows `EVALSHA sha`: how many keys, the keys, and one argument.
#[derive(Debug)]
pub(in crate::redis) struct Call<'p> {
    /// `KEYS`.
    pub(in crate::redis) keys: Vec<&'p str>,
    /// `ARGV[1]`.
    pub(in crate::redis) body: Vec<u8>,
}

/// The script reads every claim as if it were simple first, also the last and shortest.
const PADDING: [u8; 12] = [0; 12];

/// A call under way. What the packets share is written once, and named by its place, from 1 on.
#[derive(Default)]
struct Writing<'p> {
    keys: Vec<&'p str>,
    key_places: HashMap<&'p str, u16, FixedState>,
    limits: Vec<u8>,
    limit_places: HashMap<&'p [u8], u16, FixedState>,
    shapes: Vec<u8>,
    shape_places: HashMap<SmallVec<[u8; 64]>, u16, FixedState>,
    claims: Vec<u8>,
}

impl<'p> Call<'p> {
    /// The call for these packets, which together have fewer than 2^16 charges. `now` is the script's clock where that is set by
    /// hand.
    pub(in crate::redis) fn of(packets: impl Iterator<Item = &'p Packet>, now: Option<Timestamp>) -> Call<'p> {
        let (mut writing, mut count) = (Writing::default(), 0u16);
        for packet in packets {
            count += 1;
            match packet.flags {
                SIMPLE => writing.simple(packet),
                SEVERAL => writing.several(packet),
                _ => writing.any(packet),
            }
        }
        let Writing { limits, shapes, claims, .. } = &writing;
        let mut body = Vec::with_capacity(32 + limits.len() + shapes.len() + claims.len());
        body.extend_from_slice(&now.map_or(0, Timestamp::as_micros).to_le_bytes());
        for count in [writing.limit_places.len() as u16, writing.shape_places.len() as u16, count] {
            body.extend_from_slice(&count.to_le_bytes());
        }
        for part in [&limits[..], shapes, claims, &PADDING] {
            body.extend_from_slice(part);
        }
        Call { keys: writing.keys, body }
    }
}

impl<'p> Writing<'p> {
    fn key(&mut self, packet: &'p Packet, at: u16) -> [u8; 2] {
        let (key, next) = (&*packet.keys[usize::from(at)], self.keys.len() as u16 + 1);
        let place = *self.key_places.entry(key).or_insert(next);
        if place == next {
            self.keys.push(key);
        }
        place.to_le_bytes()
    }

    fn limit(&mut self, packet: &'p Packet, charge: &ChargeCode) -> [u8; 2] {
        let limit = packet.limits[usize::from(charge.limit)].as_slice();
        let next = self.limit_places.len() as u16 + 1;
        let place = *self.limit_places.entry(limit).or_insert(next);
        if place == next {
            self.limits.extend_from_slice(limit);
        }
        place.to_le_bytes()
    }

    fn simple(&mut self, packet: &'p Packet) {
        let (shape, key) = (self.shape(packet, &packet.charges), self.key(packet, 0));
        self.claims.push(SIMPLE);
        self.claims.extend_from_slice(&shape);
        self.claims.extend_from_slice(&key);
        self.units(packet);
        self.names(packet, &packet.charges);
    }

    /// The header of a simple claim with the number of values in place of the shape, then shape, key and names for each.
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
            shape.push(charge.how);
        }
        if !varies {
            write_names(packet, charges, |part| shape.extend_from_slice(part));
        }
        let next = self.shape_places.len() as u16 + 1;
        let place = self.shape_places.get(&shape).copied().unwrap_or_else(|| {
            self.shapes.extend_from_slice(&shape);
            self.shape_places.insert(shape, next);
            next
        });
        place.to_le_bytes()
    }

    fn units(&mut self, packet: &Packet) {
        self.claims.extend_from_slice(&seven(packet.charges.first().map_or(0, |charge| charge.units)));
    }

    /// The names of counters, where they are not the shape's.
    fn names(&mut self, packet: &Packet, charges: &[ChargeCode]) {
        if varies(charges) {
            write_names(packet, charges, |part| self.claims.extend_from_slice(part));
        }
    }

    fn any(&mut self, packet: &'p Packet) {
        self.claims.push(packet.flags);
        self.claims.extend_from_slice(&(packet.charges.len() as u16).to_le_bytes());
        if packet.flags & NAMED != 0 {
            self.claims.extend_from_slice(&packet.claim.to_le_bytes());
        }
        let skip = self.once(packet);
        for charge in &packet.charges {
            let (key, limit) = (self.key(packet, charge.key), self.limit(packet, charge));
            self.claims.extend_from_slice(&key);
            self.claims.extend_from_slice(&limit);
            self.claims.push(charge.how);
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

    /// What is recorded of a claim that is settled once. Gives the place of the length of all that follows, for those who were
    /// answered before.
    fn once(&mut self, packet: &'p Packet) -> Option<usize> {
        let once = packet.once.as_ref()?;
        let key = self.key(packet, once.key);
        self.claims.push(once.op);
        self.claims.extend_from_slice(&key);
        self.claims.extend_from_slice(&once.body.to_le_bytes());
        self.claims.extend_from_slice(&once.terms.to_le_bytes());
        self.claims.extend_from_slice(&once.keep.as_micros().min(MOST_UNITS).to_le_bytes());
        let at = self.claims.len();
        self.claims.extend_from_slice(&[0; 4]);
        if let Some(verdict) = &once.verdict {
            self.claims.extend_from_slice(&(verdict.readings.len() as u32).to_le_bytes());
            self.claims.push(u8::from(verdict.passed));
            self.claims.extend_from_slice(&seven(verdict.made.as_micros()));
            self.claims.extend_from_slice(&verdict.readings);
        }
        Some(at)
    }
}

/// Whether the names of these counters depend on the request.
fn varies(charges: &[ChargeCode]) -> bool {
    charges.iter().any(|charge| charge.varies)
}

/// Ids and kinds, as they stand in the packed value.
fn write_names(packet: &Packet, charges: &[ChargeCode], mut write: impl FnMut(&[u8])) {
    for charge in charges {
        write(&charge.id);
        // What a limit is written with begins with its kind.
        write(packet.limits[usize::from(charge.limit)].get(..1).unwrap_or_default());
    }
}
