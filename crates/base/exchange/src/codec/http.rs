//! The HTTP subset needed for monitoring: `GET` and `HEAD` of `/show`, `/metrics`, `/healthz`
//! and `/readyz`, with keep-alive.
//!
//! A request with another method or with a body is rejected and closes the connection, as does
//! HTTP/1.1 without exactly one `Host` field, and a request without exactly one `Authorization: Bearer TOKEN` if the server
//! requires a token: with several fields, a proxy could have checked another one than this server.
//! The head is parsed by `httparse`, which borrows from the buffer and does not allocate.

use super::request::{Command, Form, LINE_MAX, Request, Step};
use super::syntax::{put, put_line, without_return};
use crate::answer::{Answer, Fault, Local};
use crate::token::Access;
use httparse::{EMPTY_HEADER, Error, Header, Status};

/// Leading words that identify HTTP before the request line is complete.
pub(super) const METHODS: [&[u8]; 6] =
    [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS "];
/// Start of a bearer token in an `Authorization` field, in any case.
const BEARER: &[u8] = b"bearer ";
/// Maximum number of header fields.
const FIELDS_MAX: usize = 100;

/// Reports whether a line is a request line, with any method.
pub(super) fn is_request_line(line: &[u8]) -> bool {
    let mut words = without_return(line).split(|b| *b == b' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next());
    let version = words.next().unwrap_or_default();
    let is_token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
    let is_method = !method.is_empty() && method.iter().all(is_token);
    is_method && target.is_some() && version.starts_with(b"HTTP/") && words.next().is_none()
}

pub(super) fn step(bytes: &[u8], access: Option<&Access>) -> Step {
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
    let is_current = head.version == Some(1);
    let fields = Fields::read(head.headers, access);
    let is_authorized = access.is_none() || fields.tokens == (1, true);
    // HTTP/1.0 has no Host field; if it is sent, it must be valid.
    let has_host = fields.hosts == (1, true) || (fields.hosts.0 == 0 && !is_current);
    let path = path(head.path.unwrap_or_default());
    let command = match (head.method, path) {
        _ if !has_host => Command::Local(Local::Fault(Fault::Host)),
        _ if !is_authorized => Command::Local(Local::Fault(Fault::Token)),
        // The connection closes, so a body is not mistaken for requests.
        (method, _) if !matches!(method, Some("GET" | "HEAD")) => Command::Local(Local::NoMethod),
        _ if fields.has_body => Command::Local(Local::Fault(Fault::Frame)),
        (_, "/show") => Command::Show,
        (_, "/metrics") => Command::Metrics,
        (_, "/healthz") => Command::Health,
        (_, "/readyz") => Command::Ready,
        _ => Command::Local(Local::NoPage),
    };
    let is_valid = !matches!(command, Command::Local(Local::Fault(_) | Local::NoMethod));
    let keep = is_current && !fields.closes && is_valid;
    let request = Request::plain(command, form(keep, bytes));
    if keep { Step::Got(used, request) } else { Step::Last(request) }
}

/// Returns the path of a request target without its query. Servers must accept the absolute form,
/// which clients send to proxies.
fn path(target: &str) -> &str {
    let target = target.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = target.split_once("://").unwrap_or_default();
    if ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return rest.find('/').map_or("/", |at| &rest[at..]);
    }
    target
}

/// What the header fields of a request say.
#[derive(Default)]
struct Fields {
    closes: bool,
    has_body: bool,
    /// Number of `Host` fields, and whether the latest one is valid.
    hosts: (usize, bool),
    /// Number of `Authorization` fields, and whether the latest one contains a token.
    tokens: (usize, bool),
}

impl Fields {
    fn read(fields: &[Header<'_>], access: Option<&Access>) -> Self {
        let mut found = Self::default();
        for field in fields {
            let (name, value) = (field.name, field.value.trim_ascii());
            if name.eq_ignore_ascii_case("connection") {
                let mut options = value.split(|b| *b == b',').map(<[u8]>::trim_ascii);
                found.closes |= options.any(|option| option.eq_ignore_ascii_case(b"close"));
            } else if name.eq_ignore_ascii_case("content-length") {
                found.has_body |= value != b"0";
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                found.has_body = true;
            } else if name.eq_ignore_ascii_case("host") {
                let is_valid = value.iter().all(|b| b.is_ascii_graphic() && *b != b',');
                found.hosts = (found.hosts.0 + 1, is_valid);
            } else if name.eq_ignore_ascii_case("authorization") {
                found.tokens = (found.tokens.0 + 1, is_bearer(value, access));
            }
        }
        found
    }
}

/// Returns the answer form for a request that begins with `bytes`.
fn form(keep: bool, bytes: &[u8]) -> Form {
    Form::Http { keep, page: !bytes.starts_with(b"HEAD ") }
}

/// Reports whether an `Authorization` value is `Bearer`, one or more spaces, and one of the tokens.
fn is_bearer(value: &[u8], access: Option<&Access>) -> bool {
    let Some((scheme, rest)) = value.split_at_checked(BEARER.len()) else { return false };
    let spaces = rest.iter().take_while(|b| **b == b' ').count();
    let is_known = |access: &Access| access.rights(&rest[spaces..]).is_some();
    scheme.eq_ignore_ascii_case(BEARER) && access.is_some_and(is_known)
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
        Answer::NotReady(text) => {
            body.extend_from_slice(text.as_bytes());
            "503 Service Unavailable"
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
