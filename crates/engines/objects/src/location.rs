//! URLs of buckets, prefixes and objects.

use crate::error::{Action, Kind, ObjectError};
use object_store::path::Path;

/// A bucket and a key or prefix in it: `s3://BUCKET/KEY`. The key is taken literally, as the AWS
/// command line does: `%` and `+` have no special meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    pub(crate) bucket: String,
    pub(crate) key: Path,
    /// Whether the URL ends with a slash and therefore names no object.
    pub(crate) is_prefix: bool,
}

impl Location {
    /// Parses a URL.
    ///
    /// # Errors
    ///
    /// Returns an error of the kind [`Kind::Url`] if the scheme, the bucket or the key is invalid.
    pub fn parse(url: &str) -> Result<Self, ObjectError> {
        let invalid = |reason: &str| ObjectError::new(Action::Open, url, Kind::Url, reason);
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(invalid("not a URL of the form s3://BUCKET/PREFIX"));
        };
        if !matches!(scheme, "s3" | "s3a") {
            return Err(invalid(&format!("{scheme}: is not supported, only s3: is")));
        }
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if bucket.is_empty() {
            return Err(invalid("the name of the bucket is missing"));
        }
        if !bucket.chars().all(allowed) {
            return Err(invalid(
                "the name of the bucket contains a character other than letters, digits, -, . and _",
            ));
        }
        if key.starts_with('/') {
            return Err(invalid("keys with an empty segment (//) are not supported"));
        }
        let is_prefix = key.is_empty() || key.ends_with('/');
        let key = Path::parse(key).map_err(|_| {
            invalid("keys with an empty segment (//), a segment . or .., or control characters are not supported")
        })?;
        Ok(Self { bucket: bucket.to_owned(), key, is_prefix })
    }

    /// Returns the key or prefix, without a slash at its end.
    pub fn prefix(&self) -> &str {
        self.key.as_ref()
    }

    /// Returns whether it is a directory bucket (S3 Express), whose names have this end: lists are not sorted, and
    /// versions are no sums.
    pub(crate) fn is_directory_bucket(&self) -> bool {
        self.bucket.ends_with("--x-s3")
    }

    /// Returns the URL of a key in the same bucket.
    pub(crate) fn url_of(&self, key: &str) -> String {
        format!("s3://{}/{key}", self.bucket)
    }

    /// Returns the URL of the object or prefix.
    pub fn url(&self) -> String {
        let slash = if self.is_prefix && !self.key.is_root() { "/" } else { "" };
        format!("{}{slash}", self.url_of(self.key.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_literally() {
        for (url, bucket, key, is_prefix) in [
            ("s3://b", "b", "", true),
            ("s3://b/", "b", "", true),
            ("s3://my-bucket.x/a/b", "my-bucket.x", "a/b", false),
            ("s3a://b/a/", "b", "a", true),
            ("s3://b/a%20b+c?d#e é", "b", "a%20b+c?d#e é", false),
        ] {
            let location = Location::parse(url).unwrap();
            let found = (&*location.bucket, location.key.as_ref(), location.is_prefix);
            assert_eq!(found, (bucket, key, is_prefix), "{url}");
        }
        assert_eq!(Location::parse("s3a://b/a/").unwrap().url(), "s3://b/a/");
        assert_eq!(Location::parse("s3://b").unwrap().url(), "s3://b/");
    }

    #[test]
    fn invalid_urls_name_the_reason() {
        for (url, reason) in [
            ("b/a", "not a URL of the form s3://BUCKET/PREFIX"),
            ("s3:///a", "the name of the bucket is missing"),
            ("s3://", "the name of the bucket is missing"),
            ("ftp://b/a", "ftp: is not supported, only s3: is"),
            ("s3://b:9000/a", "the name of the bucket contains a character"),
            ("s3://b//a", "an empty segment"),
            ("s3://b/a//b", "an empty segment"),
            ("s3://b/../x", "a segment . or .."),
            ("s3://b/a\u{1}", "control characters"),
        ] {
            let error = Location::parse(url).unwrap_err();
            assert_eq!(error.kind, Kind::Url, "{url}");
            assert!(error.to_string().contains(reason), "{error}");
        }
    }
}
