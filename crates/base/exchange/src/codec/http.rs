//! HTTP, as much of it as watchers need: `GET /show`, `/metrics` and `/healthz`, on a connection
//! that may stay open, and `HEAD` of the same, which is answered without the page. A request with a
//! body is refused and ends the connection, and so is one without `Authorization: Bearer TOKEN` where
//! the server asks for a token.

use super::{Command, Form, LINE_MAX, Request, Step, put, put_line, without_return, words};
use crate::answer::{Answer, Fault, Local};
use crate::token::Token;

/// First words by which a question of HTTP is known.
pub(super) const METHODS: [&[u8]; 6] =
    [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS "];

pub(super) fn step(bytes: &[u8], token: Option<&Token>) -> Step {
    let Some(used) = head_len(bytes) else {
        if bytes.len() < LINE_MAX {
            return Step::Need;
        }
        return Step::Last(Request::fault(Fault::TooLong, form(false, bytes)));
    };
    let mut lines = bytes[..used].split(|b| *b == b'\n').map(without_return);
    let mut first = lines.next().unwrap_or_default().split(|b| *b == b' ');
    let (method, path, version) = (first.next(), first.next(), first.next());
    let mut shown = token.is_none();
    let mut keep = version == Some(b"HTTP/1.1");
    let mut has_body = false;
    for line in lines {
        let mut parts = line.splitn(2, |b| *b == b':');
        let name = parts.next().unwrap_or_default();
        let value = parts.next().unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"connection") {
            let mut options = value.split(|b| *b == b',').map(<[u8]>::trim_ascii);
            keep = keep && !options.any(|option| option.eq_ignore_ascii_case(b"close"));
        } else if name.eq_ignore_ascii_case(b"content-length") {
            has_body |= value != b"0";
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            has_body = true;
        } else if name.eq_ignore_ascii_case(b"authorization") {
            shown |= is_shown(value, token);
        }
    }
    let known = matches!(version, Some(b"HTTP/1.1" | b"HTTP/1.0")) && first.next().is_none();
    let path = path.unwrap_or_default().split(|b| *b == b'?').next().unwrap_or_default();
    let ask = match (method, path) {
        _ if !known || has_body => Command::Local(Local::Fault(Fault::Frame)),
        _ if !shown => Command::Local(Local::Fault(Fault::Token)),
        (Some(b"GET" | b"HEAD"), b"/show") => Command::Show,
        (Some(b"GET" | b"HEAD"), b"/metrics") => Command::Metrics,
        (Some(b"GET" | b"HEAD"), b"/healthz") => Command::Health,
        (Some(b"GET" | b"HEAD"), _) => Command::Local(Local::NoPage),
        _ => Command::Local(Local::NoMethod),
    };
    keep &= known && !has_body && shown && !matches!(ask, Command::Local(Local::NoMethod));
    let request = Request::plain(ask, form(keep, bytes));
    if keep { Step::Got(used, request) } else { Step::Last(request) }
}

/// The form of the answer to a question that begins so.
fn form(keep: bool, bytes: &[u8]) -> Form {
    Form::Http { keep, page: !bytes.starts_with(b"HEAD ") }
}

/// Whether the value of an authorization shows the token.
fn is_shown(value: &[u8], token: Option<&Token>) -> bool {
    let mut words = words(value);
    let (scheme, word) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    scheme.eq_ignore_ascii_case(b"bearer") && token.is_some_and(|token| token.is(word))
}

/// The bytes up to and with the empty line that ends a head.
fn head_len(bytes: &[u8]) -> Option<usize> {
    let bytes = &bytes[..bytes.len().min(LINE_MAX)];
    let mut ends = bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at);
    let mut line = ends.next()? + 1;
    for end in ends {
        if without_return(&bytes[line..end]).is_empty() {
            return Some(end + 1);
        }
        line = end + 1;
    }
    None
}

pub(super) fn encode(keep: bool, page: bool, answer: &Answer, out: &mut Vec<u8>) {
    let mut body = Vec::new();
    let status = match answer {
        Answer::Shown(shown) => {
            shown.lines.iter().for_each(|line| put_line(&mut body, line));
            "200 OK"
        }
        Answer::Text(text) => {
            body.extend_from_slice(text.as_bytes());
            "200 OK"
        }
        Answer::Local(Local::NoPage) => "404 Not Found",
        Answer::Local(Local::NoMethod) => "405 Method Not Allowed",
        Answer::Local(Local::Fault(Fault::TooLong)) => "431 Request Header Fields Too Large",
        Answer::Local(Local::Fault(Fault::Token)) => "401 Unauthorized",
        Answer::Stopped(_) => "503 Service Unavailable",
        _ => "400 Bad Request",
    };
    if body.is_empty() {
        put(&mut body, format_args!("{}\n", &status[4..]));
    }
    let kind = "text/plain; charset=utf-8";
    let more = match &status[..3] {
        "401" => "WWW-Authenticate: Bearer\r\n",
        "405" => "Allow: GET, HEAD\r\n",
        _ => "",
    };
    let close = if keep { "" } else { "Connection: close\r\n" };
    let len = body.len();
    put(
        out,
        format_args!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\n{more}{close}\r\n"
        ),
    );
    if page {
        out.extend_from_slice(&body);
    }
}
