//! Buckets, objects and uploads.

use crate::data::Data;
use crate::http::{Body, Request, Response};
use crate::law::Pages;
use md5::{Digest, Md5};
use std::collections::BTreeMap;
use std::ops::{Bound, Range};

/// Name of the bucket that exists from the start.
pub const BUCKET: &str = "bucket";
/// Name of a bucket to which every access is denied.
pub const DENIED: &str = "denied";

/// The contents of an object, and their version.
#[derive(Debug, Clone)]
pub struct Contents {
    pub(crate) data: Data,
    /// With quotation marks.
    e_tag: String,
    /// Another header.
    header: Option<(&'static str, String)>,
}

impl<T: Into<Vec<u8>>> From<T> for Contents {
    fn from(bytes: T) -> Self {
        let bytes: Vec<u8> = bytes.into();
        let e_tag = format!("\"{}\"", hex(&Md5::digest(&bytes)));
        Self { e_tag, data: bytes.into(), header: None }
    }
}

impl Contents {
    /// Returns so many bytes of the pattern of [`crate::pattern`], which are not held in memory.
    pub fn pattern(len: u64) -> Self {
        Self { data: Data::Pattern(len), e_tag: "\"pattern\"".to_owned(), header: None }
    }

    /// Returns the contents with another version than their MD5.
    pub fn with_version(self, version: &str) -> Self {
        Self { e_tag: format!("\"{version}\""), ..self }
    }

    /// Returns the contents with another header of the responses.
    pub fn with_header(self, name: &'static str, value: &str) -> Self {
        Self { header: Some((name, value.to_owned())), ..self }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(digits: &str) -> Vec<u8> {
    let pairs = (0..digits.len() / 2).map(|at| digits.get(2 * at..2 * at + 2));
    pairs.map(|pair| pair.and_then(|text| u8::from_str_radix(text, 16).ok()).unwrap_or(0)).collect()
}

/// An upload in parts.
#[derive(Debug)]
struct Upload {
    bucket: String,
    key: String,
    parts: BTreeMap<u32, Contents>,
}

/// All buckets.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    buckets: BTreeMap<String, BTreeMap<String, Contents>>,
    uploads: BTreeMap<String, Upload>,
    begun: u64,
    replaced: u64,
    /// Whether only lengths and sums of contents are kept.
    pub(crate) forgets: bool,
    /// How the pages of listings follow each other.
    pub(crate) pages: Pages,
    /// Whether listings have all objects.
    pub(crate) ignores_prefix: bool,
}

impl Buckets {
    pub(crate) fn with(names: [&str; 2]) -> Self {
        let buckets = names.map(|name| (name.to_owned(), BTreeMap::new())).into();
        Self { buckets, ..Self::default() }
    }

    pub(crate) fn put(&mut self, bucket: &str, key: &str, contents: Contents) {
        self.buckets.entry(bucket.to_owned()).or_default().insert(key.to_owned(), contents);
    }

    pub(crate) fn get(&self, bucket: &str, key: &str) -> Option<&Contents> {
        self.buckets.get(bucket)?.get(key)
    }

    pub(crate) fn remove(&mut self, bucket: &str, key: &str) {
        if let Some(all) = self.buckets.get_mut(bucket) {
            all.remove(key);
        }
    }

    pub(crate) fn keys(&self, bucket: &str) -> Vec<String> {
        self.buckets.get(bucket).map(|all| all.keys().cloned().collect()).unwrap_or_default()
    }

    pub(crate) fn open_uploads(&self) -> usize {
        self.uploads.len()
    }

    /// Replaces an object by another one of the same size.
    pub(crate) fn replace(&mut self, bucket: &str, key: &str) {
        self.replaced += 1;
        let mark = self.replaced.to_le_bytes();
        if let Some(old) = self.get(bucket, key) {
            let mut bytes = old.data.to_vec();
            bytes.iter_mut().zip(mark).for_each(|(byte, mark)| *byte ^= mark | 0x80);
            self.put(bucket, key, bytes.into());
        }
    }

    /// Takes the contents of a request.
    fn received(&self, request: &mut Request) -> Contents {
        let mut contents = Contents::from(std::mem::take(&mut request.body));
        if self.forgets {
            contents.data = Data::Pattern(contents.data.len());
        }
        contents
    }

    /// Answers a request. A page of a listing has at most `page` objects.
    pub(crate) fn answer(&mut self, request: &mut Request, page: usize) -> Response {
        let (bucket, key) = (&request.bucket.clone(), &request.key.clone());
        if bucket == DENIED {
            return Response::error(403, "AccessDenied", "Access Denied");
        }
        if !self.buckets.contains_key(bucket) {
            return no_bucket();
        }
        let upload = request.query.get("uploadId").cloned();
        match (request.method.clone().as_str(), upload.as_deref()) {
            ("GET", None) if key.is_empty() => self.list(request, page),
            ("GET" | "HEAD", None) => self.read(request),
            ("PUT", None) => {
                let contents = self.received(request);
                let e_tag = contents.e_tag.clone();
                self.put(bucket, key, contents);
                Response { status: 200, headers: vec![("etag", e_tag)], ..Response::default() }
            }
            ("DELETE", None) => {
                self.buckets.entry(bucket.clone()).or_default().remove(key);
                Response { status: 204, ..Response::default() }
            }
            ("POST", None) if request.query.contains_key("uploads") => self.begin(request),
            ("PUT", Some(id)) => self.part(id, request),
            ("POST", Some(id)) => self.complete(id, request),
            ("DELETE", Some(id)) => match self.uploads.remove(id) {
                Some(_) => Response { status: 204, ..Response::default() },
                None => no_upload(),
            },
            _ => Response::error(501, "NotImplemented", "not implemented"),
        }
    }

    fn read(&self, request: &Request) -> Response {
        let Some(contents) = self.get(&request.bucket, &request.key) else {
            return Response::error(404, "NoSuchKey", "The specified key does not exist.");
        };
        if request.header("if-match").is_some_and(|wanted| wanted != contents.e_tag) {
            let text = "At least one of the pre-conditions you specified did not hold";
            return Response::error(412, "PreconditionFailed", text);
        }
        let total = contents.data.len();
        let mut headers = vec![
            ("etag", contents.e_tag.clone()),
            ("last-modified", "Tue, 01 Jul 2025 00:00:00 GMT".to_owned()),
            ("accept-ranges", "bytes".to_owned()),
        ];
        headers.extend(contents.header.clone());
        if request.is_head() {
            // The response has no contents, so the length is set here.
            return Response { status: 200, headers, body: Body::all(contents.data.clone()) };
        }
        let range = match request.header("range").map(|text| parse_range(text, total)) {
            None => 0..total,
            Some(Some(range)) => {
                let text = format!("bytes {}-{}/{total}", range.start, range.end - 1);
                headers.push(("content-range", text));
                range
            }
            Some(None) => {
                return Response::error(416, "InvalidRange", "The range is not satisfiable");
            }
        };
        let status = if request.header("range").is_some() { 206 } else { 200 };
        Response { status, headers, body: Body { data: contents.data.clone(), range } }
    }

    fn list(&self, request: &Request, page: usize) -> Response {
        let get = |name: &str| request.query.get(name).map(String::as_str).unwrap_or_default();
        let prefix = if self.ignores_prefix { "" } else { get("prefix") };
        let token = get("continuation-token");
        let after = if token.is_empty() { get("start-after") } else { token };
        let start =
            if after.is_empty() { Bound::Unbounded } else { Bound::Excluded(after.to_owned()) };
        let all = &self.buckets[&request.bucket];
        let found = all.range((start, Bound::Unbounded)).filter(|(key, _)| key.starts_with(prefix));
        let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult>");
        let (mut last, mut is_last) = (None, true);
        for (count, (key, contents)) in found.enumerate() {
            if count == page {
                let repeats = self.pages == Pages::Repeated && !token.is_empty();
                text += &next_page(if repeats { token } else { last.unwrap_or(key) });
                is_last = false;
                break;
            }
            text += &format!(
                "<Contents><Key>{}</Key><LastModified>2025-07-01T00:00:00.000Z</LastModified><ETag>{}</ETag><Size>{}</Size></Contents>",
                escaped(key),
                escaped(&contents.e_tag),
                contents.data.len()
            );
            last = Some(key);
        }
        if is_last && self.pages == Pages::Circular {
            text += &next_page("!");
        }
        Response::text(200, text + "</ListBucketResult>")
    }

    fn begin(&mut self, request: &Request) -> Response {
        self.begun += 1;
        let id = format!("upload-{}", self.begun);
        let Request { bucket, key, .. } = request;
        let upload = Upload { bucket: bucket.clone(), key: key.clone(), parts: BTreeMap::new() };
        self.uploads.insert(id.clone(), upload);
        Response::text(
            200,
            format!(
                "<InitiateMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{}</Key><UploadId>{id}</UploadId></InitiateMultipartUploadResult>",
                escaped(key)
            ),
        )
    }

    fn part(&mut self, id: &str, request: &mut Request) -> Response {
        let number = request.query.get("partNumber").and_then(|text| text.parse().ok());
        let contents = self.received(request);
        let (Some(upload), Some(number)) = (self.uploads.get_mut(id), number) else {
            return no_upload();
        };
        let e_tag = contents.e_tag.clone();
        upload.parts.insert(number, contents);
        Response { status: 200, headers: vec![("etag", e_tag)], ..Response::default() }
    }

    fn complete(&mut self, id: &str, request: &Request) -> Response {
        let Some(upload) = self.uploads.get(id) else { return no_upload() };
        let document = String::from_utf8_lossy(&request.body).replace("&quot;", "\"");
        let (mut bytes, mut sums, mut len) = (Vec::new(), Vec::new(), 0);
        for part in document.split("<Part>").skip(1) {
            let number = between(part, "PartNumber").and_then(|text| text.parse::<u32>().ok());
            let found = number.and_then(|number| upload.parts.get(&number));
            let Some(found) = found.filter(|found| between(part, "ETag") == Some(&found.e_tag))
            else {
                return Response::error(
                    400,
                    "InvalidPart",
                    "One or more of the specified parts could not be found",
                );
            };
            len += found.data.len();
            if !self.forgets {
                bytes.extend(found.data.to_vec());
            }
            sums.push(unhex(found.e_tag.trim_matches('"')));
        }
        let e_tag = format!("\"{}-{}\"", hex(&Md5::digest(sums.concat())), sums.len());
        let data = if self.forgets { Data::Pattern(len) } else { bytes.into() };
        let contents = Contents { data, e_tag: e_tag.clone(), header: None };
        let (bucket, key) = (upload.bucket.clone(), upload.key.clone());
        self.uploads.remove(id);
        self.put(&bucket, &key, contents);
        Response::text(
            200,
            format!(
                "<CompleteMultipartUploadResult><Bucket>{BUCKET}</Bucket><Key>{}</Key><ETag>{}</ETag></CompleteMultipartUploadResult>",
                escaped(&key),
                escaped(&e_tag)
            ),
        )
    }
}

pub(crate) fn no_bucket() -> Response {
    Response::error(404, "NoSuchBucket", "The specified bucket does not exist")
}

fn no_upload() -> Response {
    Response::error(404, "NoSuchUpload", "The specified upload does not exist")
}

fn next_page(token: &str) -> String {
    let token = escaped(token);
    format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>")
}

fn between<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Parses `bytes=START-END`.
fn parse_range(text: &str, total: u64) -> Option<Range<u64>> {
    let (start, end) = text.strip_prefix("bytes=")?.split_once('-')?;
    let start: u64 = start.parse().ok()?;
    let end = match end {
        "" => total,
        end => end.parse::<u64>().ok()?.checked_add(1)?.min(total),
    };
    (start < end).then_some(start..end)
}
