//! The HTTP subset needed for monitoring: `GET` and `HEAD` of `/show`, `/metrics` and `/healthz`,
//! with keep-alive.
//!
//! A request with a body is rejected and closes the connection, as does a request without
//! `Authorization: Bearer TOKEN` if the server requires a token. The head is parsed by `httparse`,
//! which borrows from the buffer and does not allocate.

use super::request::{Command, Form, LINE_MAX, Request, Step};
use super::syntax::{put, put_line, words};
use crate::answer::{Answer, Fault, Local};
use crate::token::Token;
use httparse::{EMPTY_HEADER, Error, Status};

/// Leading words that identify HTTP.
pub(super) const METHODS: [&[u8]; 6] =
    [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS "];
/// Maximum number of header fields.
const FIELDS_MAX: usize = 100;

pub(super) fn step(bytes: &[u8], token: Option<&Token>) -> Step {
    let last = |fault| Step::Last(Request::fault(fault, form(false, bytes)));
    // httparse skips empty lines before a request line; this server has always rejected them.
    if matches!(bytes.first(), Some(b'\r' | b'\n')) {
        return last(Fault::Frame);
    }
    let mut fields = [EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    let used = match head.parse(&bytes[..bytes.len().min(LINE_MAX)]) {
        Ok(Status::Complete(used)) => used,
        Ok(Status::Partial) if bytes.len() < LINE_MAX => return Step::Need,
        Ok(Status::Partial) | Err(Error::TooManyHeaders) => return last(Fault::TooLong),
        Err(_) => return last(Fault::Frame),
    };
    let mut is_authorized = token.is_none();
    let mut keep = head.version == Some(1);
    let mut has_body = false;
    for field in head.headers.iter() {
        let (name, value) = (field.name, field.value.trim_ascii());
        if name.eq_ignore_ascii_case("connection") {
            let mut options = value.split(|b| *b == b',').map(<[u8]>::trim_ascii);
            keep = keep && !options.any(|option| option.eq_ignore_ascii_case(b"close"));
        } else if name.eq_ignore_ascii_case("content-length") {
            has_body |= value != b"0";
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            has_body = true;
        } else if name.eq_ignore_ascii_case("authorization") {
            is_authorized |= is_bearer(value, token);
        }
    }
    let path = head.path.unwrap_or_default().split('?').next().unwrap_or_default();
    let command = match (head.method, path) {
        _ if has_body => Command::Local(Local::Fault(Fault::Frame)),
        _ if !is_authorized => Command::Local(Local::Fault(Fault::Token)),
        (Some("GET" | "HEAD"), "/show") => Command::Show,
        (Some("GET" | "HEAD"), "/metrics") => Command::Metrics,
        (Some("GET" | "HEAD"), "/healthz") => Command::Health,
        (Some("GET" | "HEAD"), _) => Command::Local(Local::NoPage),
        _ => Command::Local(Local::NoMethod),
    };
    keep &= !has_body && is_authorized && command != Command::Local(Local::NoMethod);
    let request = Request::plain(command, form(keep, bytes));
    if keep { Step::Got(used, request) } else { Step::Last(request) }
}

/// Returns the answer form for a request that begins with `bytes`.
fn form(keep: bool, bytes: &[u8]) -> Form {
    Form::Http { keep, page: !bytes.starts_with(b"HEAD ") }
}

/// Reports whether an `Authorization` value contains the token.
fn is_bearer(value: &[u8], token: Option<&Token>) -> bool {
    let mut words = words(value);
    let (scheme, word) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    scheme.eq_ignore_ascii_case(b"bearer") && token.is_some_and(|token| token.is(word))
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
