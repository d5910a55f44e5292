//! Who stores objects, by the scheme of the URL.

/// Who stores the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Cloud {
    /// Amazon S3, and servers with its protocol.
    #[default]
    S3,
    /// Azure Blob Storage.
    Azure,
    /// Google Cloud Storage.
    Google,
    /// A web server.
    Web,
}

impl Cloud {
    /// Returns that of a scheme, in upper or lower case.
    pub(crate) fn of_scheme(scheme: &str) -> Option<Self> {
        Some(match scheme.to_ascii_lowercase().as_str() {
            "s3" | "s3a" => Self::S3,
            "az" | "abfs" | "abfss" => Self::Azure,
            "gs" => Self::Google,
            "http" | "https" => Self::Web,
            _ => return None,
        })
    }

    /// Returns that of a URL, or S3.
    pub(crate) fn of_url(url: &str) -> Self {
        url.split_once("://").and_then(|(scheme, _)| Self::of_scheme(scheme)).unwrap_or_default()
    }

    /// Returns the scheme of its URLs.
    pub(crate) fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Azure => "az",
            Self::Google => "gs",
            Self::Web => "https",
        }
    }

    /// Returns what it calls a bucket.
    pub(crate) fn bucket(self) -> &'static str {
        if self == Self::Azure { "container" } else { "bucket" }
    }
}
