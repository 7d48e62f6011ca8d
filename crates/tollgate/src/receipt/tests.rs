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

fn taken() -> impl Strategy<Value = TakenCharge> {
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
        },
    )
}

fn receipt() -> impl Strategy<Value = Receipt> {
    (any::<u128>(), 0..EXACT, 0..EXACT, prop::collection::vec(taken(), 0..6)).prop_map(|(id, at, hold, taken)| {
        Receipt { id: ClaimId(id), taken_at: Timestamp::from_micros(at), hold: Span::from_micros(hold), taken }
    })
}

fn written(receipt: &Receipt) -> Vec<u8> {
    let mut bytes = Vec::new();
    receipt.write(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(receipt in receipt()) {
        prop_assert_eq!(Receipt::read(&written(&receipt)), Some(receipt));
    }

    #[test]
    fn what_is_cut_off_or_longer_is_none(receipt in receipt(), at in any::<prop::sample::Index>()) {
        let mut bytes = written(&receipt);
        prop_assert_eq!(Receipt::read(&bytes[..at.index(bytes.len())]), None);
        bytes.push(0);
        prop_assert_eq!(Receipt::read(&bytes), None);
    }

    #[test]
    fn whatever_the_bytes_are_what_is_read_can_be_written(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Some(receipt) = Receipt::read(&bytes) {
            prop_assert_eq!(Receipt::read(&written(&receipt)), Some(receipt));
        }
    }

    #[test]
    fn a_changed_byte_is_no_panic(receipt in receipt(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = written(&receipt);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Some(changed) = Receipt::read(&bytes) {
            prop_assert_eq!(Receipt::read(&written(&changed)), Some(changed));
        }
    }
}
