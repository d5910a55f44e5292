//! Why an operation failed, and whether another attempt may succeed.

use crate::cloud::Cloud;
use crate::error::Kind;
use crate::wire::{Seen, innermost};
use object_store::client::{HttpError, HttpErrorKind};
use object_store::{Error, path};
use reqwest::header::ToStrError;

/// Why an attempt failed.
#[derive(Debug, Clone)]
pub(crate) struct Reason {
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

impl Reason {
    pub(crate) fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// Returns whether another attempt may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(
            self.kind,
            Kind::Busy
                | Kind::Server
                | Kind::Interrupted
                | Kind::Response
                | Kind::Unreachable
                | Kind::Renewal
                | Kind::Descriptors
        )
    }

    /// Classifies a failed operation.
    pub(crate) fn of(error: &Error, seen: &Seen) -> Self {
        if let Error::InvalidPath { source } = error {
            return Self::new(Kind::Unsupported, invalid_path(source));
        }
        // Requests that end close their connections.
        if let (true, Some((_, text))) = (seen.no_descriptor, &seen.transport) {
            return Self::new(Kind::Descriptors, text.clone());
        }
        if seen.for_credentials {
            return of_credentials(seen);
        }
        if let Some((kind, text)) = &seen.transport {
            return match kind {
                HttpErrorKind::Connect => Self::new(Kind::Unreachable, text.clone()),
                HttpErrorKind::Timeout => {
                    Self::new(Kind::Interrupted, "the server did not answer in time")
                }
                _ => Self::new(Kind::Interrupted, text.clone()),
            };
        }
        match seen.status {
            Some(status) if status >= 300 => of_status(status, seen),
            // Another attempt would get the same header.
            Some(_) if cause::<ToStrError>(error).is_some() => {
                Self::new(Kind::Unsupported, "a header of the response is not ASCII")
            }
            // The client refuses the description of a directory.
            Some(_) if seen.cloud == Cloud::Azure && matches!(error, Error::NotFound { .. }) => {
                Self::new(Kind::Missing, "it is a directory, not an object")
            }
            // The response began well.
            Some(_) if seen.cloud == Cloud::Web && odd_answer(error).is_some() => {
                Self::new(Kind::Unsupported, odd_answer(error).unwrap_or_default())
            }
            Some(_) => match cause::<HttpError>(error).map(HttpError::kind) {
                Some(HttpErrorKind::Decode) | None => Self::new(Kind::Response, innermost(error)),
                Some(_) => Self::new(Kind::Interrupted, innermost(error)),
            },
            None => Self::new(Kind::Configuration, innermost(error)),
        }
    }
}

/// Classifies a failed request for credentials. A service that fails now has them later.
fn of_credentials(seen: &Seen) -> Reason {
    let fails = |status: &u16| matches!(of_status(*status, seen).kind, Kind::Busy | Kind::Server);
    let why = match (&seen.transport, seen.status.filter(fails)) {
        // It is there, and knows the keys that it was sent.
        (None, None) if seen.cloud != Cloud::S3 && seen.has_service => {
            let status = seen.status.unwrap_or_default();
            let why = seen.message.clone().unwrap_or_else(|| format!("status {status}"));
            let text = format!("the credentials were refused: {why}");
            return Reason::new(Kind::Credentials, text);
        }
        // A host without the service, or a proxy that answers for it. The client has repeated the request.
        (None, Some(status)) if !seen.has_service => {
            let text = format!(
                "no credentials found: the request to the metadata service was answered with \
                 status {status}"
            );
            return Reason::new(Kind::Credentials, text);
        }
        _ if !seen.has_service => None,
        (Some((_, text)), _) => Some(text.clone()),
        (None, Some(status)) => Some(of_status(status, seen).text),
        (None, None) => None,
    };
    match why {
        Some(why) => {
            Reason::new(Kind::Renewal, format!("the credentials could not be obtained: {why}"))
        }
        None => Reason::new(Kind::Credentials, "no credentials found"),
    }
}

fn of_status(status: u16, seen: &Seen) -> Reason {
    let code = seen.code.as_deref().unwrap_or_default();
    let kind = match (status, code) {
        // Without credentials, the last one is a container that is not public.
        (
            _,
            "NoSuchBucket" | "ContainerNotFound" | "ContainerBeingDeleted" | "ResourceNotFound",
        ) => Kind::NoBucket,
        (
            _,
            "ServerBusy"
            | "SlowDown"
            | "ServiceUnavailable"
            | "Throttling"
            | "RequestLimitExceeded",
        )
        | (429 | 503, _) => Kind::Busy,
        (_, "AuthorizationHeaderMalformed" | "PermanentRedirect") if seen.region.is_some() => {
            Kind::Region
        }
        (_, "InvalidObjectState" | "BlobArchived" | "BlobBeingRehydrated") => Kind::Archived,
        (_, "RequestTimeTooSkewed") => Kind::Clock,
        (_, "ExpiredToken" | "InvalidToken" | "PublicAccessNotPermitted") => Kind::Denied,
        // Another request for the same bucket or object is being carried out.
        (_, "OperationAborted" | "ConditionalRequestConflict") => Kind::Server,
        // Documents of stores have an error code.
        (404 | 405 | 501, "") if seen.has_document && seen.cloud != Cloud::Web => Kind::NoStore,
        (410, _) if seen.cloud == Cloud::Web => Kind::Missing,
        (404, _) => Kind::Missing,
        (401 | 403, _) => Kind::Denied,
        (409, "BlobUsesCustomerSpecifiedEncryption") => Kind::Unsupported,
        (409 | 412, _) if seen.writes => Kind::Conflict,
        (409 | 412, _) => Kind::Changed,
        (301 | 302 | 307 | 308, _) if seen.cloud == Cloud::S3 => Kind::Region,
        // Redirects of these clouds are not followed.
        (301..=308, _) if matches!(seen.cloud, Cloud::Azure | Cloud::Google) => Kind::Refused,
        (408 | 500 | 502..=599, _) | (_, "RequestTimeout") => Kind::Server,
        // What was sent arrived damaged or incomplete.
        (_, "BadDigest" | "Md5Mismatch" | "IncompleteBody" | "XAmzContentSHA256Mismatch") => {
            Kind::Response
        }
        // The object is shorter than it was listed.
        (416, _) => Kind::Response,
        (400..=499, _) => Kind::Refused,
        _ => Kind::Response,
    };
    let text = match (kind, &seen.message, &seen.region) {
        (Kind::Region, _, Some(region)) => format!("the bucket is in the region {region}"),
        (Kind::Changed, ..) => "it was replaced while it was read".to_owned(),
        (_, Some(message), _) if code.is_empty() => message.clone(),
        (_, Some(message), _) => format!("{message} ({code})"),
        // Answers without a document have only the code.
        (Kind::NoBucket, None, _) => format!("the bucket or container does not exist ({code})"),
        (Kind::Missing, None, _) if !code.is_empty() && !seen.writes => {
            format!("No such object ({code})")
        }
        (_, None, _) if !code.is_empty() => code.to_owned(),
        _ => match status {
            404 if seen.cloud == Cloud::Web => "No such file".to_owned(),
            404 if kind != Kind::NoStore && !seen.writes => "No such object".to_owned(),
            403 => "Access denied".to_owned(),
            503 => "too many requests (503)".to_owned(),
            _ => format!("the server answered with status {status}"),
        },
    };
    Reason::new(kind, text)
}

/// Returns why the answer of a web server cannot be used that is what it answers to everybody.
fn odd_answer(error: &Error) -> Option<&'static str> {
    let text = innermost(error);
    // The types of these errors are not public.
    match () {
        () if text.contains("Content-Length") => {
            Some("the server does not say how long the file is")
        }
        () if text.starts_with("Range request not supported") => {
            Some("the server does not send ranges, in which files larger than 8 MiB are read")
        }
        () => None,
    }
}

/// Returns the first error of a type among the causes.
fn cause<T: std::error::Error + 'static>(error: &Error) -> Option<&T> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

fn invalid_path(error: &path::Error) -> String {
    let key = match error {
        path::Error::EmptySegment { path } | path::Error::BadSegment { path, .. } => path.as_str(),
        _ => return error.to_string(),
    };
    format!(
        "the key '{}' has an empty segment (//), a segment . or .., or control characters, which are \
         not supported",
        key.escape_debug()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, code: &str, writes: bool) -> Reason {
        let code = Some(code.to_owned()).filter(|code| !code.is_empty());
        let message = code.as_ref().map(|_| "Text".to_owned());
        of_status(status, &Seen { code, message, writes, ..Seen::default() })
    }

    #[test]
    fn a_header_that_cannot_be_read_is_not_requested_again() {
        let header = reqwest::header::HeaderValue::from_bytes(b"\xff").unwrap();
        let source = Box::new(header.to_str().unwrap_err());
        let error = Error::Generic { store: "S3", source };
        let reason = Reason::of(&error, &Seen { status: Some(200), ..Seen::default() });
        assert_eq!((reason.kind, reason.is_transient()), (Kind::Unsupported, false));
    }

    #[test]
    fn too_many_open_files_are_not_a_fault_of_the_network() {
        let transport = Some((HttpErrorKind::Connect, "Too many open files".to_owned()));
        let error = Error::NotImplemented { operation: String::new(), implementer: String::new() };
        let seen = Seen { transport, no_descriptor: true, ..Seen::default() };
        let reason = Reason::of(&error, &seen);
        assert_eq!((reason.kind, reason.is_transient()), (Kind::Descriptors, true));
    }

    #[test]
    fn a_failure_of_the_service_for_credentials_is_transient() {
        let error = Error::NotImplemented { operation: String::new(), implementer: String::new() };
        let of = |status, code: Option<&str>, transport: Option<&str>, has_service| {
            let transport = transport.map(|text| (HttpErrorKind::Connect, text.to_owned()));
            let code = code.map(str::to_owned);
            let seen = Seen { status, code, transport, has_service, ..Seen::default() };
            Reason::of(&error, &Seen { for_credentials: true, ..seen })
        };
        for reason in [
            of(Some(503), None, None, true),
            of(Some(500), None, None, true),
            of(Some(429), None, None, true),
            of(Some(400), Some("Throttling"), None, true),
            of(None, None, Some("Connection refused"), true),
            of(Some(200), None, Some("Connection reset"), true),
        ] {
            assert_eq!((reason.kind, reason.is_transient()), (Kind::Renewal, true), "{reason:?}");
            assert!(
                reason.text.starts_with("the credentials could not be obtained: "),
                "{reason:?}"
            );
        }
        // No role, and a host without the service.
        for reason in [
            of(Some(404), None, None, true),
            of(Some(403), Some("AccessDenied"), None, true),
            of(None, None, Some("No route to host"), false),
            of(Some(200), None, Some("Connection reset"), false),
        ] {
            assert_eq!((reason.kind, reason.is_transient()), (Kind::Credentials, false));
            assert_eq!(reason.text, "no credentials found");
        }
        // A proxy that answers for it, or the service of a machine that never had credentials.
        for status in [502, 503] {
            let reason = of(Some(status), None, None, false);
            assert_eq!((reason.kind, reason.is_transient()), (Kind::Credentials, false));
            assert!(reason.text.ends_with(&format!("answered with status {status}")), "{reason:?}");
        }
    }

    #[test]
    fn each_cloud_has_its_codes() {
        for (cloud, status, code, has_document, kind) in [
            (Cloud::Azure, 404, "ContainerNotFound", true, Kind::NoBucket),
            (Cloud::Azure, 404, "BlobNotFound", false, Kind::Missing),
            (Cloud::Azure, 503, "ServerBusy", true, Kind::Busy),
            (Cloud::Azure, 403, "AuthenticationFailed", true, Kind::Denied),
            (Cloud::Azure, 409, "PublicAccessNotPermitted", true, Kind::Denied),
            (Cloud::Azure, 409, "BlobArchived", true, Kind::Archived),
            (Cloud::Azure, 404, "", true, Kind::NoStore),
            (Cloud::Google, 429, "SlowDown", true, Kind::Busy),
            (Cloud::Google, 404, "NoSuchBucket", true, Kind::NoBucket),
            (Cloud::Web, 404, "", true, Kind::Missing),
            (Cloud::Web, 410, "", true, Kind::Missing),
            (Cloud::Web, 302, "", false, Kind::Response),
            (Cloud::S3, 302, "", false, Kind::Region),
            (Cloud::Azure, 302, "", false, Kind::Refused),
            (Cloud::Azure, 409, "BlobUsesCustomerSpecifiedEncryption", true, Kind::Unsupported),
        ] {
            let code = Some(code.to_owned()).filter(|code| !code.is_empty());
            let seen = Seen { cloud, code, has_document, ..Seen::default() };
            assert_eq!(of_status(status, &seen).kind, kind, "{cloud:?} {status}");
        }
    }

    #[test]
    fn a_directory_of_azure_is_not_requested_again() {
        let error = Error::NotFound { path: "dir".to_owned(), source: "Not a file".into() };
        let seen = Seen { cloud: Cloud::Azure, status: Some(200), ..Seen::default() };
        let reason = Reason::of(&error, &seen);
        assert_eq!((reason.kind, reason.is_transient()), (Kind::Missing, false));
        assert_eq!(reason.text, "it is a directory, not an object");
    }

    #[test]
    fn refused_credentials_have_the_reason_of_their_service() {
        let seen = Seen {
            cloud: Cloud::Azure,
            status: Some(401),
            message: Some("AADSTS7: wrong".to_owned()),
            has_service: true,
            ..Seen::default()
        };
        let reason = of_credentials(&seen);
        assert_eq!((reason.kind, reason.is_transient()), (Kind::Credentials, false));
        assert_eq!(reason.text, "the credentials were refused: AADSTS7: wrong");
    }

    #[test]
    fn the_code_of_the_server_decides_before_the_status() {
        for (status, code, writes, kind) in [
            (403, "InvalidObjectState", false, Kind::Archived),
            (403, "RequestTimeTooSkewed", false, Kind::Clock),
            (400, "ExpiredToken", false, Kind::Denied),
            (409, "OperationAborted", true, Kind::Server),
            (403, "AccessDenied", true, Kind::Denied),
            (412, "PreconditionFailed", true, Kind::Conflict),
            (412, "PreconditionFailed", false, Kind::Changed),
            (409, "", false, Kind::Changed),
            (400, "InvalidArgument", true, Kind::Refused),
            (405, "MethodNotAllowed", true, Kind::Refused),
            (414, "", false, Kind::Refused),
            (400, "RequestTimeout", true, Kind::Server),
            (400, "BadDigest", true, Kind::Response),
            (408, "", false, Kind::Server),
            (429, "", false, Kind::Busy),
        ] {
            assert_eq!(of(status, code, writes).kind, kind, "{status} {code}");
        }
        assert!(!of(400, "InvalidArgument", true).is_transient());
        assert_eq!(of(412, "PreconditionFailed", true).text, "Text (PreconditionFailed)");
        assert_eq!(of(412, "", false).text, "it was replaced while it was read");
    }
}
