//! Arguments that are URLs of object stores.

#[cfg(not(feature = "objects"))]
use crate::exit::Failure;
#[cfg(feature = "objects")]
use crate::exit::{Exit, Failure};
use std::path::Path;

/// Schemes of object stores. Not all of them are supported, but none of them is meant as a path.
const SCHEMES: [&str; 9] = ["s3", "s3a", "gs", "az", "abfs", "abfss", "http", "https", "hdfs"];

/// Returns the URL if the argument is one. A path that looks like a URL can be given as `./URL`.
pub(crate) fn url_of(path: &Path) -> Option<&str> {
    let text = path.to_str()?;
    let (scheme, _) = text.split_once("://")?;
    SCHEMES.iter().any(|known| scheme.eq_ignore_ascii_case(known)).then_some(text)
}

/// Returns a URL for a message: without a password and a signature.
pub(crate) fn shown(url: &str) -> String {
    ioloom_failure::without_secrets(url)
}

/// Refuses a URL in a build without object storage.
#[cfg(not(feature = "objects"))]
pub(crate) fn unsupported(url: &str) -> Failure {
    let url = shown(url);
    let url = ioloom_failure::quoted(Path::new(&url));
    Failure::refused(format!(
        "cannot open {url}: this build has no object storage; rebuild with the cargo feature 'objects'"
    ))
}

/// Opens the store that a URL names.
#[cfg(feature = "objects")]
pub(crate) fn open(url: &str) -> Result<ioloom_objects::Store, Failure> {
    use ioloom_objects::{Location, Store};
    Location::parse(url).and_then(Store::open).map_err(|error| failure(&error))
}

/// Returns why an operation on a store ends the command.
#[cfg(feature = "objects")]
pub(crate) fn failure(error: &ioloom_objects::ObjectError) -> Failure {
    use ioloom_objects::{Action, Kind};
    let exit = match error.kind {
        Kind::Url | Kind::Configuration => Exit::Usage,
        // Later, as in a listing, work may have begun.
        Kind::Descriptors if error.action == Action::Open => Exit::Refused,
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_schemes_of_stores_make_an_argument_a_url() {
        for url in ["s3://b/k", "gs://b", "https://host/x", "S3://b/k", "HTTPS://host/x"] {
            assert_eq!(url_of(Path::new(url)), Some(url));
        }
        for path in ["s3:/b/k", "./s3://b/k", "file", "c://x", "://", "/s3://b"] {
            assert_eq!(url_of(Path::new(path)), None, "{path}");
        }
    }
}
