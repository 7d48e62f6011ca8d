//! Encoding of receipts: every receipt is decoded as it was encoded, and nothing else is decoded.

use proptest::prelude::*;
use smallvec::SmallVec;
use tollgate_core::key::OwnedValue;
use tollgate_core::{ClaimId, EXACT, Span, Timestamp, Value};

use super::{OnEnd, Receipt, TakenCharge};

fn value() -> impl Strategy<Value = OwnedValue> {
    prop_oneof![
        Just(OwnedValue::Absent),
        "[a-c]{0,3}|\\PC{0,40}".prop_map(|text| OwnedValue::Text(text.into())),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(|bytes| Value::bytes(&bytes).into()),
        (any::<u128>(), 0..=128_u8).prop_map(|(address, prefix)| Value::network(address.into(), prefix).into()),
    ]
}

fn taken_charge() -> impl Strategy<Value = TakenCharge> {
    let on_end = prop_oneof![
        Just(OnEnd::Release),
        (any::<bool>(), any::<bool>()).prop_map(|(settle, refund)| OnEnd::Units { settle, refund }),
    ];
    (any::<u64>(), prop::collection::vec(value(), 0..5), 0..EXACT, 0..EXACT, on_end).prop_map(
        |(scope, values, amount, units, on_end)| TakenCharge {
            scope,
            values: SmallVec::from_vec(values),
            amount,
            units,
            on_end,
            region: 0,
        },
    )
}

fn receipt() -> impl Strategy<Value = Receipt> {
    (any::<u128>(), 0..EXACT, 0..EXACT, prop::option::of(value()), prop::collection::vec(taken_charge(), 0..6))
        .prop_map(|(id, at, hold, caller, taken)| Receipt {
            id: ClaimId(id),
            taken_at: Timestamp::from_micros(at),
            hold: Span::from_micros(hold),
            caller,
            regions: Vec::new(),
            taken,
        })
}

/// A receipt of several regions.
fn receipt_with_regions() -> impl Strategy<Value = Receipt> {
    let names = prop::collection::vec("[a-z0-9.-]{1,40}".prop_map(Into::into), 1..5);
    (receipt(), names, prop::collection::vec(any::<u8>(), 6)).prop_map(|(mut receipt, regions, of_charges)| {
        for (taken, region) in receipt.taken.iter_mut().zip(of_charges) {
            taken.region = region % regions.len() as u8;
        }
        Receipt { regions, ..receipt }
    })
}

fn encode_with_regions(receipt: &Receipt) -> Vec<u8> {
    let mut bytes = encode(receipt);
    receipt.write_regions(&mut bytes);
    bytes
}

fn encode(receipt: &Receipt) -> Vec<u8> {
    let mut bytes = Vec::new();
    receipt.write(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn an_encoded_receipt_decodes_to_itself(receipt in receipt()) {
        prop_assert_eq!(Receipt::read(&encode(&receipt)), Some(receipt));
    }

    #[test]
    fn a_receipt_with_regions_decodes_to_itself(receipt in receipt_with_regions(), at in any::<prop::sample::Index>()) {
        let mut bytes = encode_with_regions(&receipt);
        prop_assert_eq!(Receipt::read_with_regions(&bytes[..at.index(bytes.len())]), None);
        prop_assert_eq!(Receipt::read_with_regions(&bytes), Some(receipt.clone()));
        let index = at.index(bytes.len());
        bytes[index] ^= 0x55;
        if let Some(changed) = Receipt::read_with_regions(&bytes) {
            prop_assert_eq!(Receipt::read_with_regions(&encode_with_regions(&changed)), Some(changed));
        }
    }

    #[test]
    fn truncated_and_longer_bytes_are_not_receipts(receipt in receipt(), at in any::<prop::sample::Index>()) {
        let mut bytes = encode(&receipt);
        prop_assert_eq!(Receipt::read(&bytes[..at.index(bytes.len())]), None);
        bytes.push(0);
        prop_assert_eq!(Receipt::read(&bytes), None);
    }

    #[test]
    fn whatever_is_decoded_can_be_encoded(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Some(receipt) = Receipt::read(&bytes) {
            prop_assert_eq!(Receipt::read(&encode(&receipt)), Some(receipt));
        }
    }

    #[test]
    fn a_changed_byte_does_not_panic(receipt in receipt(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = encode(&receipt);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Some(changed) = Receipt::read(&bytes) {
            prop_assert_eq!(Receipt::read(&encode(&changed)), Some(changed));
        }
    }
}

/// A charge of 3 units for the value `k`, as every version encodes it.
fn encoded_charge(value: &[u8]) -> Vec<u8> {
    let mut bytes = 7_u64.to_be_bytes().to_vec();
    // Amount, units, refund, number of values.
    bytes.extend([100, 3, 4, 1]);
    bytes.extend(value);
    bytes
}

fn encoded_head(entries: u8) -> Vec<u8> {
    let mut bytes = 5_u128.to_be_bytes().to_vec();
    // Taken at, hold, number of entries.
    bytes.extend([9, 60, entries]);
    bytes
}

/// Servers of several versions settle each other's receipts during an upgrade.
#[test]
fn earlier_versions_read_receipts_and_theirs_are_read() {
    let charge = encoded_charge(&[1 << 3 | 1, b'k']);
    let earlier = [encoded_head(1), charge.clone()].concat();
    let mut receipt = Receipt::read(&earlier).unwrap();
    assert_eq!((receipt.taken.len(), receipt.taken[0].units, receipt.caller.clone()), (1, 3, None));
    assert_eq!(encode(&receipt), earlier);
    // The caller follows as another entry, of a scope that no rule has and without units: the first value again.
    receipt.caller = Some(OwnedValue::Text("k".into()));
    let entry = [&0x746f_6c6c_6361_6c6c_u64.to_be_bytes()[..], &[0, 0, 0, 1, 4]].concat();
    assert_eq!(encode(&receipt), [encoded_head(2), charge, entry].concat());
    assert_eq!(Receipt::read(&encode(&receipt)), Some(receipt));
}
