//! URLs of buckets, prefixes and objects.

use crate::cloud::Cloud;
use crate::error::{Action, Kind, ObjectError};
use ioloom_failure::{without_secrets, without_signature};
use object_store::path::Path;

/// A bucket and a key or prefix in it: `s3://BUCKET/KEY`, `az://CONTAINER/KEY` or `gs://BUCKET/KEY`. The key is taken
/// literally, as the command lines of these stores do: `%` and `+` have no special meaning. `http:` and `https:` URLs
/// name one file on a web server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    pub(crate) cloud: Cloud,
    /// The bucket. For a file on a web server, its URL.
    pub(crate) bucket: String,
    /// The key. For a file on a web server, its name.
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
        let invalid =
            |reason: &str| ObjectError::new(Action::Open, without_secrets(url), Kind::Url, reason);
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(invalid("not a URL of the form s3://BUCKET/PREFIX"));
        };
        let Some(cloud) = Cloud::of_scheme(scheme) else {
            return Err(invalid(&format!(
                "{scheme}: is not supported, only s3:, az:, gs:, http: and https: are"
            )));
        };
        if cloud == Cloud::Web {
            return Self::of_file(url).map_err(|reason| invalid(&reason));
        }
        if cloud == Cloud::Azure && without_signature(rest) != rest {
            return Err(invalid(
                "the URL has a shared access signature; remove it, and set AZURE_STORAGE_SAS_TOKEN to it",
            ));
        }
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        let what = cloud.bucket();
        // `$` begins the names of the containers of a web site and of logs.
        let allowed = |c: char| {
            c.is_ascii_alphanumeric()
                || matches!(c, '-' | '.' | '_')
                || (c == '$' && cloud == Cloud::Azure)
        };
        if bucket.is_empty() {
            return Err(invalid(&format!("the name of the {what} is missing")));
        }
        if cloud == Cloud::Azure && bucket.contains('@') {
            return Err(invalid(
                "the URL names an account; write az://CONTAINER/PREFIX and set AZURE_STORAGE_ACCOUNT_NAME",
            ));
        }
        if !bucket.chars().all(allowed) {
            return Err(invalid(&format!(
                "the name of the {what} contains a character other than letters, digits, -, . and _"
            )));
        }
        if key.starts_with('/') {
            return Err(invalid("keys with an empty segment (//) are not supported"));
        }
        let is_prefix = key.is_empty() || key.ends_with('/');
        let key = Path::parse(key).map_err(|_| {
            invalid("keys with an empty segment (//), a segment . or .., or control characters are not supported")
        })?;
        Ok(Self { cloud, bucket: bucket.to_owned(), key, is_prefix })
    }

    /// Returns the location of a file on a web server.
    fn of_file(url: &str) -> Result<Self, String> {
        let parsed = reqwest::Url::parse(url).map_err(|error| error.to_string())?;
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err("URLs with a user name or a password are not supported".to_owned());
        }
        if url.chars().any(|c| c.is_control() || c == ' ') {
            return Err("the URL contains a space or a control character".to_owned());
        }
        let last = parsed.path().rsplit('/').next().unwrap_or_default();
        let key = Path::parse(decoded(last)).unwrap_or_default();
        Ok(Self { cloud: Cloud::Web, bucket: url.to_owned(), key, is_prefix: false })
    }

    /// Returns the last segment of the key, with which a copy in a directory is named. A prefix has none, nor has the
    /// URL of a web server that ends with a slash.
    pub fn name(&self) -> Option<&str> {
        if self.is_prefix {
            return None;
        }
        self.key.as_ref().rsplit('/').next().filter(|name| !name.is_empty())
    }

    /// Returns whether it is a file on a web server: there is nothing below it, and it can only be read.
    pub fn is_web_file(&self) -> bool {
        self.cloud == Cloud::Web
    }

    /// Returns the key or prefix, without a slash at its end.
    pub fn prefix(&self) -> &str {
        self.key.as_ref()
    }

    /// Returns whether it is a directory bucket (S3 Express), whose names have this end: lists are not sorted, and
    /// versions are no sums.
    pub(crate) fn is_directory_bucket(&self) -> bool {
        self.cloud == Cloud::S3 && self.bucket.ends_with("--x-s3")
    }

    /// Returns the URL of a key in the same bucket. A file on a web server has one.
    pub(crate) fn url_of(&self, key: &str) -> String {
        match self.cloud {
            Cloud::Web => self.bucket.clone(),
            cloud => format!("{}://{}/{key}", cloud.scheme(), self.bucket),
        }
    }

    /// Returns the URL of the object or prefix.
    pub fn url(&self) -> String {
        let slash = if self.is_prefix && !self.key.is_root() { "/" } else { "" };
        format!("{}{slash}", self.url_of(self.key.as_ref()))
    }
}

/// Resolves `%XX` in a segment of a URL. What cannot be the name of a file is left as it is.
fn decoded(segment: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), segment.as_bytes());
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains(|c: char| c == '/' || c.is_control()) => text,
        _ => segment.to_owned(),
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
    fn every_cloud_has_its_urls() {
        for (url, cloud, shown) in [
            ("az://c/a/b", Cloud::Azure, "az://c/a/b"),
            ("abfs://$web", Cloud::Azure, "az://$web/"),
            ("abfss://c/a/", Cloud::Azure, "az://c/a/"),
            ("gs://b/a", Cloud::Google, "gs://b/a"),
            ("https://h:1/a?b=c#d", Cloud::Web, "https://h:1/a?b=c#d"),
            ("http://h", Cloud::Web, "http://h"),
            ("HTTPS://h/a", Cloud::Web, "HTTPS://h/a"),
            ("S3://b/a", Cloud::S3, "s3://b/a"),
            ("az://c/a?b=1&design=2", Cloud::Azure, "az://c/a?b=1&design=2"),
        ] {
            let location = Location::parse(url).unwrap();
            assert_eq!((location.cloud, &*location.url()), (cloud, shown), "{url}");
            assert_eq!(Cloud::of_url(&location.url()), cloud, "{url}");
        }
    }

    #[test]
    fn copies_have_the_name_of_the_last_segment() {
        for (url, name) in [
            ("s3://b/a/b%20", Some("b%20")),
            ("gs://b/a/", None),
            ("https://h/a/b%20c.txt?sig=x/y#z", Some("b c.txt")),
            ("https://h/%C3%A9", Some("é")),
            ("https://h/%", Some("%")),
            ("https://h/a%2F..%2Fb", Some("a%2F..%2Fb")),
            ("https://h/%ff", Some("%ff")),
            ("https://h/a/..", None),
            ("https://h/a/", None),
            ("https://h", None),
        ] {
            assert_eq!(Location::parse(url).unwrap().name(), name, "{url}");
        }
    }

    #[test]
    fn messages_show_no_secrets() {
        for (url, shown) in [
            ("https://u:SECRET@h/a@b", "'https://h/a@b'"),
            ("https://SECRET@h", "'https://h'"),
            ("https://u:SEC/RET:SECRET@h/a", "'https://h/a'"),
            ("s3://KEY:SECRET@b/a", "'s3://b/a'"),
            ("ftp://u:SECRET@h/a", "'ftp://h/a'"),
            ("az://c/a?sv=1&sig=SECRET", "'az://c/a'"),
            ("az://c?sig=SECRET", "'az://c'"),
            ("abfss://c@me.dfs.core.windows.net/a", "'abfss://c@me.dfs.core.windows.net/a'"),
        ] {
            let error = Location::parse(url).unwrap_err().to_string();
            assert!(error.contains(shown) && !error.contains("SECRET"), "{error}");
        }
        let error = Location::parse("az://c/a?sig=x").unwrap_err().to_string();
        assert!(error.contains("set AZURE_STORAGE_SAS_TOKEN"), "{error}");
    }

    #[test]
    fn invalid_urls_name_the_reason() {
        for (url, reason) in [
            ("b/a", "not a URL of the form s3://BUCKET/PREFIX"),
            ("s3:///a", "the name of the bucket is missing"),
            ("s3://", "the name of the bucket is missing"),
            ("ftp://b/a", "ftp: is not supported, only s3:, az:, gs:, http: and https: are"),
            ("az:///a", "the name of the container is missing"),
            ("abfss://c@me.dfs.core.windows.net/a", "write az://CONTAINER/PREFIX and set AZURE_"),
            ("gs://b:1/a", "the name of the bucket contains a character"),
            ("https://user@host/a", "a user name or a password"),
            ("https://", "empty host"),
            ("http://host:99999/a", "invalid port number"),
            ("http://host/a b", "a space or a control character"),
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
