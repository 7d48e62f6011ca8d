//! The binary encoding of receipts. Decoding accepts any bytes without panicking.

use smallvec::SmallVec;
use tollgate_core::key::OwnedValue;
use tollgate_core::{Claim, ClaimId, EXACT, RegionNames, Span, Timestamp, Value};

use super::{OnEnd, Receipt, TakenCharge};

/// Kinds of values.
const ABSENT: u64 = 0;
const TEXT: u64 = 1;
const BYTES: u64 = 2;
const NETWORK: u64 = 3;
/// A repetition of a value earlier in the receipt.
const BEFORE: u64 = 4;
/// How many bits encode the kind.
const KIND: u32 = 3;
/// Bits of a charge's [`OnEnd`].
const HOLD: u64 = 1;
const SETTLE: u64 = 2;
const REFUND: u64 = 4;

/// The scope of an entry that is not a charge: its value is the caller. Earlier versions look for a rule of this scope,
/// find none, and settle the others.
const CALLER: u64 = 0x746f_6c6c_6361_6c6c;

/// The largest number of values in a key.
const MAX_VALUES: u64 = 64;

impl Receipt {
    /// Appends the encoded receipt.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.0.to_be_bytes());
        number(out, self.taken_at.as_micros());
        number(out, self.hold.as_micros());
        let has_room = self.taken.len() < Claim::MAX_CHARGES;
        let caller = self.caller.as_ref().filter(|_| has_room).map(caller_entry);
        number(out, (self.taken.len() + usize::from(caller.is_some())) as u64);
        for (at, taken) in self.taken.iter().chain(&caller).enumerate() {
            out.extend_from_slice(&taken.scope.to_be_bytes());
            number(out, taken.amount);
            number(out, taken.units);
            let on_end = match taken.on_end {
                OnEnd::Release => HOLD,
                OnEnd::Units { settle, refund } => u64::from(settle) * SETTLE + u64::from(refund) * REFUND,
            };
            number(out, on_end);
            number(out, taken.values.len() as u64);
            for value in &taken.values {
                // Most counters are keyed by the caller, so its value repeats.
                let mut before = self.taken.iter().take(at).flat_map(|taken| &taken.values);
                match before.position(|other| other == value) {
                    Some(place) => number(out, (place as u64) << KIND | BEFORE),
                    None => write_value(out, value),
                }
            }
        }
    }

    /// Appends the regions of an encoded receipt: their names, and the index of each charge's.
    pub(super) fn write_regions(&self, out: &mut Vec<u8>) {
        number(out, self.regions.len() as u64);
        for name in &self.regions {
            number(out, name.len() as u64);
            out.extend_from_slice(name.as_bytes());
        }
        out.extend(self.taken.iter().map(|taken| taken.region));
    }

    fn read_regions(&mut self, bytes: &mut &[u8]) -> Option<()> {
        let count = read_number(bytes).filter(|count| (1..=RegionNames::MAX as u64).contains(count))?;
        for _ in 0..count {
            let length = read_number(bytes).filter(|length| *length <= RegionNames::MAX_NAME_BYTES as u64)?;
            self.regions.push(std::str::from_utf8(some(bytes, length)?).ok()?.into());
        }
        for taken in &mut self.taken {
            let [region] = *take::<1>(bytes)?;
            taken.region = Some(region).filter(|region| u64::from(*region) < count)?;
        }
        Some(())
    }

    /// Decodes a receipt; `None` if the bytes are not one.
    pub(super) fn read(mut bytes: &[u8]) -> Option<Receipt> {
        let receipt = Receipt::read_charges(&mut bytes)?;
        bytes.is_empty().then_some(receipt)
    }

    /// Decodes a receipt with regions; `None` if the bytes are not one.
    pub(super) fn read_with_regions(mut bytes: &[u8]) -> Option<Receipt> {
        let mut receipt = Receipt::read_charges(&mut bytes)?;
        receipt.read_regions(&mut bytes)?;
        bytes.is_empty().then_some(receipt)
    }

    fn read_charges(bytes: &mut &[u8]) -> Option<Receipt> {
        let id = ClaimId(u128::from_be_bytes(*take::<16>(bytes)?));
        let taken_at = Timestamp::from_micros(read_number(bytes)?);
        let hold = Span::from_micros(read_number(bytes)?);
        let count = read_number(bytes).filter(|count| *count <= Claim::MAX_CHARGES as u64)?;
        let mut receipt = Receipt { id, taken_at, hold, caller: None, regions: Vec::new(), taken: Vec::new() };
        for _ in 0..count {
            let scope = u64::from_be_bytes(*take::<8>(bytes)?);
            let (amount, units) = (read_number(bytes)?, read_number(bytes)?);
            let on_end = match read_number(bytes)? {
                HOLD => OnEnd::Release,
                bits @ 0..8 if bits & HOLD == 0 => {
                    OnEnd::Units { settle: bits & SETTLE != 0, refund: bits & REFUND != 0 }
                }
                _ => return None,
            };
            let mut values = SmallVec::new();
            for _ in 0..read_number(bytes).filter(|count| *count <= MAX_VALUES)? {
                values.push(receipt.read_value(bytes)?);
            }
            receipt.taken.push(TakenCharge { scope, values, amount, units, on_end, region: 0 });
        }
        if let Some(last) = receipt.taken.pop_if(|last| last.scope == CALLER) {
            receipt.caller = last.values.into_iter().next();
        }
        Some(receipt)
    }

    fn read_value(&self, bytes: &mut &[u8]) -> Option<OwnedValue> {
        let head = read_number(bytes)?;
        let rest = head >> KIND;
        match head & ((1 << KIND) - 1) {
            ABSENT => Some(OwnedValue::Absent),
            TEXT => Some(OwnedValue::Text(std::str::from_utf8(some(bytes, rest)?).ok()?.into())),
            BYTES => Some(Value::bytes(some(bytes, rest)?).into()),
            NETWORK => {
                let prefix = u8::try_from(rest).ok().filter(|prefix| *prefix <= 128)?;
                Some(Value::network(u128::from_be_bytes(*take::<16>(bytes)?).into(), prefix).into())
            }
            BEFORE => self.taken.iter().flat_map(|taken| &taken.values).nth(usize::try_from(rest).ok()?).cloned(),
            _ => None,
        }
    }
}

/// The entry that carries the caller. It takes nothing.
fn caller_entry(caller: &OwnedValue) -> TakenCharge {
    let on_end = OnEnd::Units { settle: false, refund: false };
    let values = SmallVec::from_elem(caller.clone(), 1);
    TakenCharge { scope: CALLER, values, amount: 0, units: 0, on_end, region: 0 }
}

fn write_value(out: &mut Vec<u8>, value: &OwnedValue) {
    match value {
        OwnedValue::Absent => number(out, ABSENT),
        OwnedValue::Text(text) => {
            number(out, (text.len() as u64) << KIND | TEXT);
            out.extend_from_slice(text.as_bytes());
        }
        OwnedValue::Bytes(bytes) => {
            number(out, (bytes.len() as u64) << KIND | BYTES);
            out.extend_from_slice(bytes);
        }
        OwnedValue::Network { address, prefix } => {
            number(out, u64::from(*prefix) << KIND | NETWORK);
            address.iter().for_each(|half| out.extend_from_slice(&half.to_be_bytes()));
        }
    }
}

/// A variable-length integer: seven bits per byte, the lowest first.
pub(super) fn number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Decodes an integer; `None` if it is cut off or too large to be counted exactly.
pub(super) fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..56).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number).filter(|number| *number < EXACT);
        }
    }
    None
}

fn take<'b, const N: usize>(bytes: &mut &'b [u8]) -> Option<&'b [u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(taken)
}

fn some<'b>(bytes: &mut &'b [u8], count: u64) -> Option<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(count).ok()?)?;
    *bytes = rest;
    Some(taken)
}
