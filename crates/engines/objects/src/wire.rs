//! The HTTP client, with a note of how each request went.
//!
//! The errors of `object_store` do not expose the status, the error code of the server or the kind of
//! a transport failure. All requests pass this client, which keeps these facts in a variable of the
//! task, where the caller of the operation finds them. It costs one small allocation per request.

use crate::cloud::Cloud;
use crate::connect;
use crate::headers::{accept_stored, has_other_sum, mend_headers};
use crate::pace::Pace;
use crate::page::{self, Form, Removed};
use crate::saying::{element, json_message, md5_of};
use futures_util::StreamExt;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use std::cell::RefCell;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest error document that is read.
const ERROR_BYTES: usize = 64 << 10;
/// Longest page of a listing: 1000 keys of 1 KiB, each byte written as a reference, are 10 MB.
const PAGE_BYTES: usize = 32 << 20;
/// Longest other document.
const DOCUMENT_BYTES: usize = 1 << 20;
/// Longest time in which a server completes an upload. Until then it sends single spaces.
const COMPLETING: Duration = Duration::from_secs(900);
/// The metadata service of virtual machines.
const METADATA: &str = "169.254.169.254";
const METADATA_OF_GOOGLE: &str = "metadata.google.internal";

/// How the last request of an operation went, and how many there were.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// Who was asked.
    pub(crate) cloud: Cloud,
    /// Status of the response.
    pub(crate) status: Option<u16>,
    /// Code and message of an error document.
    pub(crate) code: Option<String>,
    pub(crate) message: Option<String>,
    /// Whether there was an error document, of any form.
    pub(crate) has_document: bool,
    /// Region of the bucket, if the server names it.
    pub(crate) region: Option<String>,
    /// Why there was no response.
    pub(crate) transport: Option<(HttpErrorKind, String)>,
    /// Whether there was no response because the limit on open files was reached.
    pub(crate) no_descriptor: bool,
    /// Whether the `ETag` is another sum than the MD5 of the contents: of objects that are encrypted with some keys, or
    /// that consist of segments.
    pub(crate) no_md5: bool,
    /// MD5 of the whole object, where a header gives it. S3 has none.
    pub(crate) md5: Option<String>,
    /// Whether the request would have changed the store.
    pub(crate) writes: bool,
    /// Whether the request was for credentials rather than for the store.
    pub(crate) for_credentials: bool,
    /// Whether a service for credentials is configured or has answered without an error.
    pub(crate) has_service: bool,
    /// Whether a page of a listing names itself as the next one.
    pub(crate) is_repeated: bool,
    /// What was removed from the page of a listing.
    pub(crate) removed: Removed,
    /// Requests to the store so far: the client repeats those that fail.
    pub(crate) requests: u32,
}

impl Seen {
    /// Returns whether the store said that the upload does not exist. Another server at the same address
    /// answers with 404, too, and so does a store without the bucket.
    pub(crate) fn is_no_upload(&self) -> bool {
        self.status == Some(404) && self.code.as_deref() == Some("NoSuchUpload")
    }

    /// Returns whether the server did not answer in time.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(self.transport, Some((HttpErrorKind::Timeout, _)))
    }
}

tokio::task_local! {
    static SEEN: RefCell<Seen>;
}

/// Runs an operation. Returns its result, and how its last request went.
pub(crate) async fn watched<T>(operation: impl Future<Output = T>) -> (T, Seen) {
    let all = async {
        let value = operation.await;
        (value, SEEN.with(RefCell::take))
    };
    SEEN.scope(RefCell::default(), all).await
}

/// Returns whether the last response of an operation has one of the statuses. If so, the next request is another form
/// of the same attempt.
pub(crate) fn had_status(statuses: &[u16]) -> bool {
    let is_one = |cell: &RefCell<Seen>| {
        let mut seen = cell.borrow_mut();
        let is_one = seen.status.is_some_and(|status| statuses.contains(&status));
        seen.requests -= u32::from(is_one && seen.requests > 0);
        is_one
    };
    SEEN.try_with(is_one).unwrap_or(false)
}

/// Notes how a request went, for [`watched`].
pub(crate) fn note(mut seen: Seen) {
    let _ = SEEN.try_with(|cell| {
        seen.requests = cell.borrow().requests + u32::from(!seen.for_credentials);
        *cell.borrow_mut() = seen;
    });
}

/// Returns the innermost cause.
fn root<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last
}

/// Returns the text of the innermost cause.
pub(crate) fn innermost(error: &(dyn Error + 'static)) -> String {
    let last = root(error);
    match last.downcast_ref::<std::io::Error>() {
        Some(error) => ioloom_failure::reason(error),
        None => last.to_string(),
    }
}

/// Connects clients that note how requests went.
#[derive(Debug, Default)]
pub(crate) struct Connector {
    pub(crate) cloud: Cloud,
    /// The beginning of the URLs of the store, if it is known: other requests are for credentials.
    pub(crate) store: Arc<str>,
    /// The beginnings of the URLs of services for credentials that the settings name.
    pub(crate) services: Arc<[String]>,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = connect::client(self.cloud, options)?;
        let (services, store) = (Arc::clone(&self.services), Arc::clone(&self.store));
        let (cloud, has_answered) = (self.cloud, AtomicBool::new(false));
        Ok(HttpClient::new(Noting { inner, cloud, store, services, has_answered }))
    }
}

#[derive(Debug)]
struct Noting {
    inner: HttpClient,
    /// As in [`Connector`].
    cloud: Cloud,
    store: Arc<str>,
    services: Arc<[String]>,
    /// Whether a service for credentials has answered without an error.
    has_answered: AtomicBool,
}

type Called<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Noting {
    fn call<'s, 'a>(&'s self, request: HttpRequest) -> Called<'a>
    where
        's: 'a,
        Self: 'a,
    {
        Box::pin(self.execute(request))
    }
}

impl Noting {
    /// Returns whether the settings name the service for credentials that a request is for.
    fn is_named(&self, request: &HttpRequest) -> bool {
        if self.services.is_empty() {
            return false;
        }
        let url = request.uri().to_string();
        let is_for = |service: &String| {
            // Not for a longer name, or a port of the same host.
            url.strip_prefix(service.as_str()).is_some_and(|rest| {
                rest.is_empty() || service.ends_with('/') || rest.starts_with(['/', '?'])
            })
        };
        self.services.iter().any(is_for)
    }

    /// Returns whether a request is for another server than the store. Its credentials come from there.
    fn is_elsewhere(&self, request: &HttpRequest) -> bool {
        !self.store.is_empty() && !request.uri().to_string().starts_with(&*self.store)
    }

    /// Returns the form of the page that a request is for, if it is one of a listing.
    fn page_of(&self, request: &HttpRequest) -> Option<&'static Form> {
        let query = request.uri().query()?;
        match self.cloud {
            Cloud::S3 | Cloud::Google => query.contains("list-type=2").then_some(&page::S3),
            Cloud::Azure => query.contains("comp=list").then_some(&page::AZURE),
            Cloud::Web => None,
        }
    }

    async fn execute(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if self.cloud == Cloud::Google && !self.is_elsewhere(&request) {
            accept_stored(&mut request);
        }
        let form = self.page_of(&request);
        let token = form.and_then(|form| token_of(&request, form));
        let writes = !matches!(request.method().as_str(), "GET" | "HEAD");
        // Metadata services of virtual machines and containers.
        let host = request.uri().host().unwrap_or_default();
        let is_metadata = matches!(host, METADATA | METADATA_OF_GOOGLE);
        let is_named = self.is_named(&request) || (self.is_elsewhere(&request) && !is_metadata);
        let for_credentials = is_named
            || is_metadata
            || (self.cloud == Cloud::S3
                && (matches!(host, "169.254.170.2" | "169.254.170.23")
                    || host.starts_with("sts.")));
        // The client tries this one if no credentials are configured.
        let is_configured = is_named || (for_credentials && !is_metadata);
        let has_service = || is_configured || self.has_answered.load(Ordering::Relaxed);
        let pace = pace_of_document(self.cloud, &request, for_credentials);
        let cloud = self.cloud;
        let mut response = match self.inner.execute(request).await {
            Ok(response) => response,
            Err(error) => {
                let transport = Some((error.kind(), innermost(&error)));
                let cause = root(&error).downcast_ref::<std::io::Error>();
                let no_descriptor = cause.is_some_and(ioloom_failure::is_out_of_descriptors);
                let seen =
                    Seen { cloud, transport, no_descriptor, for_credentials, ..Seen::default() };
                note(Seen { has_service: has_service(), ..seen });
                return Err(error);
            }
        };
        let status = response.status().as_u16();
        // A proxy answers with an error for a host that does not exist.
        self.has_answered.fetch_or(for_credentials && status < 300, Ordering::Relaxed);
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let region = header("x-amz-bucket-region").map(str::to_owned);
        let no_md5 = has_other_sum(response.headers());
        let md5 = md5_of(cloud, status, response.headers());
        let seen = Seen { cloud, status: Some(status), region, no_md5, md5, ..Seen::default() };
        let has_service = has_service();
        let mut seen = Seen { for_credentials, has_service, writes, ..seen };
        if status < 300 {
            mend_headers(cloud, response.headers_mut());
            return match (form, pace) {
                (Some(form), _) => without_odd_keys(response, (form, token), seen).await,
                (None, Some(pace)) => with_document(response, seen, pace.restarted()).await,
                (None, None) => Ok(noted(response, seen)),
            };
        }
        let length = header("content-length").and_then(|text| text.parse::<usize>().ok());
        if length.is_some_and(|length| length > ERROR_BYTES) {
            return Ok(noted(response, seen));
        }
        // Answers without a document have the code in a header.
        seen.code = header("x-ms-error-code").map(str::to_owned);
        let (parts, body) = response.into_parts();
        let text = at_most(body, ERROR_BYTES, Pace::new()).await.unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        seen.code = element(&text, "Code").or(seen.code);
        seen.message = element(&text, "Message").or_else(|| json_message(&text));
        // What fake-gcs-server answers for an object that does not exist.
        let is_plain = cloud == Cloud::Google && text.trim_end() == "Not Found";
        seen.has_document = !text.is_empty() && !text.starts_with('{') && !is_plain;
        note(seen);
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(text)))
    }
}

/// Why a page is useless that names no next one.
const CUT: &str = "the server reports more objects, but not where the list continues";

const NO_LIST: &str = "the response is not a list of objects";
/// Why a listing ends whose pages do not advance.
pub(crate) const REPEATED: &str = "the server keeps sending the same page of the list";

/// Returns the token with which a page of a listing is requested.
fn token_of(request: &HttpRequest, form: &Form) -> Option<String> {
    let url = reqwest::Url::parse(&request.uri().to_string()).ok()?;
    let token = url.query_pairs().find(|(name, _)| name == form.token);
    token.map(|(_, token)| token.into_owned())
}

/// Reads a body of at most `most` bytes.
async fn at_most(
    body: HttpResponseBody,
    most: usize,
    mut pace: Pace,
) -> Result<Vec<u8>, HttpError> {
    let (mut stream, mut all) = (body.bytes_stream(), Vec::new());
    while let Some(part) = stream.next().await {
        let part = part?;
        if all.len() + part.len() > most {
            let text = format!("the response is longer than {most} bytes");
            return Err(HttpError::new(HttpErrorKind::Decode, std::io::Error::other(text)));
        }
        all.extend_from_slice(&part);
        if pace.is_lost(all.len()) {
            return Err(pace.error());
        }
    }
    Ok(all)
}

fn noted(response: HttpResponse, seen: Seen) -> HttpResponse {
    note(seen);
    response
}

fn noted_error(error: HttpError, mut seen: Seen) -> HttpError {
    seen.transport = Some((error.kind(), innermost(&error)));
    note(seen);
    error
}

/// Returns the limit on the pace of a response that is a document, which the client would read without one.
/// Objects are read with limits, and answers without contents need none.
fn pace_of_document(cloud: Cloud, request: &HttpRequest, for_credentials: bool) -> Option<Pace> {
    let query = request.uri().query().unwrap_or_default();
    // The parameters of signatures are no sign of a document.
    let is_document = match cloud {
        Cloud::S3 | Cloud::Google => !query.is_empty(),
        Cloud::Azure => query.contains("comp="),
        Cloud::Web => false,
    };
    match request.method().as_str() {
        "POST" if query.contains("uploadId=") => Some(Pace::with_limit(COMPLETING)),
        "PUT" => None,
        _ => (for_credentials || is_document).then(Pace::new),
    }
}

/// Reads a document.
async fn with_document(
    response: HttpResponse,
    seen: Seen,
    pace: Pace,
) -> Result<HttpResponse, HttpError> {
    let (parts, body) = response.into_parts();
    match at_most(body, DOCUMENT_BYTES, pace).await {
        Ok(bytes) => {
            Ok(noted(HttpResponse::from_parts(parts, HttpResponseBody::from(bytes)), seen))
        }
        Err(error) => Err(noted_error(error, seen)),
    }
}

/// Reads a page of a listing, and removes the keys that the client cannot represent.
async fn without_odd_keys(
    response: HttpResponse,
    (form, token): (&Form, Option<String>),
    mut seen: Seen,
) -> Result<HttpResponse, HttpError> {
    let (parts, body) = response.into_parts();
    let bytes = match at_most(body, PAGE_BYTES, Pace::new()).await {
        Ok(bytes) => {
            seen.is_repeated = token.is_some_and(|token| form.is_repeated(&bytes, &token));
            let wrong = match () {
                () if !form.is_list(&bytes) => Some(not_a_list(&bytes)),
                () if form.is_cut(&bytes) => Some(CUT.to_owned()),
                () if seen.is_repeated => Some(REPEATED.to_owned()),
                () => None,
            };
            if let Some(text) = wrong {
                note(seen);
                return Err(HttpError::new(HttpErrorKind::Decode, std::io::Error::other(text)));
            }
            bytes
        }
        // The caller requests the page again. The client repeats no request that fails with this kind.
        Err(error) => {
            return Err(HttpError::new(HttpErrorKind::Decode, noted_error(error, seen)));
        }
    };
    let body = match std::str::from_utf8(&bytes) {
        Ok(text) => {
            let (text, removed) = form.readable(text);
            seen.removed = removed;
            HttpResponseBody::from(text)
        }
        Err(_) => HttpResponseBody::from(bytes),
    };
    Ok(noted(HttpResponse::from_parts(parts, body), seen))
}

/// Returns the reason in a document that was sent instead of a page.
fn not_a_list(document: &[u8]) -> String {
    let text = String::from_utf8_lossy(&document[..document.len().min(ERROR_BYTES)]);
    match (element(&text, "Message"), element(&text, "Code")) {
        (Some(message), Some(code)) => format!("{message} ({code})"),
        _ => NO_LIST.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, url: &str) -> HttpRequest {
        let mut request = HttpRequest::new(object_store::client::HttpRequestBody::empty());
        *request.method_mut() = method.parse().unwrap();
        *request.uri_mut() = url.parse().unwrap();
        request
    }

    #[tokio::test]
    async fn every_document_has_a_limit_on_its_pace() {
        let of = |method, url, for_credentials| {
            pace_of_document(Cloud::S3, &request(method, url), for_credentials)
                .map(|pace| pace.lost())
        };
        let seconds = |s| Some(format!("the response brought less than 1024 bytes in {s} s"));
        assert_eq!(of("POST", "http://h/b/k?uploads=", false), seconds(20));
        assert_eq!(of("POST", "http://h/b/k?uploadId=x", false), seconds(900));
        assert_eq!(of("GET", "http://h/latest/meta-data", true), seconds(20));
        assert_eq!(of("GET", "http://h/b/k", false), None);
        assert_eq!(of("PUT", "http://h/b/k?partNumber=1&uploadId=x", false), None);
        for (limit, parts_before, fails) in
            [(Duration::ZERO, 1, true), (Duration::ZERO, 0, false), (COMPLETING, 1, false)]
        {
            let mut pace = Pace::with_limit(limit);
            for _ in 0..parts_before {
                assert!(!pace.is_lost(0));
            }
            let response = HttpResponse::new(HttpResponseBody::from("<Id>x</Id>".to_owned()));
            let reading = with_document(response, Seen::default(), pace);
            let (read, seen) = watched(reading).await;
            assert_eq!((read.is_err(), seen.transport.is_some()), (fails, fails));
        }
    }

    /// A server that answers with one status after the other.
    #[derive(Debug)]
    struct Statuses(std::sync::Mutex<Vec<u16>>);

    impl HttpService for Statuses {
        fn call<'s, 'a>(&'s self, _: HttpRequest) -> Called<'a>
        where
            's: 'a,
            Self: 'a,
        {
            let status = self.0.lock().unwrap().remove(0);
            let mut response = HttpResponse::new(HttpResponseBody::from(String::new()));
            *response.status_mut() = status.try_into().unwrap();
            Box::pin(async { Ok(response) })
        }
    }

    #[tokio::test]
    async fn an_error_of_a_proxy_is_not_one_of_the_service_for_credentials() {
        let inner = HttpClient::new(Statuses(std::sync::Mutex::new(vec![503, 503, 200, 503])));
        let services = Arc::default();
        let (cloud, store) = (Cloud::S3, Arc::default());
        let service =
            Noting { inner, cloud, store, services, has_answered: AtomicBool::new(false) };
        for (host, expected) in
            [(METADATA, false), ("169.254.170.2", true), (METADATA, true), (METADATA, true)]
        {
            let request = request("GET", &format!("http://{host}/latest/meta-data"));
            let (_, seen) = watched(service.execute(request)).await;
            assert_eq!((seen.for_credentials, seen.has_service), (true, expected), "{host}");
        }
    }

    #[tokio::test]
    async fn requests_to_a_service_that_the_settings_name_are_for_credentials() {
        let inner = HttpClient::new(Statuses(std::sync::Mutex::new(vec![503, 503, 503])));
        let services = Arc::from(["http://h:1/keys".to_owned()]);
        let (cloud, store) = (Cloud::S3, Arc::default());
        let service =
            Noting { inner, cloud, store, services, has_answered: AtomicBool::new(false) };
        for (path, expected) in [("keys", true), ("keys-of/key", false), ("bucket/key", false)] {
            let request = request("GET", &format!("http://h:1/{path}"));
            let (_, seen) = watched(service.execute(request)).await;
            assert_eq!((seen.for_credentials, seen.has_service), (expected, expected), "{path}");
        }
    }

    #[test]
    fn the_parameters_of_a_signature_make_no_document() {
        for (cloud, url, expected) in [
            (Cloud::Azure, "http://h/c/k?sv=1&sig=x", false),
            (Cloud::Azure, "http://h/c?restype=container&comp=list&sv=1", true),
            (Cloud::Web, "http://h/k?uploads=", false),
            (Cloud::Google, "http://h/b?list-type=2", true),
        ] {
            let found = pace_of_document(cloud, &request("GET", url), false);
            assert_eq!(found.is_some(), expected, "{url}");
        }
    }

    #[test]
    fn requests_to_another_server_than_the_store_are_for_credentials() {
        let inner = HttpClient::new(Statuses(std::sync::Mutex::new(vec![400, 404, 503])));
        let (services, store) = (Arc::default(), Arc::from("http://store:1/"));
        let has_answered = AtomicBool::new(false);
        let service = Noting { inner, cloud: Cloud::Google, store, services, has_answered };
        for (url, expected) in [
            ("http://token:1/", (true, true)),
            ("http://store:1/b/k", (false, false)),
            ("http://metadata.google.internal/x", (true, false)),
        ] {
            let seen = futures_util::future::FutureExt::now_or_never(watched(
                service.execute(request("GET", url)),
            ));
            let (_, seen) = seen.unwrap();
            assert_eq!((seen.for_credentials, seen.has_service), expected, "{url}");
        }
    }
}
