//! Requests and responses as bytes of HTTP/1.1.

use crate::data::Data;
use crate::law::Target;
use std::collections::BTreeMap;
use std::io::{BufRead, BufWriter, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::time::Duration;

/// Largest body that is accepted.
const BODY_MAX: u64 = 256 << 20;

/// A parsed request.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) bucket: String,
    pub(crate) key: String,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// Reads the next request, with a pause before each eighth of its body; `None` at the end of the
    /// connection.
    pub(crate) fn read(reader: &mut impl BufRead, pause: Duration) -> Option<Self> {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let mut words = line.split_whitespace();
        let (method, target) = (words.next()?.to_owned(), words.next()?);
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = decoded(path.trim_start_matches('/'));
        let (bucket, key) = path.split_once('/').unwrap_or((&path, ""));
        let query = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(&value.replace('+', " ")))
        });
        let mut request = Self {
            method,
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            query: query.collect(),
            ..Self::default()
        };
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':')?;
            request.headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let length = request.header("content-length").map_or(Some(0), |text| text.parse().ok())?;
        if length > BODY_MAX {
            return None;
        }
        let part = if pause.is_zero() { length } else { length.div_ceil(8) };
        while (request.body.len() as u64) < length {
            std::thread::sleep(pause);
            let left = length - request.body.len() as u64;
            if reader.take(part.min(left)).read_to_end(&mut request.body).ok()? == 0 {
                return None;
            }
        }
        (request.body.len() as u64 == length).then_some(request)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    pub(crate) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Returns its kind.
    pub(crate) fn target(&self) -> Target {
        let has = |name| self.query.contains_key(name);
        match self.method.as_str() {
            "GET" if self.key.is_empty() => Target::List,
            "GET" => Target::Read,
            "HEAD" => Target::Describe,
            "PUT" if has("uploadId") => Target::Part,
            "PUT" => Target::Write,
            "POST" if has("uploads") => Target::Begin,
            "POST" if has("uploadId") => Target::Complete,
            "DELETE" if has("uploadId") => Target::Abort,
            _ => Target::Other,
        }
    }
}

/// Replaces `%XX`.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let code = more.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &more[2..];
            }
            _ => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Contents of a response: a part of some contents.
#[derive(Debug, Clone, Default)]
pub(crate) struct Body {
    pub(crate) data: Data,
    pub(crate) range: Range<u64>,
}

impl Body {
    /// Returns all of some contents.
    pub(crate) fn all(data: Data) -> Self {
        let range = 0..data.len();
        Self { data, range }
    }

    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// A response.
#[derive(Debug, Default)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Body,
}

impl Response {
    pub(crate) fn text(status: u16, text: String) -> Self {
        let headers = vec![("content-type", "application/xml".to_owned())];
        Self { status, headers, body: Body::all(text.into_bytes().into()) }
    }

    pub(crate) fn error(status: u16, code: &str, message: &str) -> Self {
        let text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
        );
        Self::text(status, text)
    }

    fn head(&self) -> Vec<u8> {
        let mut text = format!("HTTP/1.1 {} x\r\n", self.status);
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!("content-length: {}\r\n\r\n", self.body.len());
        text.into_bytes()
    }

    /// Sends the head and a part of the contents. Returns whether that worked.
    fn send_part(&self, mut stream: &TcpStream, part: &Range<u64>) -> bool {
        // Small contents go with the head.
        let mut buffer = BufWriter::with_capacity(64 << 10, &mut stream);
        buffer.write_all(&self.head()).is_ok()
            && self.body.data.write(part, &mut buffer).is_ok()
            && buffer.flush().is_ok()
    }

    /// Sends the response, or only its head. Returns whether that worked.
    pub(crate) fn send(&self, stream: &TcpStream, head_only: bool) -> bool {
        let Range { start, end } = self.body.range;
        self.send_part(stream, &(start..if head_only { start } else { end }))
    }

    /// Sends the first half of the contents. Returns false: the connection ends.
    pub(crate) fn send_cut(&self, stream: &TcpStream) -> bool {
        let start = self.body.range.start;
        self.send_part(stream, &(start..start + self.body.len() / 2));
        false
    }

    /// Sends the contents in eight parts with a pause before each.
    pub(crate) fn send_slowly(&self, mut stream: &TcpStream, pause: Duration) -> bool {
        let Range { start, end } = self.body.range;
        let step = self.body.len().div_ceil(8).max(1);
        stream.write_all(&self.head()).is_ok()
            && (start..end).step_by(step as usize).all(|from| {
                std::thread::sleep(pause);
                self.body.data.write(&(from..end.min(from + step)), &mut stream).is_ok()
            })
    }

    /// Names another size of the object.
    pub(crate) fn with_wrong_total(mut self) -> Self {
        for (name, value) in &mut self.headers {
            if *name == "content-range" {
                value.push('0');
            }
        }
        let end = self.body.range.end.saturating_sub(1).max(self.body.range.start);
        self.body.range.end = end;
        self
    }

    /// Contains less than was requested, consistently.
    pub(crate) fn shortened(mut self) -> Self {
        let half = self.body.len() / 2;
        self.body.range.end = self.body.range.start + half;
        for (name, value) in &mut self.headers {
            if *name == "content-range"
                && let Some((unit, rest)) = value.split_once(' ')
                && let Some((range, total)) = rest.split_once('/')
                && let Some((start, _)) = range.split_once('-')
            {
                let end = start.parse::<u64>().unwrap_or(0) + half.max(1) - 1;
                *value = format!("{unit} {start}-{end}/{total}");
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_parsed() {
        let text = "PUT /b/a%20b/c+d?partNumber=3&uploadId=x%2Fy&list-type= HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcGET";
        let request = Request::read(&mut text.as_bytes(), Duration::ZERO).unwrap();
        assert_eq!(
            (&*request.bucket, &*request.key, &*request.body),
            ("b", "a b/c+d", &b"abc"[..])
        );
        assert_eq!(request.query["uploadId"], "x/y");
        assert_eq!(request.header("host"), Some("h"));
        assert!(Request::read(&mut &b""[..], Duration::ZERO).is_none());
        assert!(
            Request::read(
                &mut &b"GET / HTTP/1.1\r\ncontent-length: 5\r\n\r\nabc"[..],
                Duration::from_micros(1)
            )
            .is_none()
        );
    }
}
