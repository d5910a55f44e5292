//! The line protocol of the original assignment: `show`, `buy ID N`, `sell ID N`, `exit`.
//!
//! Original clients read exactly 8192 bytes per answer and stop at the first NUL, so answers are
//! padded. A list that does not fit is truncated at a line end because a longer answer would
//! permanently desynchronise the client. For the same reason every line gets exactly one answer.
//! Some clients also pad their requests: NUL ends a line, and NUL between lines is skipped.

use super::request::{
    ClassicForm, Command, END_MARK, Form, LINE_MAX, PADDED, Request, Settings, Spelling,
};
use super::request::{Step, UnknownStock};
use super::syntax::{order, put_line, without_return, words};
use crate::answer::{Answer, Fault, Local, Stop};
use crate::stock::{Refused, Side};

pub(super) fn step(bytes: &[u8]) -> Step {
    let padding = bytes.iter().take_while(|b| **b == 0).count();
    if padding > 0 {
        return Step::Skip(padding);
    }
    let end = bytes.iter().take(LINE_MAX).position(|b| matches!(b, b'\n' | 0));
    match end {
        Some(end) => read(without_return(&bytes[..end]), end + 1),
        None if bytes.len() < LINE_MAX => Step::Need,
        None => Step::Last(Request::fault(Fault::TooLong, Form::Classic(None))),
    }
}

fn read(line: &[u8], used: usize) -> Step {
    let mut words = words(line);
    let command = words.next().unwrap_or_default();
    let (first, second, third) = (words.next(), words.next(), words.next());
    let side = match command {
        b"buy" => Side::Buy,
        b"sell" => Side::Sell,
        b"show" if first.is_none() => {
            return Step::Got(used, Request::plain(Command::Show, Form::Classic(None)));
        }
        b"exit" if first.is_none() => {
            return Step::Last(Request::local(Local::Bye, Form::Classic(None)));
        }
        _ => return Step::Got(used, Request::fault(Fault::Command, Form::Classic(None))),
    };
    let form = Form::Classic(Some(side));
    let order = match (first, second, third) {
        (Some(stock), Some(count), None) => order(side, stock, count),
        _ => None,
    };
    let fault = || Request::fault(Fault::Number, form);
    Step::Got(used, order.map_or_else(fault, |order| Request::plain(Command::Trade(order), form)))
}

pub(super) fn encode(side: Option<Side>, settings: &Settings, answer: &Answer, out: &mut Vec<u8>) {
    if matches!(answer, Answer::Local(Local::Bye)) {
        return;
    }
    let start = out.len();
    match answer {
        Answer::Shown(shown) => {
            for line in &shown.lines {
                let before = out.len();
                put_line(out, line);
                // Leave room for the NUL terminator.
                if settings.classic == ClassicForm::Padded && out.len() - start >= PADDED {
                    out.truncate(before);
                    break;
                }
            }
        }
        Answer::Text(text) | Answer::NotReady(text) => {
            let most = text.len().min(PADDED - 1);
            out.extend_from_slice(&text.as_bytes()[..most]);
        }
        _ => out.extend_from_slice(text(side, settings, answer).as_bytes()),
    }
    match settings.classic {
        ClassicForm::Padded => out.resize(start + PADDED, 0),
        ClassicForm::Line => {}
        ClassicForm::Marked => out.extend_from_slice(END_MARK.as_bytes()),
    }
}

fn text(side: Option<Side>, settings: &Settings, answer: &Answer) -> &'static str {
    let success = match side {
        Some(Side::Sell) => "[sell] success\n",
        _ => "[buy] success\n",
    };
    let not_enough = match settings.spelling {
        Spelling::Official => "Not enough left stocks\n",
        Spelling::Short => "Not enough left stock\n",
    };
    match answer {
        Answer::Done { .. } => success,
        Answer::Refused(Refused::NotEnough) => not_enough,
        Answer::Refused(Refused::UnknownStock) => match (settings.unknown, side) {
            (UnknownStock::Say, _) => "No such stock\n",
            (UnknownStock::AsFirst, Some(Side::Sell)) => success,
            (UnknownStock::AsFirst, _) => not_enough,
        },
        Answer::Refused(Refused::TooMany) => "Too many stocks\n",
        Answer::Stopped(Stop::Busy) => "BUSY\n",
        Answer::Stopped(Stop::Unsure) => "Unknown outcome\n",
        Answer::Stopped(_) => "Too late\n",
        Answer::Local(Local::Fault(Fault::TooLong)) => "Line too long\n",
        Answer::Local(Local::Fault(Fault::Number)) => "Invalid number\n",
        Answer::Local(Local::Fault(Fault::Token)) => "Token needed\n",
        Answer::Local(_) | Answer::Shown(_) | Answer::Text(_) | Answer::NotReady(_) => {
            "Invalid command\n"
        }
    }
}
