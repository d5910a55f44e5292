//! Lines, words and numbers shared by the protocols.

use super::request::LINE_MAX;
use crate::stock::{Line, Order, Side};
use std::io::Write;

/// Returns the first line without its terminator and the number of bytes consumed, or `None` if the
/// terminator is missing.
pub(super) fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.iter().take(LINE_MAX).position(|b| *b == b'\n')?;
    Some((without_return(&bytes[..end]), end + 1))
}

/// Strips a trailing carriage return.
pub(super) fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Splits a line at whitespace.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// Parses a number written in digits only.
pub(super) fn number(word: &[u8]) -> Option<u64> {
    if word.is_empty() || word.len() > 20 || !word.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |value: u64, b: &u8| value.checked_mul(10)?.checked_add(u64::from(b - b'0'));
    word.iter().try_fold(0, digit)
}

/// Parses an order from its stock and count words.
pub(super) fn order(side: Side, stock: &[u8], count: &[u8]) -> Option<Order> {
    let stock = u32::try_from(number(stock)?).ok()?;
    Order::new(side, stock, u32::try_from(number(count)?).ok()?)
}

/// Appends formatted text.
pub(super) fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to memory cannot fail.
    let _ = out.write_fmt(text);
}

/// Appends a decimal number. Every answer contains one, so this avoids the cost of `fmt`.
pub(super) fn put_number(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends `NUMBER LEFT PRICE` and a newline.
pub(super) fn put_line(out: &mut Vec<u8>, line: &Line) {
    put_number(out, line.id.into());
    out.push(b' ');
    put_number(out, line.left.into());
    out.push(b' ');
    put_number(out, line.price.into());
    out.push(b'\n');
}
