//! Encodes records as bytes for key-value stores.
//!
//! The key is the log number in big-endian order, which makes keys sort in log order. The value
//! consists of a checksum, numbers in little-endian order (side, outcome, stock, count, remaining
//! shares, whether the client is named, its request number), and the client name.

use ioloom_exchange::{Order, OrderOutcome, Record, Refused, RequestId, Side};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Size of the checksum in bytes.
const SUM: usize = 4;
/// Size of the fields between the checksum and the name in bytes.
const FIXED: usize = 1 + 1 + 4 + 4 + 4 + 1 + 8;

/// Returns the checksum of a record, covering its key and all fields.
pub(super) fn checksum(key: &[u8], body: &[u8]) -> u32 {
    // Called once per order; only records with a long client name need an allocation.
    let mut both = [0; 64];
    let sum = match both.get_mut(..key.len() + body.len()) {
        Some(both) => {
            both[..key.len()].copy_from_slice(key);
            both[key.len()..].copy_from_slice(body);
            xxh3_64(both)
        }
        None => xxh3_64(&[key, body].concat()),
    };
    sum as u32
}

/// Returns the key of a record.
pub(super) fn key(seq: u64) -> [u8; 8] {
    seq.to_be_bytes()
}

/// Returns the log number from a key.
pub(super) fn seq(key: &[u8]) -> Option<u64> {
    key.try_into().ok().map(u64::from_be_bytes)
}

/// Encodes the value of a record.
pub(super) fn value(record: &Record) -> Vec<u8> {
    let mut out = Vec::with_capacity(SUM + FIXED + 16);
    push_value(&mut out, record);
    out
}

/// Appends the value of a record.
pub(super) fn push_value(out: &mut Vec<u8>, record: &Record) {
    let at = out.len();
    out.extend_from_slice(&[0; SUM]);
    push_body(out, record);
    let sum = checksum(&key(record.outcome.seq()), &out[at + SUM..]);
    out[at..at + SUM].copy_from_slice(&sum.to_le_bytes());
}

/// Encodes the value of a record without its checksum.
pub(super) fn body(record: &Record) -> Vec<u8> {
    let mut out = Vec::with_capacity(FIXED + 16);
    push_body(&mut out, record);
    out
}

fn push_body(out: &mut Vec<u8>, record: &Record) {
    let (ended, left) = match record.outcome {
        OrderOutcome::Done { left, .. } => (0, left),
        OrderOutcome::Refused { why: Refused::NotEnough, .. } => (1, 0),
        OrderOutcome::Refused { why: Refused::UnknownStock, .. } => (2, 0),
        OrderOutcome::Refused { why: Refused::TooMany, .. } => (3, 0),
    };
    let mut fixed = [0; FIXED];
    fixed[0] = u8::from(record.order.side() == Side::Sell);
    fixed[1] = ended;
    fixed[2..6].copy_from_slice(&record.order.stock().to_le_bytes());
    fixed[6..10].copy_from_slice(&record.order.count().to_le_bytes());
    fixed[10..14].copy_from_slice(&left.to_le_bytes());
    if let Some(request_id) = &record.request_id {
        fixed[14] = 1;
        fixed[15..].copy_from_slice(&request_id.request.to_le_bytes());
    }
    out.extend_from_slice(&fixed);
    if let Some(request_id) = &record.request_id {
        out.extend_from_slice(request_id.client.as_bytes());
    }
}

/// Decodes a record; returns `None` if it is invalid.
pub(super) fn record(key: &[u8], value: &[u8]) -> Option<Record> {
    let seq = seq(key)?;
    let (sum, body) = value.split_at_checked(SUM)?;
    if sum != checksum(key, body).to_le_bytes() {
        return None;
    }
    let (fixed, name) = body.split_at_checked(FIXED)?;
    let number = |at: usize| fixed.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let (stock, count, left) = (number(2)?, number(6)?, number(10)?);
    let side = match fixed[0] {
        0 => Side::Buy,
        1 => Side::Sell,
        _ => return None,
    };
    let refused = |why| OrderOutcome::Refused { why, seq };
    let outcome = match fixed[1] {
        0 => OrderOutcome::Done { left, seq },
        1 => refused(Refused::NotEnough),
        2 => refused(Refused::UnknownStock),
        3 => refused(Refused::TooMany),
        _ => return None,
    };
    let request = u64::from_le_bytes(fixed[15..].try_into().ok()?);
    let request_id = match fixed[14] {
        0 if name.is_empty() => None,
        1 => Some(RequestId { client: Arc::from(std::str::from_utf8(name).ok()?), request }),
        _ => return None,
    };
    Some(Record { order: Order::new(side, stock, count)?, outcome, request_id })
}

/// Encodes the remaining shares and the price of a stock.
pub(super) fn stock(left: u32, price: u32) -> [u8; 8] {
    let mut out = [0; 8];
    out[..4].copy_from_slice(&left.to_le_bytes());
    out[4..].copy_from_slice(&price.to_le_bytes());
    out
}

/// Decodes the remaining shares and the price of a stock.
pub(super) fn left_and_price(bytes: &[u8]) -> Option<(u32, u32)> {
    let number = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    if bytes.len() == 8 { number(0).zip(number(4)) } else { None }
}

/// Encodes hashes.
pub(super) fn hashes(hashes: &[u64]) -> Vec<u8> {
    hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect()
}

/// Decodes hashes.
pub(super) fn hashes_of(bytes: &[u8]) -> Option<Vec<u64>> {
    let (whole, rest) = bytes.as_chunks::<8>();
    rest.is_empty().then(|| whole.iter().map(|hash| u64::from_le_bytes(*hash)).collect())
}

/// Returns the length without trailing zeros. Compares whole blocks, because most of a preallocated
/// log can be zeros.
pub(super) fn used(bytes: &[u8]) -> usize {
    const ZEROS: [u8; 4096] = [0; 4096];
    let is_used = |block: &&[u8]| **block != ZEROS[..block.len()];
    let last = bytes.chunks(ZEROS.len()).enumerate().rfind(|(_, block)| is_used(block));
    last.map_or(0, |(at, block)| {
        let used = block.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        at * ZEROS.len() + used
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_read_back_and_other_bytes_are_rejected(
            is_sale: bool, id: u32, count in 1u32..=2_147_483_647, left: u32, ended in 0u8..4,
            request_id in proptest::option::of(("[a-z]{1,9}", any::<u64>())), at: u64,
            odd in proptest::collection::vec(any::<u8>(), 0..40), bit: usize,
        ) {
            let side = if is_sale { Side::Sell } else { Side::Buy };
            let refused = [Refused::NotEnough, Refused::UnknownStock, Refused::TooMany];
            let outcome = match ended {
                0 => OrderOutcome::Done { left, seq: at },
                n => OrderOutcome::Refused { why: refused[n as usize - 1], seq: at },
            };
            let request_id = request_id.map(|(name, request)| RequestId { client: Arc::from(name), request });
            let before = Record { order: Order::new(side, id, count).unwrap(), outcome, request_id };
            let bytes = value(&before);
            prop_assert_eq!(record(&key(at), &bytes), Some(before));
            prop_assert_eq!(record(&key(at), &bytes[..bytes.len() - 1]), None);
            prop_assert_eq!(record(&key(at ^ 1), &bytes), None);
            let mut flipped = bytes.clone();
            flipped[bit / 8 % bytes.len()] ^= 1 << (bit % 8);
            prop_assert_eq!(record(&key(at), &flipped), None);
            // Any bytes are either decoded completely or rejected, even if the checksum is valid.
            let sum = checksum(&key(at), &odd).to_le_bytes();
            if let Some(read) = record(&key(at), &[&sum[..], &odd].concat()) {
                prop_assert_eq!(body(&read).len(), odd.len());
            }
            prop_assert_eq!(left_and_price(&stock(left, id)), Some((left, id)));
            prop_assert_eq!(hashes_of(&hashes(&[at, 7])), Some(vec![at, 7]));
        }
    }
}
