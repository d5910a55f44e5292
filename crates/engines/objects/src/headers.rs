//! Headers of requests for objects, and of the answers.

use crate::cloud::Cloud;
use object_store::client::HttpRequest;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// Makes a request for an object one for what is stored, and not for what the server would make of it.
pub(crate) fn accept_stored(request: &mut HttpRequest) {
    let reads = matches!(request.method().as_str(), "GET" | "HEAD");
    if reads && request.uri().query().is_none() {
        request.headers_mut().insert("accept-encoding", HeaderValue::from_static("gzip"));
    }
}

/// Returns whether the `ETag` of a response is not the MD5 of the contents.
pub(crate) fn has_other_sum(headers: &HeaderMap) -> bool {
    let is_of_a_key = |name| name != "AES256";
    headers.get("x-amz-server-side-encryption").is_some_and(is_of_a_key)
        || headers.contains_key("x-amz-server-side-encryption-customer-algorithm")
        || headers.contains_key("x-static-large-object")
        || headers.contains_key("x-object-manifest")
}

/// Makes the headers of a response such that the client can use it.
pub(crate) fn mend_headers(cloud: Cloud, headers: &mut HeaderMap) {
    remove_unreadable(headers);
    if cloud == Cloud::Google {
        add_stored_length(headers);
    }
}

/// Adds the length of an object that is sent as it is stored, if the server omits it.
fn add_stored_length(headers: &mut HeaderMap) {
    let none = HeaderValue::from_static("identity");
    let sent = headers.get("content-encoding").unwrap_or(&none);
    let is_as_stored = headers.get("x-goog-stored-content-encoding") == Some(sent);
    let length = headers.get("x-goog-stored-content-length").cloned();
    if let Some(length) = length
        && is_as_stored
        && !headers.contains_key("content-length")
    {
        headers.insert("content-length", length);
    }
}

/// Removes the attributes of an object whose values are not visible ASCII. They are not used, and the client would
/// take the response for a failure.
fn remove_unreadable(headers: &mut HeaderMap) {
    let is_attribute = |name: &HeaderName| match name.as_str() {
        "cache-control"
        | "content-disposition"
        | "content-encoding"
        | "content-language"
        | "content-type" => true,
        name => ["x-amz-meta-", "x-goog-meta-", "x-ms-meta-"]
            .iter()
            .any(|start| name.starts_with(start)),
    };
    let unreadable: Vec<HeaderName> = headers
        .iter()
        .filter(|(name, value)| value.to_str().is_err() && is_attribute(name))
        .map(|(name, _)| name.clone())
        .collect();
    for name in unreadable {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::client::HttpRequestBody;

    #[test]
    fn objects_with_keys_or_in_segments_have_no_md5() {
        for (name, value, expected) in [
            ("x-amz-server-side-encryption", "AES256", false),
            ("x-amz-server-side-encryption", "aws:kms", true),
            ("x-amz-server-side-encryption-customer-algorithm", "AES256", true),
            ("x-static-large-object", "True", true),
            ("x-object-manifest", "container/prefix", true),
        ] {
            let headers = HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
            assert_eq!(has_other_sum(&headers), expected, "{name}");
        }
    }

    #[test]
    fn the_length_of_what_is_stored_is_that_of_what_is_sent() {
        for (stored, sent, given, expected) in [
            ("gzip", Some("gzip"), None, Some("7")),
            ("identity", None, None, Some("7")),
            ("gzip", None, None, None),
            ("gzip", Some("gzip"), Some("5"), Some("5")),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("x-goog-stored-content-encoding", HeaderValue::from_static(stored));
            headers.insert("x-goog-stored-content-length", HeaderValue::from_static("7"));
            for (name, value) in [("content-encoding", sent), ("content-length", given)] {
                if let Some(value) = value {
                    headers.insert(name, HeaderValue::from_static(value));
                }
            }
            mend_headers(Cloud::Google, &mut headers);
            let expected = expected.map(HeaderValue::from_static);
            assert_eq!(headers.get("content-length"), expected.as_ref(), "{stored} {sent:?}");
        }
    }

    #[test]
    fn only_objects_are_requested_as_they_are_stored() {
        for (method, url, expected) in [
            ("GET", "http://h/b/k", true),
            ("HEAD", "http://h/b/k", true),
            ("GET", "http://h/b?list-type=2", false),
            ("PUT", "http://h/b/k", false),
        ] {
            let mut request = HttpRequest::new(HttpRequestBody::empty());
            *request.method_mut() = method.parse().unwrap();
            *request.uri_mut() = url.parse().unwrap();
            accept_stored(&mut request);
            assert_eq!(request.headers().contains_key("accept-encoding"), expected, "{url}");
        }
    }
}
