//! Requests, answers and outcomes in words, for messages.

use crate::client_codec::Response;
use crate::draw::Op;
use crate::history::Outcome;
use ioloom_exchange::Side;
use std::fmt;

/// Maximum number of characters of an answer in a message.
const EXCERPT_MAX: usize = 60;
/// Maximum number of stocks of a list in a message.
const STOCKS_MAX: usize = 8;

/// Returns the beginning of an answer in quotation marks, without padding.
pub(crate) fn excerpt(text: &str) -> String {
    let text = text.replace('\0', "");
    let text = text.trim();
    let beginning: String = text.chars().take(EXCERPT_MAX).collect();
    let more = if beginning.len() < text.len() { "…" } else { "" };
    format!("{beginning:?}{more}")
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Trade(order) = self else { return f.write_str("show") };
        let word = if order.side() == Side::Buy { "buy" } else { "sell" };
        write!(f, "{word} {} {}", order.stock(), order.count())
    }
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done { side, left, .. } => {
                f.write_str(match side {
                    Some(Side::Buy) => "purchase executed",
                    Some(Side::Sell) => "sale executed",
                    None => "executed",
                })?;
                left.map_or(Ok(()), |left| write!(f, ", {left} left"))
            }
            Self::NotEnough => f.write_str("not enough shares left"),
            Self::TooMany => f.write_str("too many shares"),
            Self::Unknown => f.write_str("unknown stock"),
            Self::Busy => f.write_str("busy"),
            Self::Unsure => f.write_str("unknown outcome"),
            Self::Shown { lines, .. } if lines.len() == 1 => f.write_str("a list of 1 stock"),
            Self::Shown { lines, .. } => write!(f, "a list of {} stocks", lines.len()),
            Self::Hello => f.write_str("a greeting"),
            Self::Plain(text) | Self::Other(text) => f.write_str(&excerpt(text)),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(None) => f.write_str("executed"),
            Self::Done(Some(left)) => write!(f, "executed, {left} left"),
            Self::NotEnough => f.write_str("not enough shares left"),
            Self::TooMany => f.write_str("too many shares"),
            Self::Shown(all) => {
                let words: Vec<String> = all.iter().take(STOCKS_MAX).map(u32::to_string).collect();
                let more = if words.len() < all.len() { ", …" } else { "" };
                write!(f, "{} left{more}", words.join(", "))
            }
            Self::Unknown => f.write_str("no answer"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_exchange::Order;

    #[test]
    fn answers_are_cut_and_without_padding() {
        assert_eq!(excerpt(&format!("{}hello\n{}", "\0".repeat(9000), "\0")), "\"hello\"");
        let long = excerpt(&"ä".repeat(61));
        assert_eq!(long, format!("\"{}\"…", "ä".repeat(60)));
        assert_eq!(Response::Other("\0\0x\u{1b}y".to_owned()).to_string(), "\"x\\u{1b}y\"");
    }

    #[test]
    fn requests_and_outcomes_are_words() {
        let order = Order::new(Side::Buy, 3, 10).unwrap();
        assert_eq!(Op::Trade(order).to_string(), "buy 3 10");
        assert_eq!(Op::Show.to_string(), "show");
        assert_eq!(Outcome::Done(Some(5)).to_string(), "executed, 5 left");
        assert_eq!(Outcome::Shown(vec![1, 2]).to_string(), "1, 2 left");
        let sale = Response::Done { side: Some(Side::Sell), left: None, seq: None };
        assert_eq!(sale.to_string(), "sale executed");
    }
}
